// SPDX-License-Identifier: Apache-2.0
// Faults before the first operation has ended, so that no rate before them is known: what counts of them.
#include "harness/judge/testing/evaluate_fixture.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

using Evaluate = EvaluateTest;

/// NIC 0 is lost 10 ms before the first operation, whose stream 0 is silent until its first segment on NIC 1.
class BeforeTheFirst : public EvaluateTest {
 protected:
  static constexpr const char* kWhy =
      "it struck before an operation had ended, so that no rate before it is known";
  void lose_early(double silent_ms, bool moves = true) {
    deliver(0, 900, 980, 10, 0);  // the warm-up
    deliver(1, 900, 980, 10, 1);
    strike(990);
    job.record.fences.push_back({at(995), 1, 0, 0u, "completion"});
    const double first_end = std::max(1200., 1100 + silent_ms);
    operation(1000, first_end);
    deliver(1, 1000, first_end, 20, 1);
    if (moves) deliver(0, 980 + silent_ms, first_end, 20, 1);
    for (double t = first_end; t < first_end + 2000; t += 200) operation(t, t + 200);
    deliver(1, first_end, first_end + 2000, 20, 1);
    if (moves) deliver(0, first_end, first_end + 2000, 20, 1);
  }
  /// What comes of each expectation, a line each.
  std::string judged(const std::vector<std::pair<std::string, std::string>>& expected) {
    scenario.modes = {mode};
    scenario.expectations.clear();
    for (const auto& [metric, wanted] : expected)
      scenario.expectations.push_back(
          {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)});
    RunResult whole;
    whole.modes = {result()};
    std::string text;
    for (const Judgement& each : judge(scenario, whole).expectations)
      if (!each.implied) text += each.metric + ": " + each.got + " -> " + name(each.verdict) + "\n";
    return text;
  }
};

TEST_F(BeforeTheFirst, without_a_rate_before_it_a_stall_is_a_sample_but_for_its_recovery) {
  for (const double silent_ms : {60., 120., 220.}) {
    job.record = {};
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    job.firings.clear();
    lose_early(silent_ms);
    job.record.fences[0].time_ns = at(970 + silent_ms);
    const ModeResult evaluated = result();
    const FaultSample& sample = evaluated.faults.at(0);
    EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
    EXPECT_EQ(sample.before_gbps, 0);
    EXPECT_EQ(sample.why_no_rate_before, kWhy);
    EXPECT_DOUBLE_EQ(sample.detect_ms.value_or(0), silent_ms - 20);
    EXPECT_DOUBLE_EQ(sample.blackout_ms.value_or(0), silent_ms) << "of the first operation";
    EXPECT_EQ(evaluated.detect_ms.n + evaluated.migrate_ms.n + evaluated.blackout_ms.n, 3u);
    EXPECT_TRUE(evaluated.faults_dropped.empty());
    EXPECT_EQ(evaluated.faults_sampled, 1u);
    EXPECT_EQ(evaluated.faults_unrecovered, 0u);
    EXPECT_EQ(evaluated.recover_ms.n, 0u);
    EXPECT_FALSE(sample.waited_ms);
    EXPECT_EQ(evaluated.throughput.rounds_measured, 0u);
    EXPECT_NE(evaluated.throughput.why_not, "");
  }
}

TEST_F(BeforeTheFirst, a_detection_that_took_too_long_is_a_failure_and_the_recovery_is_not_known) {
  lose_early(220);
  job.record.fences[0].time_ns = at(1190);
  EXPECT_EQ(judged({{"detect_ms.max", "<= 40 ms"}}), "detect_ms.max: 200 ms -> fail\n");
  EXPECT_EQ(judged({{"blackout_ms.max", "<= 90 ms"}}), "blackout_ms.max: 220 ms -> fail\n");
  EXPECT_EQ(
      judged({{"recover_ms.max", "<= floor + 100 ms"}}),
      "recover_ms.max: no sample: it struck before an operation had ended, so that no rate before it is "
      "known -> unknown\n");
}

TEST_F(BeforeTheFirst, a_stall_beyond_the_bound_is_unrecovered_all_the_same) {
  lose_early(400);
  const ModeResult evaluated = result();
  EXPECT_TRUE(evaluated.faults.at(0).sampled) << evaluated.faults.at(0).why_not_sampled;
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  EXPECT_GE(evaluated.blackout_ms.max, 380);
}

TEST_F(BeforeTheFirst, a_stream_that_never_moves_is_unrecovered) {
  deliver(0, 900, 980, 10, 0);
  deliver(1, 900, 980, 10, 1);
  strike(990);
  operation(1000, 1230, false);  // shorter than the bound: what never moves needs none
  deliver(1, 1000, 1230, 20, 1);
  job.record.fences.push_back({at(995), 1, 0, 0u, "completion"});
  for (const Outcome outcome : {Outcome::kOk, Outcome::kHang}) {
    job.outcome = outcome;
    const ModeResult evaluated = result();
    EXPECT_TRUE(evaluated.faults.at(0).sampled) << evaluated.faults.at(0).why_not_sampled;
    EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  }
}

TEST_F(BeforeTheFirst, a_stream_that_goes_on_over_the_fenced_nic_has_not_left_it) {
  deliver(0, 900, 980, 10, 0);
  deliver(1, 900, 980, 10, 1);
  strike(990);
  job.record.fences.push_back({at(995), 1, 0, 0u, "completion"});
  run(1000, 3000, 100, 10);  // nobody moves, and nobody stalls for longer than W
  for (Delivery& d : job.record.deliveries)
    if (d.stream == 0 && d.time_ns > at(990) && d.time_ns <= at(1060)) d.stream = 1;
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults.at(0);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_FALSE(sample.migrated_ns);
  EXPECT_EQ(sample.why_no_rate_before, "");
  EXPECT_EQ(evaluated.faults_unrecovered, 1u) << "it was fenced, and did not migrate";
}

TEST_F(BeforeTheFirst, a_rate_that_is_missing_although_an_operation_had_ended_excuses_no_recovery) {
  lose_early(230);  // longer than W, which is that operation at half the rate
  operation(700, 800);
  job.firings[0].before_from_ns = at(985);  // nothing was delivered since then
  std::rotate(job.record.operations.begin(), job.record.operations.end() - 1, job.record.operations.end());
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults.at(0).before_gbps, 0);
  EXPECT_EQ(evaluated.faults.at(0).why_no_rate_before, "") << "an operation had ended";
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
}

TEST_F(BeforeTheFirst, a_stream_that_is_silent_when_the_job_is_cut_short_is_unrecovered) {
  deliver(0, 900, 980, 10, 0);
  deliver(1, 900, 980, 10, 1);
  strike(990);
  operation(1000, 1230, false);
  deliver(1, 1000, 1230, 20, 1);
  job.outcome = Outcome::kCancelled;
  const ModeResult evaluated = result();
  EXPECT_TRUE(evaluated.faults.at(0).sampled) << evaluated.faults.at(0).why_not_sampled;
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
}

/// The second of two faults comes long after the first operation, the first one before it.
class EarlyAndLate : public BeforeTheFirst {
 protected:
  EarlyAndLate() {
    scenario.faults.push_back(fault("port_down", "node1/nic1"));
    lose_early(60);  // up to 3200 ms
    run(3200, 4200, 100, 10);
    operation(4200, 4400);
    deliver(0, 4200, 4250, 10, 0);
    deliver(1, 4200, 4250, 10, 1);
    deliver(0, 4240, 4400, 20, 0);
    deliver(1, 4270, 4400, 20, 0);
    for (double t = 4400; t < 6400; t += 200) operation(t, t + 200);
    deliver(0, 4400, 6400, 20, 0);
    deliver(1, 4400, 6400, 20, 0);
    strike(4255, 1);
    job.record.fences.push_back({at(4260), 1, 1, 1u, "completion"});
  }
  void fail_back(double ms) {
    for (const auto type : {r2ccl::trace::EventType::kMigrationStarted,
                            r2ccl::trace::EventType::kMigrationDone, r2ccl::trace::EventType::kFailback}) {
      r2ccl::trace::Event event{};
      event.type = type;
      event.time_ns = type == r2ccl::trace::EventType::kFailback ? at(ms) : at(1000);
      event.b = 1;
      event.c = 2;
      job.trace.push_back({1, event});
    }
  }
};

TEST_F(EarlyAndLate, what_struck_before_a_rate_was_known_hides_no_later_fault) {
  job.firings[0].healed_ns = at(3100);
  fail_back(3150);
  const ModeResult evaluated = result();
  const FaultSample& late = evaluated.faults.at(1);
  EXPECT_EQ(evaluated.faults_sampled, 2u);
  EXPECT_EQ(late.why_no_rate_before, "");
  EXPECT_DOUBLE_EQ(late.before_gbps, 2) << "since the first one was healed and its channel home";
  EXPECT_DOUBLE_EQ(late.detect_ms.value_or(0), 5);
  EXPECT_DOUBLE_EQ(late.recover_ms.value_or(0), 35);
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 35);
  EXPECT_EQ(evaluated.recover_ms.n, 1u) << "the first one has none";
  EXPECT_NEAR(evaluated.throughput.retained, 0.5, 0.01);
}

TEST_F(EarlyAndLate, the_later_fault_has_no_rate_before_it_while_the_first_one_still_acts) {
  for (const double heal_ms : {0., 4100., 4230., 4300.}) {
    job.firings[0].healed_ns = at(heal_ms);
    const ModeResult evaluated = result();
    const FaultSample& late = evaluated.faults.at(1);
    EXPECT_EQ(evaluated.faults_sampled, 2u);
    EXPECT_DOUBLE_EQ(late.detect_ms.value_or(0), 5);
    EXPECT_TRUE(late.blackout_ms);
    EXPECT_EQ(late.why_no_rate_before,
              heal_ms == 4100 ? ""
                              : "an earlier fault struck before an operation had ended, so that no rate "
                                "before it is known");
    EXPECT_EQ(late.recover_ms.has_value(), heal_ms == 4100) << heal_ms;
    EXPECT_EQ(evaluated.faults_unrecovered, 0u);
  }
}

TEST_F(EarlyAndLate, a_channel_that_is_still_away_leaves_no_rate_before_the_later_fault) {
  job.firings[0].healed_ns = at(3100);
  fail_back(4190);
  EXPECT_NE(result().faults.at(1).why_no_rate_before, "") << "no whole operation since then";
  job.trace.pop_back();
  EXPECT_NE(result().faults.at(1).why_no_rate_before, "") << "it never came home";
}

TEST_F(BeforeTheFirst, what_took_nothing_is_no_sample) {
  scenario.faults = {fault("throttle", "node1/nic0", 2 * kGbit)};
  deliver(0, 900, 980, 10, 0);
  deliver(1, 900, 980, 10, 1);
  run(1000, 3000, 100, 10);
  strike(1015);
  EXPECT_EQ(result().faults.at(0).why_not_sampled, "it took nothing from its NIC");
  EXPECT_EQ(result().faults.at(0).why_no_rate_before, "");
}

TEST_F(BeforeTheFirst, a_job_that_did_not_go_on_hides_no_fault) {
  lose_early(60);
  job.outcome = Outcome::kHang;
  EXPECT_EQ(result().faults_unrecovered, 1u);
}

}  // namespace
}  // namespace r2bench
