// SPDX-License-Identifier: Apache-2.0
// Faults that repeat: rounds whose effects were not recorded, and rounds that come when the job ends.
#include "harness/judge/testing/several_faults_fixture.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

using faultinject::Effect;

// The effects of the third of four rounds were not recorded.
TEST_F(SeveralFaults, rounds_that_fired_without_a_record_are_counted) {
  repeat_port_down(10);
  go_on(1000, 6000);
  Firing& firing = strike(1505);
  firing.board_id = 7;
  firing.rounds = 4;
  firing.triggered_ns = at(1505);
  witness(7, 1505, Effect::kQpToErr, 0);
  witness(7, 2505, Effect::kQpToErr, 1);
  witness(7, 4505, Effect::kQpToErr, 3);
  const auto expect = [&](size_t fired, size_t seen, const char* why) {
    const ModeResult evaluated = result();
    EXPECT_EQ(evaluated.rounds_fired, fired) << why;
    EXPECT_EQ(evaluated.rounds_seen, seen) << why;
  };
  expect(4, 3, "one is missing");
  scenario.faults[0].every = std::chrono::milliseconds(1000);
  expect(4, 3, "one is missing");
  firing.rounds = 9;
  expect(5, 3, "those after 6005 ms came when the job had ended");
  job.outcome = Outcome::kError;
  expect(0, 0, "a job that a fault ended need not see later rounds");
  job.outcome = Outcome::kCancelled;
  expect(5, 3, "those before the job was cut short were due");
  job.outcome = Outcome::kOk;
  firing.rounds = 4;
  witness(7, 3505, Effect::kQpToErr, 2);
  expect(4, 4, "none is missing");
}

/// Without `every`: each round waits for the trigger again. Four rounds, the third struck at 3505 ms; the
/// last operation, of 100 ms, begins at 5900 ms.
class LastRound : public SeveralFaults {
 protected:
  LastRound() { repeat_port_down(10); }
  void four_rounds(double last_ms, std::vector<double> recorded = {1505, 2505, 3505}) {
    Firing& firing = strike(1505);
    firing.board_id = 7;
    firing.rounds = 4;
    firing.recent_ns = {at(1505), at(2505), at(3505), at(last_ms)};
    for (double t0 : recorded) {
      uint32_t round = 3;
      while (firing.recent_ns[round] > at(t0)) --round;
      witness(7, t0, Effect::kQpToErr, round);
    }
  }
  void expect_rounds(size_t fired, size_t seen, size_t at_end) {
    const ModeResult evaluated = result();
    EXPECT_EQ(evaluated.rounds_fired, fired);
    EXPECT_EQ(evaluated.rounds_seen, seen);
    EXPECT_EQ(evaluated.rounds_at_end, at_end);
    RunResult whole;
    scenario.modes = {mode};
    whole.modes = {evaluated};
    const std::vector<Doubt> doubts = judge(scenario, whole).doubts;
    EXPECT_EQ(std::any_of(doubts.begin(), doubts.end(),
                          [](const Doubt& doubt) { return doubt.kind == DoubtKind::kRoundsNotRecorded; }),
              seen < fired);
  }
};

TEST_F(LastRound, that_fires_when_the_job_has_ended_is_no_missing_one) {
  go_on(1000, 6000);
  four_rounds(6000.1);
  expect_rounds(3, 3, 1);
}

TEST_F(LastRound, that_finds_nothing_to_strike_in_the_last_operation_is_no_missing_one) {
  go_on(1000, 6000);
  four_rounds(5999);
  expect_rounds(3, 3, 1);
}

TEST_F(LastRound, that_strikes_in_the_last_operation_is_neither_missing_nor_without_an_effect) {
  go_on(1000, 6000);
  four_rounds(5950, {1505, 2505, 3505, 5951});
  expect_rounds(3, 3, 0);
  EXPECT_EQ(result().faults_witnessed, 4u);
}

TEST_F(LastRound, that_fires_before_the_last_operation_is_missing_if_it_has_no_record) {
  go_on(1000, 6000);
  four_rounds(5899);
  expect_rounds(4, 3, 0);
}

TEST_F(LastRound, is_missing_if_the_last_operation_stalled) {
  go_on(1000, 5900);
  operation(5900, 6200);
  four_rounds(5950);
  expect_rounds(4, 3, 0);
}

TEST_F(LastRound, of_a_job_that_was_cut_short_is_not_missing_if_its_operation_was_not_waited_for) {
  go_on(1000, 5900);
  operation(5900, 6900);
  four_rounds(6500);
  job.outcome = Outcome::kCancelled;
  expect_rounds(4, 3, 0);  // the operation had ended
  job.record.operations.back().complete = false;
  expect_rounds(3, 3, 1);
  job.outcome = Outcome::kOk;
  expect_rounds(4, 3, 0);
}

// A stalled last operation must not pass as a usual one because it is compared with itself.
TEST_F(LastRound, is_missing_if_the_last_of_one_or_two_operations_stalled) {
  operation(1000, 6000);
  four_rounds(4505);
  expect_rounds(4, 3, 0);
  job.record.operations.clear();
  operation(1000, 1100);
  operation(1100, 6000);
  expect_rounds(4, 3, 0);
}

// The record of the third round is lost, that of the last one stands in for no other.
TEST_F(LastRound, hides_no_missing_record_of_an_earlier_one) {
  go_on(1000, 6000);
  four_rounds(6000.1, {1505, 2505});
  expect_rounds(3, 2, 1);
}

TEST_F(LastRound, with_an_effect_hides_no_missing_record_of_an_earlier_one) {
  go_on(1000, 6000);
  four_rounds(6000.1, {1505, 2505, 6000.2});
  expect_rounds(3, 2, 0);
  scenario.faults[0].every = std::chrono::milliseconds(1498);  // the last one at 5999 ms
  job.witnesses.clear();
  witness(7, 1505, Effect::kQpToErr, 0);
  witness(7, 3003, Effect::kQpToErr, 1);
  witness(7, 5999.1, Effect::kQpToErr, 3);
  expect_rounds(3, 2, 0);
}

/// Two nodes. node1/nic0 is lost for 1500 ms twice, from 1555 ms and from 4555 ms on; and once more at
/// `last_ms`.
class LastStrike : public SeveralFaults {
 protected:
  LastStrike() {
    scenario.fabric.nodes = 2;
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    scenario.faults = {fault("port_down")};
    scenario.faults[0].repeat = 3;
    scenario.faults[0].duration = std::chrono::milliseconds(1500);
    run(300, 1500, 100, 10);
    lose_nic0(1500, 3100);
    run(3100, 4500, 100, 10);
    lose_nic0(4500, 6100);
    run(6100, 7900, 100, 10);
  }
  ModeResult struck_at(double last_ms) {
    Firing& firing = strike(1555);
    firing.board_id = 7;
    firing.rounds = 3;
    firing.recent_ns = {at(1555), at(4555), at(last_ms)};
    uint32_t round = 0;
    for (double t0 : {1555., 4555., last_ms}) witness(7, t0, Effect::kPortErrDelivered, round++);
    return result();
  }
  static void expect_first_two(const ModeResult& evaluated, const std::string& why_not_the_last) {
    ASSERT_EQ(evaluated.faults.size(), 3u);
    EXPECT_EQ(evaluated.faults_sampled, 2u);
    EXPECT_EQ(evaluated.faults_unrecovered, 0u);
    EXPECT_EQ(evaluated.faults[2].why_not_sampled, why_not_the_last);
    EXPECT_EQ(evaluated.throughput.rounds_measured, 1u) << evaluated.throughput.why_not;
    EXPECT_NEAR(evaluated.throughput.retained, 0.5, 0.02);
    EXPECT_NEAR(evaluated.restored.ratio.value_or(0), 1, 0.01) << evaluated.restored.why_not;
    EXPECT_EQ(evaluated.restored.rounds_home, 1u);
  }
};

TEST_F(LastStrike, of_a_job_that_has_ended_leaves_the_others_as_they_were_measured) {
  run(7900, 8000, 100, 10);
  expect_first_two(struck_at(8000.5), "the job's last operation had ended");
}

TEST_F(LastStrike, just_before_the_end_leaves_the_others_as_they_were_measured) {
  run(7900, 8000, 100, 10);
  expect_first_two(struck_at(7985), "the job ended before it could be measured");
}

TEST_F(LastStrike, that_stalls_the_last_operation_is_a_sample_and_leaves_the_retained_rate_unknown) {
  operation(7900, 9000);
  deliver(0, 7900, 7980, 10, 0);
  deliver(1, 7900, 9000, 20, 1);
  deliver(0, 8900, 9000, 10, 1);
  const ModeResult evaluated = struck_at(7985);
  EXPECT_EQ(evaluated.faults_sampled, 3u);
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  EXPECT_GT(evaluated.blackout_ms.max, 900);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 0u) << "it is the last strike";
  EXPECT_FALSE(evaluated.restored.ratio);
}

}  // namespace
}  // namespace r2bench
