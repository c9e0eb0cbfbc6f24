// SPDX-License-Identifier: Apache-2.0
// What the driver does to ranks by itself: it stops, kills, and has them sleep.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "harness/base/testing/eventually.h"
#include "harness/hosts/local_rank.h"
#include "harness/run/testing/fault_driver_fixture.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

class RankFaults : public FaultDriverTest {
 protected:
  RankFaults() {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    process = std::make_unique<LocalRank>(
        ProcessSpec{"/bin/sleep", {"1000"}, {}, null, bootstrap.inherited_fd(1), {}});
    ranks[1].attach(*process);
    peer = MessageSocket(dup(bootstrap.inherited_fd(1)));
    close(null);
    process->connect(bootstrap, 1, "hello");
    peer.receive(1s);
  }
  /// Two hours: the driver stamps a signal with the machine's clock, which is an hour behind the test's.
  RankFault& plan(RankFaultKind kind, std::optional<int> iteration,
                  std::optional<std::chrono::nanoseconds> time = {}) {
    scenario.rank_faults.push_back(
        {"it", kind, 1, 0, iteration, time, kind == RankFaultKind::kKill ? 0h : 2h});
    return scenario.rank_faults.back();
  }
  bool becomes(char state) {
    return eventually([&] {
      std::ifstream stat("/proc/" + std::to_string(ranks[1].pid()) + "/stat");
      std::string text;
      std::getline(stat, text);
      return text.size() > text.rfind(')') + 2 && text[text.rfind(')') + 2] == state;
    });
  }
  bool begun(size_t index = 0) { return driver->firings()[index].triggered_ns != 0; }
  nlohmann::json received() { return peer.receive(0ms).value_or(nullptr); }

  Bootstrap bootstrap{2, 0};
  std::unique_ptr<LocalRank> process;
  MessageSocket peer;  ///< the rank's end of its control connection
};

TEST_F(RankFaults, a_rank_is_stopped_in_its_iteration_and_goes_on_after_the_duration) {
  plan(RankFaultKind::kSigstop, 3);
  start();
  run(3);
  tick();
  EXPECT_FALSE(begun());
  EXPECT_FALSE(driver->pausing());
  begin(0, 3);
  tick();
  EXPECT_TRUE(driver->pausing());
  EXPECT_TRUE(becomes('T'));
  EXPECT_EQ(driver->firings()[0].triggered_ns, now);
  const uint64_t t0 = driver->firings()[0].t0_ns;
  EXPECT_NEAR(double(t0), double(r2ccl::now_ns()), 60e9);
  now = t0 + 2 * kHourNs - 1;
  tick();
  EXPECT_TRUE(driver->pausing());
  EXPECT_EQ(driver->firings()[0].healed_ns, 0u);
  tick(1);
  EXPECT_FALSE(driver->pausing());
  EXPECT_GE(driver->firings()[0].healed_ns, t0);
  EXPECT_TRUE(becomes('S'));
  EXPECT_EQ(driver->gave_up(), "") << "a pause of our own is not the job's standstill";
  EXPECT_EQ(notes, std::vector<std::string>{"fault: node1/rank0 sigstop"});
}

TEST_F(RankFaults, a_time_counts_from_the_first_iteration) {
  plan(RankFaultKind::kSigstop, {}, 500ms);
  start();
  tick(5 * kHourNs);
  EXPECT_FALSE(begun()) << "nothing has begun";
  begin(1, 0);
  tick(500 * kNsPerMs - 1);
  EXPECT_FALSE(begun());
  tick(1);
  EXPECT_TRUE(begun());
}

TEST_F(RankFaults, a_killed_rank_is_dead_and_nobody_waits_for_it) {
  plan(RankFaultKind::kKill, 0);
  start();
  begin(0, 0);
  tick();
  ASSERT_TRUE(eventually([&] { return ranks[1].ended().has_value(); }));
  EXPECT_EQ(WTERMSIG(*ranks[1].ended()), SIGKILL);
  EXPECT_NE(driver->firings()[0].t0_ns, 0u);
  EXPECT_FALSE(driver->pausing());
  settle();
  EXPECT_TRUE(driver->done());
}

TEST_F(RankFaults, a_receiver_knows_beforehand_in_which_iteration_it_will_sleep) {
  plan(RankFaultKind::kReceiverSleep, 3);
  start();
  EXPECT_EQ(received(), nlohmann::json({{"type", "sleep"}, {"ns", int64_t(2 * kHourNs)}, {"at", 3}}));
  run(4);
  tick();
  EXPECT_TRUE(driver->pausing());
  EXPECT_EQ(received(), nullptr) << "told once";
  EXPECT_EQ(driver->firings()[0].t0_ns, 0u) << "it alone knows when it fell asleep";
  peer.send({{"type", "slept"}, {"from_ns", now + 10}, {"to_ns", now + 20}});
  ASSERT_TRUE(eventually([&] { return ranks[1].poll() > 0; }));
  tick(30);
  EXPECT_FALSE(driver->pausing());
  EXPECT_EQ(driver->firings()[0].t0_ns, now - 20);
  EXPECT_EQ(driver->firings()[0].healed_ns, now - 10);
}

TEST_F(RankFaults, a_receiver_that_sleeps_at_a_time_is_told_then) {
  plan(RankFaultKind::kReceiverSleep, {}, 500ms);
  start();
  begin(0, 0);
  tick();
  EXPECT_EQ(received(), nullptr);
  tick(500 * kNsPerMs);
  EXPECT_EQ(received(), nlohmann::json({{"type", "sleep"}, {"ns", int64_t(2 * kHourNs)}}));
  tick(1);
  EXPECT_EQ(received(), nullptr) << "told once";
}

TEST_F(RankFaults, later_rounds_come_two_iterations_on_and_carry_no_nic) {
  plan(RankFaultKind::kSigstop, 3);
  start(2);
  run(4);
  tick();
  now = driver->firings()[0].t0_ns + 2 * kHourNs;
  tick();
  settle(), tick(), be_steady();  // no NIC was struck: there is none to wait for
  ASSERT_EQ(driver->firings().size(), 2u);
  run(2);
  tick();
  EXPECT_FALSE(begun(1));
  begin(0, next);
  tick();
  EXPECT_TRUE(begun(1));
}

TEST_F(RankFaults, later_rounds_come_at_a_random_moment_of_an_operation) {
  plan(RankFaultKind::kSigstop, {}, 500ms);
  start(2);
  run(6);
  tick();
  now = driver->firings()[0].t0_ns + 2 * kHourNs;
  tick();
  settle(), tick(), be_steady();
  ASSERT_EQ(driver->firings().size(), 2u);
  tick(1);
  EXPECT_FALSE(begun(1)) << "500 ms after the first iteration is long ago";
  tick(60 * kNsPerMs);
  EXPECT_TRUE(begun(1));
}

TEST_F(RankFaults, a_job_that_is_to_end_finds_no_rank_stopped) {
  plan(RankFaultKind::kSigstop, 0);
  start();
  begin(0, 0);
  tick();
  ASSERT_TRUE(becomes('T'));
  driver->release();
  EXPECT_TRUE(becomes('S'));
  EXPECT_FALSE(driver->pausing());
}

TEST_F(RankFaults, after_giving_up_a_stopped_rank_still_wakes_and_no_other_is_struck) {
  scenario.faults = {on("never")};
  plan(RankFaultKind::kSigstop, 0);
  plan(RankFaultKind::kSigstop, 30);
  start();
  run(21);
  tick();
  ASSERT_TRUE(driver->done());
  EXPECT_TRUE(becomes('T'));
  run(10);
  tick();
  EXPECT_FALSE(begun(2));
  now = driver->firings()[1].t0_ns + 2 * kHourNs;
  tick();
  EXPECT_TRUE(becomes('S'));
  EXPECT_FALSE(driver->pausing());
}

TEST_F(RankFaults, after_giving_up_a_sleep_that_was_announced_is_still_a_pause_of_our_own) {
  scenario.faults = {on("never")};
  plan(RankFaultKind::kReceiverSleep, 30);
  start();
  run(21);
  tick();
  ASSERT_TRUE(driver->done());
  EXPECT_FALSE(driver->pausing());
  run(10);
  tick();
  EXPECT_TRUE(driver->pausing());
}

}  // namespace
}  // namespace r2bench
