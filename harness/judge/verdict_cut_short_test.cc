// SPDX-License-Identifier: Apache-2.0
// A run that was cut short: what is proven by then, and what may still come.
#include "harness/judge/fault_times.h"
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, what_comes_of_being_cut_short_is_told_from_other_doubts) {
  migrate().outcome = Outcome::kCancelled;
  result.cancelled = true;
  for (const Doubt& doubt : judge(scenario, result).doubts) EXPECT_EQ(doubt.kind, DoubtKind::kCutShort);
  EXPECT_EQ(of("migrate.recover_ms.max").doubt, DoubtKind::kCutShort);
  EXPECT_EQ(of("baseline.outcome").doubt, std::nullopt);
  migrate().throughput.rounds_measured = migrate().throughput.rounds_settled = 0;
  EXPECT_EQ(of("migrate.retained_bw").doubt, DoubtKind::kCutShort) << "a round may have come";
  migrate().witnesses_lost = 9;
  migrate().rounds_fired = 200;
  migrate().rounds_seen = 1;
  migrate().trace_lost = 3;
  std::string kinds;
  for (const Doubt& doubt : judge(scenario, result).doubts) kinds += name(doubt.kind) + std::string(" ");
  EXPECT_EQ(kinds, "trace_lost effects_not_recorded rounds_not_recorded cut_short cut_short ");
}

TEST_F(VerdictTest, what_a_whole_run_would_not_know_either_does_not_come_of_being_cut_short) {
  migrate().outcome = Outcome::kCancelled;
  result.cancelled = true;
  migrate().throughput.retained = 0.8;  // of a limit of 0.5
  EXPECT_EQ(of("migrate.retained_bw").doubt, DoubtKind::kProvesNothing);
  scenario.expectations = {{"migrate", "lost", "0", 0, 0, parse_condition(*find_metric("lost"), "0")}};
  scenario.workload.engine = Engine::kExec;  // which sees no messages
  EXPECT_EQ(of("migrate.lost").doubt, DoubtKind::kNoValue);
  migrate().correctness.checked_elements = 0;
  EXPECT_EQ(of("migrate.lost").doubt, DoubtKind::kCutShort) << "the rest may be compared";
  migrate().outcome = Outcome::kOk;
  EXPECT_EQ(of("migrate.lost").doubt, DoubtKind::kNoValue);
}

TEST_F(VerdictTest, a_run_that_was_cut_short_is_unknown) {
  result.cancelled = true;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  result.cancelled = false;
  result.modes.pop_back();
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, ctrl_c_does_not_erase_a_failure_that_is_proven) {
  baseline().outcome = Outcome::kOk;  // an error was expected of it, and it is through
  migrate().outcome = Outcome::kCancelled;
  result.cancelled = true;
  EXPECT_EQ(verdict(), Verdict::kFail);
  baseline().outcome = Outcome::kError;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  migrate().correctness.wrong_elements = 1;
  EXPECT_EQ(verdict(), Verdict::kFail);
}

/// A job that was cut short behind its first fault of two.
class CutShort : public VerdictTest {
 protected:
  CutShort() {
    migrate().outcome = Outcome::kCancelled;
    result.cancelled = true;
    result.repeats = 2;
  }
  /// One fault in each round; nullopt: the rate never came back.
  void recovered_after(const std::vector<std::optional<double>>& times) {
    const FaultSample first = migrate().faults[0];
    migrate().faults.assign(times.size(), first);
    migrate().faults_unrecovered = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      migrate().faults[i].repetition = i;
      migrate().faults[i].recover_ms = times[i];
      migrate().faults_unrecovered += !times[i];
    }
    migrate().faults_planned = migrate().faults_witnessed = migrate().faults_sampled = times.size();
    summarize_times(migrate());
  }
  /// Of mode migrate.
  Verdict of_metric(const std::string& metric, const std::string& wanted) {
    scenario.expectations = {
        {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)}};
    return of("migrate." + metric).verdict;
  }
  void recovered_after(double ms) {
    migrate().faults[0].recover_ms = ms;
    migrate().recover_ms = {1, ms, ms, ms, ms};
  }
  Verdict recovery() { return of("migrate.recover_ms.max").verdict; }
};

TEST_F(CutShort, a_largest_time_beyond_its_bound_is_a_failure_whatever_had_come) {
  EXPECT_EQ(recovery(), Verdict::kUnknown) << "12.3 ms: the next fault may take longer";
  recovered_after(1000);
  EXPECT_EQ(recovery(), Verdict::kFail);
  EXPECT_EQ(verdict(), Verdict::kFail);
  // 4.19 + 0.84 + 50 ms; the wake-up latency may still grow to its cap of 2 ms.
  recovered_after(56);
  EXPECT_EQ(recovery(), Verdict::kUnknown);
  recovered_after(56.2);
  EXPECT_EQ(recovery(), Verdict::kFail);
  migrate().clock_bound_ms = 0.5;
  EXPECT_EQ(recovery(), Verdict::kUnknown) << "the clocks of its hosts leave 0.5 ms open";
}

TEST_F(CutShort, of_lower_bounds_the_rest_decides) {
  recovered_after(1000);
  for (const char* name : {"recover_ms.p50", "recover_ms.p99", "recover_ms.max"})
    EXPECT_EQ(of_metric(name, ">= 2000 ms"), Verdict::kUnknown) << name;
}

TEST_F(CutShort, a_percentile_that_good_faults_cannot_mend_is_a_failure) {
  recovered_after({1000});
  EXPECT_EQ(of_metric("recover_ms.p99", "<= 50 ms"), Verdict::kFail) << "the largest of two";
  EXPECT_EQ(of_metric("recover_ms.p50", "<= 50 ms"), Verdict::kUnknown) << "the smaller of two";
  const auto with = [&](size_t over, size_t planned, const std::string& metric) {
    recovered_after(std::vector<std::optional<double>>(over, 1000));
    result.repeats = planned;
    return of_metric(metric, "<= 50 ms");
  };
  EXPECT_EQ(with(1, 99, "recover_ms.p99"), Verdict::kFail);
  EXPECT_EQ(with(1, 100, "recover_ms.p99"), Verdict::kUnknown);
  EXPECT_EQ(with(2, 199, "recover_ms.p99"), Verdict::kFail);
  EXPECT_EQ(with(2, 200, "recover_ms.p99"), Verdict::kUnknown);
  EXPECT_EQ(with(1, 19, "recover_ms.p95"), Verdict::kFail);
  EXPECT_EQ(with(1, 20, "recover_ms.p95"), Verdict::kUnknown);
  EXPECT_EQ(with(2, 3, "recover_ms.p50"), Verdict::kFail);
  EXPECT_EQ(with(2, 4, "recover_ms.p50"), Verdict::kUnknown);
  recovered_after({20, 1000, 30});
  result.repeats = 99;
  EXPECT_EQ(of_metric("recover_ms.p99", "<= 50 ms"), Verdict::kFail) << "good ones beside it";
  EXPECT_EQ(of_metric("recover_ms.p99", "<= 1000 ms"), Verdict::kUnknown);
  recovered_after({1000, std::nullopt});
  result.repeats = 199;
  migrate().faults[1].waited_ms = 66;  // the first good interval of 16.8 ms may have begun after 49.2 ms
  EXPECT_EQ(of_metric("recover_ms.p99", "<= 50 ms"), Verdict::kUnknown);
  migrate().faults[1].waited_ms = 67;
  EXPECT_EQ(of_metric("recover_ms.p99", "<= 50 ms"), Verdict::kFail) << "two of 199";
}

TEST_F(CutShort, a_percentile_is_held_against_the_largest_bound_that_each_fault_can_have) {
  recovered_after({20, 56});  // 4.19 + 50 ms, and the wake-up latency up to 2 ms
  EXPECT_EQ(of_metric("recover_ms.p99", "<= floor + wakeup + 50 ms"), Verdict::kUnknown);
  recovered_after({20, 56.2});
  EXPECT_EQ(of_metric("recover_ms.p99", "<= floor + wakeup + 50 ms"), Verdict::kFail);
  migrate().faults[1].floor_ms = 6;
  EXPECT_EQ(of_metric("recover_ms.p99", "<= floor + wakeup + 50 ms"), Verdict::kUnknown);
  migrate().faults[1].floor_ms = 4.19;
  migrate().clock_bound_ms = 0.5;
  EXPECT_EQ(of_metric("recover_ms.p99", "<= floor + wakeup + 50 ms"), Verdict::kUnknown);
}

TEST_F(CutShort, all_strikes_of_all_jobs_may_still_come) {
  recovered_after({1000});
  const auto p99 = [&] { return of_metric("recover_ms.p99", "<= 50 ms"); };
  result.repeats = 50;
  EXPECT_EQ(p99(), Verdict::kFail);
  scenario.pairs = 2;
  EXPECT_EQ(p99(), Verdict::kUnknown);
  scenario.pairs = 0;
  scenario.faults[0].repeat = 2;
  EXPECT_EQ(p99(), Verdict::kUnknown);
  scenario.faults[0].repeat = 1;
  scenario.faults.push_back(scenario.faults[0]);
  EXPECT_EQ(p99(), Verdict::kUnknown);
  result.repeats = 1;
  scenario.faults = {faultinject::FaultSpec(faultinject::fault_kind("port_flap"))};
  EXPECT_EQ(p99(), Verdict::kFail) << "3 outages";
  scenario.faults[0].count = 100;
  EXPECT_EQ(p99(), Verdict::kUnknown);
  scenario.faults[0].count = faultinject::FaultSpec::kAll;
  EXPECT_EQ(p99(), Verdict::kUnknown) << "as many as there is time for";
  EXPECT_EQ(of_metric("recover_ms.max", "<= 50 ms"), Verdict::kFail);
}

TEST_F(CutShort, a_time_that_had_not_come_when_the_next_round_struck_is_a_failure) {
  result.repeats = 200;
  for (const char* metric : {"recover_ms.p50", "recover_ms.p99", "recover_ms.max"}) {
    recovered_after({20, std::nullopt, 20});
    EXPECT_EQ(of_metric(metric, "<= 50 ms"), Verdict::kFail) << metric;
    recovered_after({20, 20, std::nullopt});
    EXPECT_EQ(of_metric(metric, "<= 50 ms"), Verdict::kUnknown) << metric;
  }
  recovered_after({20, 20, 20});
  migrate().faults[1].detect_ms = {};
  summarize_times(migrate());
  EXPECT_EQ(of_metric("detect_ms.p50", "<= 50 ms"), Verdict::kFail);
  migrate().faults[2].sampled = false;  // is no round behind it
  migrate().faults_sampled = 2;
  summarize_times(migrate());
  EXPECT_EQ(of_metric("detect_ms.p50", "<= 50 ms"), Verdict::kUnknown);
}

TEST_F(CutShort, a_fault_that_was_detected_by_another_than_wanted_is_a_failure) {
  EXPECT_EQ(of_metric("detected_by", "event"), Verdict::kUnknown) << "the next may be detected otherwise";
  migrate().detected_by = {{"event", 1}, {"watchdog", 1}};
  EXPECT_EQ(of_metric("detected_by", "event"), Verdict::kFail);
  migrate().detected_by = {{"watchdog", 1}};
  EXPECT_EQ(of_metric("detected_by", "event"), Verdict::kFail);
  EXPECT_EQ(of_metric("detected_by", "!= watchdog"), Verdict::kUnknown) << "several are not all by watchdog";
  EXPECT_EQ(of_metric("outcome", "ok"), Verdict::kUnknown) << "it is not of each fault";
}

TEST_F(CutShort, a_recovery_that_has_not_come_counts_for_as_long_as_it_was_waited_for) {
  migrate().faults[0].recover_ms = {};
  migrate().faults_unrecovered = 1;
  migrate().recover_ms.max = 70;  // the first good interval of 16.8 ms may have begun after 53.2 ms
  EXPECT_EQ(recovery(), Verdict::kUnknown);
  migrate().recover_ms.max = 74;
  EXPECT_EQ(recovery(), Verdict::kFail);
}

TEST_F(CutShort, a_round_that_did_not_settle_or_come_home_stays_failed) {
  migrate().throughput.rounds_settled = 0;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kFail);
  migrate().throughput.rounds_settled = 1;
  migrate().throughput.retained = 0.4;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kUnknown) << "a mean, of which more rounds may come";
  scenario.expectations.push_back(
      {"migrate", "restored", ">= 0.98", 0, 0, parse_condition(*find_metric("restored"), ">= 0.98")});
  migrate().restored = {0.99, "", 34.0, 34.3, 40, 60, 2, 1, 1};
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, a_count_that_is_too_high_already_is_proven_when_a_run_is_cut_short) {
  scenario.expectations.push_back(
      {"migrate", "migrations", "<= 2", 0, 0, parse_condition(*find_metric("migrations"), "<= 2")});
  migrate().outcome = Outcome::kCancelled;
  result.cancelled = true;
  EXPECT_EQ(of("migrate.migrations").verdict, Verdict::kUnknown);
  migrate().counts["migrations"] = 3;
  EXPECT_EQ(of("migrate.migrations").verdict, Verdict::kFail);
  scenario.expectations.back().condition = parse_condition(*find_metric("migrations"), ">= 4");
  EXPECT_EQ(of("migrate.migrations").verdict, Verdict::kUnknown) << "there may have come more";
}

}  // namespace
}  // namespace r2bench
