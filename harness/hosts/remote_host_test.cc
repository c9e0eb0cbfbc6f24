// SPDX-License-Identifier: Apache-2.0
// The runner's end of a host whose agent falls silent, or whose clock cannot be relied on.
#include "harness/hosts/remote_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "harness/base/testing/eventually.h"
#include "harness/hosts/host_agent.h"
#include "harness/hosts/testing/fake_agent.h"
#include "harness/launch/rendezvous.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kSecret = "0123456789abcdef";

class RemoteHostTest : public testing::Test {
 protected:
  RemoteHostTest() {
    auto caller = rendezvous_.accept(10s);
    if (!caller) ADD_FAILURE() << "the agent has not called";
    host = std::make_unique<RemoteHost>(std::move(caller->link), caller->hello, 300ms);
  }
  ~RemoteHostTest() override { host.reset(); }
  HostPlan one_rank() const {
    HostPlan plan;
    plan.nodes = {0, 1, {}};
    plan.ranks.push_back({0, 0, "node0/rank0", "rank.sh", {}, {}, nullptr, "rank0.log"});
    return plan;
  }

  std::atomic<bool> silent{false}, said_quit{false};
  std::atomic<uint64_t> behind_ns{0};
  std::atomic<int> notes_before_settled{0};  ///< one each 100 ms
  std::atomic<std::chrono::milliseconds> release_takes{0ms};
  std::unique_ptr<RemoteHost> host;

 private:
  bool take(SecureLink& link, const json& message) {
    if (message.value("type", "") == "quit") {
      said_quit = true;
      return false;
    }
    if (message.value("type", "") == "release") std::this_thread::sleep_for(release_takes.load());
    if (message.value("type", "") == "settle")
      for (int i = 0; i < notes_before_settled; ++i) {
        std::this_thread::sleep_for(100ms);
        link.send({{"type", "note"}, {"time_ns", r2ccl::now_ns()}, {"name", "n"}, {"text", ""}});
      }
    if (!silent)
      FakeAgent::answer(link, message, r2ccl::now_ns() - behind_ns,
                        {{"evidence", "emulated"},
                         {"devices", json::array()},
                         {"environment", json::object()},
                         {"pids", {4711}},
                         {"time_ns", 0},
                         {"lost", 0},
                         {"witnesses", json::array()}});
    return true;
  }

  Rendezvous rendezvous_{kSecret};
  FakeAgent agent_{rendezvous_.port(), kSecret, agent_hello(0, 1),
                   [this](SecureLink& link, const json& message) { return take(link, message); }};
};

TEST_F(RemoteHostTest, one_that_does_not_tell_the_rest_of_its_record_is_gone) {
  host->settle();
  EXPECT_FALSE(host->failure());
  silent = true;
  host->settle();
  ASSERT_TRUE(host->failure());
  EXPECT_NE(host->failure()->find("it did not answer 'settle' within 300 ms"), std::string::npos)
      << *host->failure();
  EXPECT_TRUE(eventually([&] { return said_quit.load(); })) << "should it come to itself";
}

TEST_F(RemoteHostTest, one_that_is_silent_while_a_job_runs_is_gone) {
  const auto tick_for = [&](std::chrono::milliseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time;
         !host->failure() && std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(2ms))
      host->tick();
  };
  tick_for(1s);
  EXPECT_FALSE(host->failure());
  silent = true;
  const uint64_t silent_ns = r2ccl::now_ns();
  tick_for(10s);
  ASSERT_TRUE(host->failure());
  EXPECT_NE(host->failure()->find("it was silent for 300 ms"), std::string::npos) << *host->failure();
  EXPECT_LT(host->heard_ns(), silent_ns + 200'000'000);
  EXPECT_TRUE(eventually([&] { return said_quit.load(); })) << "should it come to itself";
}

// The runner was stopped: what has come meanwhile has not been taken.
TEST_F(RemoteHostTest, a_pause_of_the_runner_is_nobodys_silence) {
  host->tick();
  std::this_thread::sleep_for(500ms);
  host->tick();
  EXPECT_FALSE(host->failure());
}

// A large record over a slow link.
TEST_F(RemoteHostTest, one_that_still_sends_may_take_longer_to_answer) {
  notes_before_settled = 10;
  host->settle();
  EXPECT_FALSE(host->failure());
  EXPECT_EQ(host->notes().size(), 10u);
}

// The memory of a GPU, for example, is not free at once.
TEST_F(RemoteHostTest, the_end_of_ranks_may_take_longer_than_an_answer) {
  host->prepare(one_rank());
  release_takes = 600ms;
  host->release();
  EXPECT_FALSE(host->failure());
}

TEST_F(RemoteHostTest, witnesses_that_nobody_tells_are_not_none) {
  host->prepare(one_rank());
  EXPECT_TRUE(host->board().witnesses().empty());
  EXPECT_FALSE(host->failure());
  silent = true;
  EXPECT_TRUE(host->board().witnesses().empty());
  EXPECT_TRUE(host->failure());
}

TEST_F(RemoteHostTest, a_signal_of_which_nobody_knows_has_no_time) {
  host->prepare(one_rank());
  EXPECT_EQ(host->rank(0).signal(SIGTERM), 0u) << "the agent says that the rank had ended";
  silent = true;
  EXPECT_EQ(host->rank(0).signal(SIGTERM), 0u);
}

TEST_F(RemoteHostTest, a_clock_that_stood_still_is_told_and_in_the_bound) {
  EXPECT_LT(host->facts().clock_bound_ms, 100);
  EXPECT_TRUE(host->notes().empty());
  behind_ns = 500'000'000;
  std::vector<HostNote> notes;
  EXPECT_TRUE(eventually([&] {
    host->tick();
    notes = host->notes();
    return !notes.empty();
  }));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].name, "clock_jumped");
  EXPECT_GT(host->facts().clock_bound_ms, 400);
  EXPECT_GT(host->facts().clock_beyond_ms, 400);
  host->prepare(one_rank());
  EXPECT_EQ(host->facts().clock_beyond_ms, 0) << "the next job has nothing to do with it";
  EXPECT_LT(host->facts().clock_bound_ms, 100);
}

}  // namespace
}  // namespace r2bench
