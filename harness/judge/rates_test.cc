// SPDX-License-Identifier: Apache-2.0
// The rate before a fault, behind it, and once everything is repaired.
#include "harness/judge/metric.h"
#include "harness/judge/pool.h"
#include "harness/judge/testing/evaluate_fixture.h"

namespace r2bench {
namespace {

using Evaluate = EvaluateTest;

TEST_F(Evaluate, the_retained_rate_stands_beside_its_limit) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  strike(1555);
  const Throughput t = result().throughput;
  EXPECT_TRUE(t.settled());
  EXPECT_EQ(t.rounds * 100 + t.rounds_measured * 10 + t.rounds_settled, 111u);
  EXPECT_DOUBLE_EQ(t.bound_ms, 800) << "four W";
  EXPECT_DOUBLE_EQ(t.ports_gbps, 4) << "two nodes with two ports of 1 Gbit/s";
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 1);
  EXPECT_DOUBLE_EQ(t.retained, 0.5);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

TEST_F(Evaluate, rounds_are_averaged_as_ratios) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3100);  // 2 -> 1 Gbit/s
  strike(1555).healed_ns = at(3100);
  run(3100, 3600, 100, 5);
  lose_nic0(3600, 5200, 5, 5);  // 4 -> 4 Gbit/s
  strike(3655, 0, 1).before_from_ns = at(3100);
  const Throughput t = result().throughput;
  EXPECT_DOUBLE_EQ(t.retained, (0.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(t.before_gbps, 3);
  EXPECT_DOUBLE_EQ(t.after_gbps, 2.5);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

class AfterFailback : public EvaluateTest {
 protected:
  AfterFailback() {
    run(0, 1500, 100, 10);
    lose_nic0(1500, 2700);
    strike(1555).healed_ns = at(2100);
    said(EventType::kMigrationStarted, 1560, 1);
    said(EventType::kMigrationDone, 1590, 2);
    said(EventType::kMigrationStarted, 2680, 2);
    said(EventType::kMigrationDone, 2690, 3);
    said(EventType::kFailback, 2695, 0);
  }
  using EventType = r2ccl::trace::EventType;
  void said(EventType type, double ms, uint64_t path) {
    r2ccl::trace::Event event{};
    event.type = type;
    event.time_ns = at(ms);
    event.b = event.c = path;
    job.trace.push_back({1, event});
  }
};

TEST_F(AfterFailback, the_rate_is_held_against_the_rate_before_the_first_fault) {
  run(2700, 4700, 100, 10);
  const Restored restored = result().restored;
  ASSERT_TRUE(restored.ratio) << restored.why_not;
  EXPECT_DOUBLE_EQ(*restored.ratio, 1);
  EXPECT_EQ(restored.operations_before, 15u);
  EXPECT_EQ(restored.operations_after, 20u);
}

TEST_F(AfterFailback, a_job_that_stays_slow_shows) {
  run(2700, 4700, 200, 20);
  EXPECT_DOUBLE_EQ(result().restored.ratio.value_or(0), 0.5);
}

TEST_F(AfterFailback, a_nic_that_never_comes_back_leaves_nothing_to_compare) {
  run(2700, 4700, 200, 20);
  job.trace.resize(2);
  EXPECT_EQ(result().restored.why_not, "1 ends of channels were not home again");
  job.firings[0].healed_ns = 0;
  EXPECT_EQ(result().restored.why_not, "the fault was still there when the job ended");
  EXPECT_FALSE(result().restored.ratio);
}

TEST_F(AfterFailback, what_is_over_with_its_strike_needs_no_heal) {
  run(2700, 4700, 100, 10);
  job.firings[0].healed_ns = 0;
  for (const char* kind : {"qp_error", "ack_lost", "completion_error"}) {
    scenario.faults = {fault(kind)};
    EXPECT_TRUE(result().restored.ratio) << kind << ": " << result().restored.why_not;
  }
  scenario.faults[0].count = faultinject::FaultSpec::kAll;
  EXPECT_FALSE(result().restored.ratio) << "it strikes until it is healed";
}

TEST_F(AfterFailback, a_channel_that_stays_away_for_longer_than_the_bound_is_late) {
  run(2700, 2100 + 5000 + 3000, 200, 20);  // five seconds from the heal, and some more
  job.trace.resize(2);
  const Restored restored = result().restored;
  EXPECT_EQ(restored.rounds, 1u);
  EXPECT_EQ(restored.rounds_home, 0u);
  EXPECT_EQ(restored.rounds_late, 1u);
  EXPECT_DOUBLE_EQ(restored.ratio.value_or(0), 0.5);
}

TEST_F(AfterFailback, a_round_whose_channels_did_not_come_home_is_not_left_out) {
  run(2700, 4700, 100, 10);
  strike(4755, 0, 1).healed_ns = at(4900);
  said(EventType::kMigrationStarted, 4760, 1);
  said(EventType::kMigrationDone, 4790, 2);
  run(4700, 5500, 200, 20);
  const Restored restored = result().restored;
  EXPECT_EQ(restored.rounds, 2u);
  EXPECT_EQ(restored.rounds_home, 1u);
  EXPECT_EQ(restored.rounds_late, 0u) << "the job ended 600 ms behind the heal";
  EXPECT_EQ(restored.why_not, "round 2: 1 ends of channels were not home again");
}

TEST_F(AfterFailback, nothing_counts_before_the_last_fault_is_healed) {
  run(2700, 4700, 100, 10);
  strike(2900).healed_ns = at(3800);
  EXPECT_EQ(result().restored.why_not, "only 9 operations once everything was repaired; 10 are wanted");
}

TEST_F(AfterFailback, the_round_that_stays_slow_counts) {
  for (size_t slow : {0, 1, 2}) {
    job.record = {};
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    job.firings.clear();
    run(0, 1500, 100, 10);
    lose_nic0(1500, 2700);
    strike(1555).healed_ns = at(2100);
    double now = 2700;
    for (size_t round : {0, 1, 2}) {
      if (round > 0) {
        operation(now, now + 700);
        strike(now + 1, 0, round).healed_ns = at(now + 600);
        now += 700;
      }
      const double length = round == slow ? 200 : 100;
      run(now, now + 11 * length, length, length / 10);
      now += 11 * length;
    }
    const Restored restored = result().restored;
    EXPECT_DOUBLE_EQ(restored.ratio.value_or(0), 0.5)
        << "round " << slow + 1 << " of 3: " << restored.why_not;
    EXPECT_DOUBLE_EQ(restored.after_ms, 200);
    EXPECT_EQ(restored.operations_after, 11u) << "of that round";
    EXPECT_EQ(restored.rounds_home, 3u);
    EXPECT_EQ(restored.why_not, "");
  }
}

TEST_F(AfterFailback, a_round_of_few_operations_is_missing) {
  run(2700, 3300, 100, 10);
  strike(3300, 0, 1);
  operation(3300, 4000);
  EXPECT_EQ(result().restored.why_not,
            "round 1: only 6 operations once everything was repaired; 10 are wanted");
  EXPECT_FALSE(result().restored.ratio);
  job.firings[1].healed_ns = at(3500);
  run(4000, 5100, 100, 10);
  const Restored restored = result().restored;
  EXPECT_DOUBLE_EQ(restored.ratio.value_or(0), 1) << "that of round 2";
  EXPECT_EQ(restored.operations_after, 11u);
  EXPECT_EQ(restored.why_not, "round 1: only 6 operations once everything was repaired; 10 are wanted");
}

TEST_F(AfterFailback, a_round_that_had_not_healed_when_the_job_ended_is_told) {
  run(2700, 4700, 100, 10);
  strike(4755, 0, 1);
  run(4700, 5500, 200, 20);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.restored.rounds, 1u);
  const Value value = metric_of("restored")->value({scenario, {}, evaluated});
  EXPECT_DOUBLE_EQ(value.number.value_or(0), 1) << value.text;
  EXPECT_NE(value.text.find("1 more round had not healed: the fault was still there when the job ended"),
            std::string::npos)
      << value.text;
  const ModeResult both = pool({&evaluated, &evaluated});
  EXPECT_NE(metric_of("restored")->value({scenario, {}, both}).text.find("2 more rounds had not healed"),
            std::string::npos);
  job.firings[0].healed_ns = 0;
  const Value none = metric_of("restored")->value({scenario, {}, result()});
  EXPECT_FALSE(none.number);
  EXPECT_EQ(none.text, "the fault was still there when the job ended");
}

TEST_F(Evaluate, of_a_round_the_last_fault_in_time_counts_wherever_the_scenario_lists_it) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  run(2300, 7900, 400, 40, 1);
  const auto down = fault("port_down"), throttle = fault("throttle", "node1/nic1", kGbit / 2);
  for (size_t first : {0, 1}) {
    scenario.faults = first == 0 ? std::vector{down, throttle} : std::vector{throttle, down};
    job.firings.clear();
    strike(first == 0 ? 1555 : 2255, 0);
    strike(first == 0 ? 2255 : 1555, 1);
    const Throughput t = result().throughput;
    EXPECT_DOUBLE_EQ(t.limit, 0.25) << "both channels on a NIC of half the rate";
    EXPECT_DOUBLE_EQ(t.retained, 0.25);
  }
}

TEST_F(Evaluate, a_nic_that_became_slow_between_two_operations_is_no_sample_but_its_rate_counts) {
  run(1000, 1500, 100, 10);
  run(1600, 5600, 200, 20);
  scenario.faults = {fault("throttle", "node1/nic0", kGbit / 2), fault("port_down")};
  strike(1550);
  const ModeResult slow = result();
  EXPECT_EQ(slow.faults[0].why_not_sampled, "no operation was open");
  EXPECT_EQ(slow.faults_sampled, 0u);
  EXPECT_TRUE(slow.throughput.settled());
  EXPECT_DOUBLE_EQ(slow.throughput.retained, 0.5);
  EXPECT_DOUBLE_EQ(slow.throughput.limit, 0.5);
  job.firings.clear();
  strike(1550, 1);
  const Throughput lost = result().throughput;
  EXPECT_EQ(lost.rounds_measured, 1u) << "the window does not ask what was in flight";
  EXPECT_DOUBLE_EQ(lost.retained, 0.5);
}

TEST_F(Evaluate, a_rate_that_does_not_come_back_is_measured_where_it_should_have_been_back) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 3000);
  strike(1555);
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds_measured, 1u);
  EXPECT_EQ(t.rounds_settled, 0u);
  EXPECT_FALSE(t.settled());
  EXPECT_NEAR(t.retained, 0.25, 0.01) << "one of two streams, at half its rate";
  EXPECT_DOUBLE_EQ(t.worst_unsettled, t.retained);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

TEST_F(Evaluate, a_rate_that_comes_back_after_the_window_has_begun_has_not_settled) {
  run(1000, 1500, 100, 10);
  operation(1500, 2700);
  deliver(0, 1500, 1550, 10, 0);
  deliver(1, 1500, 1550, 10, 1);
  job.record.fences.push_back({at(1560), 1, 0, 0u, "completion"});
  deliver(1, 2500, 2700, 20, 1);  // 945 ms after the strike; the window begins after 800 ms
  deliver(0, 2500, 2700, 20, 1);
  run(2700, 5500, 200, 20, 1);
  strike(1555);
  const ModeResult evaluated = result();
  EXPECT_NEAR(evaluated.recover_ms.max, 965, 25);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 1u);
  EXPECT_EQ(evaluated.throughput.rounds_settled, 0u);
}

TEST_F(Evaluate, a_rate_that_was_back_and_fell_again_is_that_of_the_fixed_window) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  run(2300, 5500, 400, 40, 1);  // from 745 ms after the strike on; the window begins after 800 ms
  strike(1555);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 35);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 1u);
  EXPECT_DOUBLE_EQ(evaluated.throughput.retained, 0.25) << "not the mean from the recovery on";
}

// The operation that is open when the window ends carries nothing more.
TEST_F(Evaluate, a_stall_that_lasts_until_the_heal_is_not_left_out) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  operation(3500, 5700);
  strike(1555).healed_ns = at(5500);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 35);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 1u);
  EXPECT_NEAR(evaluated.throughput.retained, 0.5 * 1000 / 3000, 0.001)
      << "five operations from 2500 to 3500, and nothing until 5500";
}

TEST_F(Evaluate, a_stall_that_begins_before_the_window_is_not_left_out) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  operation(2300, 3300);
  run(3300, 4300, 200, 20, 1);
  strike(1555).healed_ns = at(4300);
  EXPECT_NEAR(result().throughput.retained, 0.5 * 1000 / 1945, 0.001)
      << "nothing from 2355 to 3300, five operations until 4300";
}

TEST_F(Evaluate, a_round_that_is_too_short_for_its_window_is_counted_and_says_why) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  strike(1555);
  strike(3455, 0, 1).before_from_ns = at(1600);
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds, 2u);
  EXPECT_EQ(t.rounds_measured, 1u) << "the first";
  EXPECT_EQ(t.why_not, "round 2: the job ended 45 ms after the last fault, and 2400 ms are wanted");
  EXPECT_FALSE(t.settled());
}

TEST_F(Evaluate, without_a_round_that_was_measured_only_the_rate_before_the_first_fault_is_known) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 2000);
  strike(1555);
  strike(0, 0, 1);  // never seen, so it ends nothing
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds, 1u);
  EXPECT_EQ(t.rounds_measured, 0u);
  EXPECT_DOUBLE_EQ(t.limit, 0.5) << "which is known";
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 0);
  EXPECT_DOUBLE_EQ(t.retained, 0);
}

}  // namespace
}  // namespace r2bench
