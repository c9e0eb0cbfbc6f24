// SPDX-License-Identifier: Apache-2.0
// When the driver arms and fires what the scenario plans, and how it goes from one round to the next. Signals
// and sleeps of ranks are in rank_faults_test.cc.
#include <set>

#include "harness/run/testing/fault_driver_fixture.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

// --- triggers ----------------------------------------------------------------------------------------------

TEST_F(FaultDriverTest, without_faults_there_is_nothing_to_do) {
  EXPECT_TRUE(start(3).done());
  EXPECT_TRUE(driver->firings().empty());
  EXPECT_EQ(board.armed(), 0u);
}

TEST_F(FaultDriverTest, a_time_counts_from_the_moment_at_which_all_ranks_were_warm) {
  scenario.faults = {at_time(3h)};
  shared().start_ns = 1;  // long ago
  start();
  const uint64_t warm = shared().start_ns;
  ASSERT_GT(warm, 1u);
  bool changed = false;
  faultinject::advance(shared(), warm + 3 * kHourNs - 1, changed);
  EXPECT_FALSE(fired(1));
  faultinject::advance(shared(), warm + 3 * kHourNs, changed);
  EXPECT_TRUE(fired(1));
}

TEST_F(FaultDriverTest, an_iteration_strikes_once_every_rank_is_in_it_and_within_its_first_60_percent) {
  scenario.faults = {on("iteration", 3)};
  start();
  run(3);
  begin(0, 3);
  tick();
  EXPECT_EQ(board.armed(), 0u) << "rank 1 still verifies";
  begin(1, 3);
  tick();
  ASSERT_EQ(board.armed(), 1u);
  EXPECT_EQ(board.spec(1).trigger.kind, Trigger::Kind::kManual);
  EXPECT_EQ(driver->firings()[0].armed_ns, now);
  tick(60 * kNsPerMs);
  EXPECT_TRUE(fired(1));
}

TEST_F(FaultDriverTest, the_moment_within_the_iteration_comes_from_the_seed) {
  scenario.workload.iters = 1000;
  const auto moment = [&](uint64_t seed) {
    scenario.faults = {on("iteration", next + 1)};
    start(1, seed);
    run(1);
    begin(0, next), begin(1, next);
    const uint64_t first = now;
    tick();
    while (!fired(board.armed()) && now < first + kOperationNs) tick(kNsPerMs / 4);
    const uint64_t fired_after = now - first;
    now = first + kOperationNs;
    end(0, next), end(1, next);
    ++next;
    return fired_after;
  };
  std::set<uint64_t> moments;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    moments.insert(moment(seed));
    EXPECT_TRUE(moments.count(moment(seed))) << "the same seed, the same moment";
  }
  EXPECT_GT(moments.size(), 7u);
  EXPECT_LE(*moments.rbegin(), 60 * kNsPerMs);
  EXPECT_GT(*moments.rbegin(), 30 * kNsPerMs) << "some of the second half";
}

TEST_F(FaultDriverTest, what_is_over_within_a_tick_or_two_is_left_to_the_injectors_own_trigger) {
  scenario.faults = {on("iteration", 10)};
  start();
  run(6, 5 * kNsPerMs);
  tick();
  EXPECT_EQ(board.armed(), 0u) << "operations may become longer until then";
  run(1, 5 * kNsPerMs);
  tick();
  ASSERT_EQ(board.armed(), 1u);
  EXPECT_EQ(board.spec(1).trigger.event, "iteration");
  EXPECT_EQ(board.spec(1).trigger.value, 10u);
}

TEST_F(FaultDriverTest, a_phase_of_the_scenarios_own_stands) {
  scenario.faults = {on("iteration", 10)};
  scenario.faults[0].trigger.phase_up_to = 20ms;
  start();
  run(7);
  tick();
  ASSERT_EQ(board.armed(), 1u);
  EXPECT_EQ(board.spec(1).trigger.kind, Trigger::Kind::kEvent);
  EXPECT_EQ(board.spec(1).trigger.phase_up_to, 20ms);
}

// Without `every` each repetition waits for the trigger, which a later iteration meets again.
TEST_F(FaultDriverTest, a_fault_that_repeats_with_later_iterations_keeps_its_trigger) {
  for (const auto every : {0ms, 2000ms}) {
    scenario.faults = {on("iteration", 10)};
    scenario.faults[0].repeat = 3;
    scenario.faults[0].every = every;
    const uint32_t id = board.armed() + 1;
    start();
    run(12);
    tick();
    ASSERT_EQ(board.armed(), id);
    EXPECT_EQ(board.spec(id).trigger.kind == Trigger::Kind::kEvent, every == 0ms);
    EXPECT_EQ(board.spec(id).repeat, 3u);
    if (every == 0ms) {
      board.event("iteration", 13);
      EXPECT_TRUE(fired(id));
    }
  }
}

TEST_F(FaultDriverTest, a_fault_upon_another_waits_for_its_event_in_every_round) {
  scenario.faults = {fault(Trigger::Kind::kManual), on("migration_started")};
  start(2);
  board.event("migration_started", 0);
  EXPECT_TRUE(fired(2));
  strike(1);
  EXPECT_EQ(phase(), "armed") << "the second has not taken effect yet";
  take_effect(2);
  tick();
  EXPECT_EQ(phase(), "fault");
  settle(), carry_again(), be_steady();
  ASSERT_EQ(board.armed(), 4u);
  EXPECT_FALSE(fired(4)) << "that was the first round's event";
  board.event("migration_started", 0);
  EXPECT_TRUE(fired(4));
}

TEST_F(FaultDriverTest, the_number_of_another_event_is_no_iteration) {
  scenario.faults = {on("nic_down", 2)};
  start();
  ASSERT_EQ(board.armed(), 1u) << "it waits for no iteration";
  EXPECT_EQ(board.spec(1).trigger.value, 2u);
}

// --- rounds ------------------------------------------------------------------------------------------------

class Rounds : public FaultDriverTest {
 protected:
  Rounds() { scenario.faults = {fault(Trigger::Kind::kNow)}; }
  void begin_settling(size_t repeats = 3) {
    start(repeats);
    run(3);
    strike(1);
    ASSERT_EQ(phase(), "fault");
  }
  bool healed(uint32_t id) { return board.state(id).healed_ns != 0; }
};

TEST_F(Rounds, a_fault_stays_for_eight_operations_and_300_ms_of_them) {
  begin_settling();
  tick(300 * kNsPerMs);
  EXPECT_FALSE(healed(1)) << "no operation has ended";
  run(7, kNsPerMs);
  tick();
  EXPECT_FALSE(healed(1)) << "seven have";
  run(1, kNsPerMs);
  tick();
  EXPECT_FALSE(healed(1)) << "eight have, but an operation was open for 8 ms only";
  run(3, 97 * kNsPerMs);
  tick();
  EXPECT_FALSE(healed(1)) << "299 ms";
  run(1, kNsPerMs);
  tick();
  EXPECT_TRUE(healed(1));
  EXPECT_EQ(notes, (std::vector<std::string>{"fault: node1/nic0 port_down", "healed: round 1"}));
}

TEST_F(Rounds, the_next_round_waits_until_the_target_carries_traffic_again) {
  begin_settling();
  carry(0, 10);  // before it was healed
  settle();
  ASSERT_EQ(phase(), "healing");
  now += 1;
  carry(1, 10);  // another NIC
  carry(0, 3);
  tick();
  EXPECT_EQ(phase(), "healing");
  carry(0, 1);
  tick();
  EXPECT_EQ(phase(), "running");
}

TEST_F(Rounds, a_nic_that_is_nobodys_home_is_not_waited_for) {
  scenario.faults = {fault(Trigger::Kind::kNow, "node1/nic1")};
  scenario.workload.channels = 1;
  begin_settling();
  settle();
  tick();
  EXPECT_EQ(phase(), "running");
}

TEST_F(Rounds, the_next_round_waits_until_every_channel_is_home) {
  begin_settling();
  settle();
  move_path(1, EventType::kMigrationDone, 7);
  carry_again();
  EXPECT_EQ(phase(), "healing") << "the target carries, and a channel is away";
  move_path(1, EventType::kFailback, 0);
  tick();
  EXPECT_EQ(phase(), "running");
}

TEST_F(Rounds, a_channel_that_does_not_come_home_is_waited_for_so_long_and_no_longer) {
  begin_settling();
  settle();
  move_path(1, EventType::kMigrationDone, 7);
  carry_again();
  EXPECT_EQ(phase(), "healing");
  run(1);
  carry_again();
  tick(16'000 * kNsPerMs);
  EXPECT_EQ(phase(), "running");
}

TEST_F(Rounds, before_the_next_fault_the_job_runs_undisturbed_for_250_ms_and_twelve_operations) {
  begin_settling();
  settle(), carry_again();
  const uint64_t steady = now;
  run(11);
  tick(100 * kNsPerMs);
  EXPECT_EQ(driver->firings().size(), 1u) << "eleven operations";
  run(1, kNsPerMs);
  tick();
  ASSERT_EQ(driver->firings().size(), 2u);
  EXPECT_EQ(driver->firings()[1].repetition, 1u);
  EXPECT_EQ(driver->firings()[1].before_from_ns, steady);
  EXPECT_EQ(driver->firings()[0].before_from_ns, 0u);
}

TEST_F(Rounds, where_twelve_operations_take_too_long_three_are_enough) {
  begin_settling();
  settle(), carry_again();
  run(3, 9'900 * kNsPerMs);
  tick();
  EXPECT_EQ(driver->firings().size(), 1u);
  tick(301 * kNsPerMs);
  EXPECT_EQ(driver->firings().size(), 2u);
  EXPECT_EQ(driver->gave_up(), "");
}

TEST_F(Rounds, two_operations_in_that_time_are_not_enough) {
  begin_settling();
  settle(), carry_again();
  run(2, 15'000 * kNsPerMs);
  tick(kNsPerMs);
  EXPECT_EQ(driver->firings().size(), 1u);
  EXPECT_EQ(driver->gave_up(), "the job stood still before round 2");
}

TEST_F(Rounds, twelve_short_operations_are_not_enough) {
  begin_settling();
  settle(), carry_again();
  run(12, kNsPerMs);
  tick(237 * kNsPerMs);
  EXPECT_EQ(board.armed(), 1u);
  tick(kNsPerMs);
  EXPECT_EQ(board.armed(), 2u);
}

TEST_F(Rounds, the_last_round_ends_without_healing) {
  begin_settling(1);
  settle();
  EXPECT_TRUE(driver->done());
  EXPECT_FALSE(healed(1));
  EXPECT_EQ(driver->gave_up(), "");
}

TEST_F(Rounds, where_faults_heal_by_themselves_the_last_round_lasts_until_everything_is_home) {
  scenario.faults[0].duration = 40s;
  begin_settling(2);
  for (uint32_t round = 1; round <= 2; ++round) {
    if (round == 2) strike(2);
    settle();
    now += 41s / 1ns;
    bool changed = false;
    faultinject::advance(shared(), now, changed);
    tick(400 * kNsPerMs);
    EXPECT_EQ(phase(), "healing") << "round " << round;
    carry_again();
    EXPECT_EQ(phase(), "running") << "round " << round;
    if (round == 1) be_steady();
  }
  run(11);
  tick(250 * kNsPerMs);
  EXPECT_FALSE(driver->done());
  run(1);
  tick();
  EXPECT_TRUE(driver->done());
  EXPECT_EQ(driver->gave_up(), "");
}

TEST_F(Rounds, what_heals_by_itself_is_waited_for_and_then_measured) {
  scenario.faults[0].duration = 40s;  // longer than a phase may last, but it is the scenario's own wish
  begin_settling();
  const uint64_t t0 = now;
  settle();
  tick(39s / 1ns - 400 * kNsPerMs);
  ASSERT_EQ(phase(), "fault");
  now = t0 + 40s / 1ns;
  bool changed = false;
  faultinject::advance(shared(), now, changed);
  ASSERT_TRUE(healed(1));
  tick(299 * kNsPerMs);
  EXPECT_EQ(phase(), "fault") << "299 ms after its end";
  tick(kNsPerMs);
  EXPECT_EQ(phase(), "healing");
  EXPECT_EQ(driver->firings()[0].healed_ns, t0 + 40s / 1ns);
}

TEST_F(Rounds, later_rounds_keep_the_distances_in_time) {
  scenario.faults = {at_time(200ms), at_time(700ms, "node1/nic1"), fault(Trigger::Kind::kNow, "node0/nic0")};
  start(2);
  run(3);
  for (uint32_t id : {1, 2, 3}) strike(id);
  settle(), carry_again(), be_steady();
  ASSERT_EQ(board.armed(), 6u);
  const uint64_t round = now;
  uint64_t moments[3] = {};
  for (int i = 0; i < 4000; ++i, tick(kNsPerMs / 4))
    for (uint32_t k = 0; k < 3; ++k)
      if (moments[k] == 0 && fired(4 + k)) moments[k] = now;
  EXPECT_EQ(moments[0] - moments[2], 200 * kNsPerMs);
  EXPECT_EQ(moments[1] - moments[2], 700 * kNsPerMs);
  EXPECT_GT(moments[2], round) << "at a random moment";
  EXPECT_LE(moments[2], round + 60 * kNsPerMs);
}

TEST_F(Rounds, later_rounds_keep_the_distances_in_iterations) {
  scenario.faults = {on("iteration", 3), on("iteration", 5)};
  start(2);
  run(6);
  tick();
  strike(1), strike(2);
  settle(), carry_again(), be_steady();
  const auto armed_in_next_iteration = [&] {
    begin(0, next), begin(1, next);
    tick();
    run(1);
    return board.armed() - 2;
  };
  EXPECT_EQ(armed_in_next_iteration(), 0u);
  EXPECT_EQ(armed_in_next_iteration(), 0u);
  EXPECT_EQ(armed_in_next_iteration(), 1u) << "the second from now";
  EXPECT_EQ(armed_in_next_iteration(), 1u);
  EXPECT_EQ(armed_in_next_iteration(), 2u) << "and two later";
}

TEST_F(Rounds, every_firing_of_all_rounds_is_kept) {
  begin_settling(2);
  settle(), carry_again(), be_steady();
  strike(2);
  settle();
  EXPECT_TRUE(driver->done());
  const auto firings = driver->firings();
  ASSERT_EQ(firings.size(), 2u);
  EXPECT_EQ(driver->repetition(), 1u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(firings[i].repetition, i);
    EXPECT_EQ(firings[i].nics, (std::vector<NicId>{{1, 0}}));
    EXPECT_GE(firings[i].t0_ns, firings[i].triggered_ns);
  }
  EXPECT_EQ(firings[0].healed_ns == 0, false);
  EXPECT_EQ(firings[1].healed_ns, 0u);
}

// --- giving up ---------------------------------------------------------------------------------------------

class GivesUp : public Rounds {
 protected:
  static constexpr uint64_t kBound = 30'000 * kNsPerMs;
  void expect_at(uint64_t later_ns, const std::string& why) {
    tick(later_ns);
    EXPECT_FALSE(driver->done());
    tick(1);
    EXPECT_TRUE(driver->done());
    EXPECT_EQ(driver->gave_up(), why);
    EXPECT_EQ(notes.back(), "gave_up: " + why);
  }
};

TEST_F(GivesUp, a_first_round_that_did_not_come_within_the_planned_iterations) {
  scenario.faults = {on("never")};
  start(2);
  run(20);
  tick(kBound + 1);
  EXPECT_FALSE(driver->done()) << "it may lie far ahead";
  run(1);
  tick();
  EXPECT_TRUE(driver->done());
  EXPECT_EQ(driver->gave_up(), "a fault had not struck by the last planned iteration");
}

TEST_F(GivesUp, a_later_fault_that_finds_nothing_to_strike) {
  begin_settling();
  settle(), carry_again(), be_steady();
  expect_at(kBound, "a fault of round 2 found nothing to strike");
}

TEST_F(GivesUp, a_job_that_does_not_go_on) {
  begin_settling();
  expect_at(kBound, "the job did not go on after round 1");
  EXPECT_FALSE(healed(1));
}

TEST_F(GivesUp, later_where_the_scenarios_time_passes_more_slowly) {
  scenario.timeouts.stall = std::chrono::seconds(15 * 64);
  begin_settling();
  tick(kBound + 1);
  EXPECT_FALSE(driver->done());
  expect_at(63 * kBound - 1, "the job did not go on after round 1");
}

TEST_F(GivesUp, a_target_that_carries_nothing_any_more) {
  begin_settling();
  settle();
  expect_at(kBound, "the target carried no traffic within 30 s of its healing in round 1");
}

TEST_F(GivesUp, a_job_that_stands_still_between_the_rounds) {
  begin_settling();
  settle(), carry_again();
  expect_at(kBound, "the job stood still before round 2");
  run(10), tick();
  EXPECT_EQ(board.armed(), 1u) << "it is over";
}

TEST(NicsOf, are_those_that_the_patterns_name) {
  Fabric fabric;
  fabric.nodes = 2;
  fabric.nics_per_node = 3;
  const auto nics = [&](const char* target) { return nics_of(faultinject::parse_target(target), fabric); };
  EXPECT_EQ(nics("node1/nic2"), (std::vector<NicId>{{1, 2}}));
  EXPECT_EQ(nics("*/nic[0-1]"), (std::vector<NicId>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(nics("node0/*"), (std::vector<NicId>{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(nics("node1/nic0/qp:3"), (std::vector<NicId>{{1, 0}})) << "a queue pair's NIC";
}

}  // namespace
}  // namespace r2bench
