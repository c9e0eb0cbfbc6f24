// SPDX-License-Identifier: Apache-2.0
// What makes a verdict unknown, and what is a failure all the same.
#include "harness/judge/fault_times.h"
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, a_fault_without_a_witness_makes_it_unknown) {
  migrate().faults_witnessed = 0;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kUnknown);
  EXPECT_EQ(judge(scenario, result).doubts.size(), 1u);
}

TEST_F(VerdictTest, faults_that_were_never_struck_make_it_unknown) {
  migrate().incomplete = "after round 3: the job did not go on";
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("round 3"), std::string::npos);
}

TEST_F(VerdictTest, one_missing_witness_of_several_makes_it_unknown) {
  migrate().faults_planned = 20;
  migrate().faults_witnessed = 19;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, a_job_that_the_fault_ended_need_not_see_later_ones) {
  baseline().faults_planned = 20;
  EXPECT_EQ(verdict(), Verdict::kPass);
}

TEST_F(VerdictTest, wrong_data_fails_even_without_a_witness) {
  migrate().faults_witnessed = 0;
  migrate().correctness.wrong_elements = 1;
  EXPECT_EQ(verdict(), Verdict::kFail);
}

TEST_F(VerdictTest, lost_trace_events_make_it_unknown) {
  migrate().trace_lost = 3;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, effects_that_were_not_recorded_make_it_unknown) {
  migrate().witnesses_lost = 12;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_EQ(judge(scenario, result).doubts[0].text.find("migrate: 12 effects"), 0u);
}

TEST_F(VerdictTest, rounds_of_a_fault_that_were_not_seen_make_it_unknown) {
  migrate().rounds_fired = migrate().rounds_seen = 300;
  EXPECT_EQ(verdict(), Verdict::kPass);
  migrate().rounds_seen = 256;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("of 300 rounds"), std::string::npos);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("256"), std::string::npos);
}

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

TEST_F(VerdictTest, a_fault_that_was_seen_proves_a_failure_though_another_was_not) {
  migrate().faults_planned = 2;
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kUnknown);
  migrate().recover_ms.max = 1000;
  migrate().faults[0].recover_ms = 1000;
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, nor_does_it_make_a_percentile_or_a_word_unknown_that_it_cannot_mend) {
  migrate().faults_planned = 2;
  result.repeats = 2;
  migrate().faults[0].recover_ms = 1000;
  summarize_times(migrate());
  migrate().detected_by = {{"watchdog", 1}};
  for (const auto& [metric, wanted] :
       {std::pair("recover_ms.p50", "<= 50 ms"), {"recover_ms.p99", "<= 50 ms"}, {"detected_by", "event"}})
    scenario.expectations.push_back(
        {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)});
  EXPECT_EQ(of("migrate.recover_ms.p50").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("migrate.recover_ms.p99").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kFail);
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

TEST_F(VerdictTest, where_nothing_was_compared_nothing_is_known_to_be_right) {
  for (const char* metric : {"wrong_elements", "duplicated", "lost"}) {
    scenario.expectations = {{"migrate", metric, "0", 0, 0, parse_condition(*find_metric(metric), "0")}};
    const std::string name = std::string("migrate.") + metric;
    EXPECT_EQ(of(name).verdict, Verdict::kPass);
    migrate().correctness.checked_elements = 0;
    EXPECT_EQ(of(name).verdict, Verdict::kUnknown);
    EXPECT_EQ(of(name).got, "no element was compared");
    migrate().correctness.checked_elements = 1;
  }
  migrate().correctness.checked_elements = 0;
  migrate().correctness.duplicated = 1;  // the plugin said so
  scenario.expectations = {
      {"migrate", "duplicated", "0", 0, 0, parse_condition(*find_metric("duplicated"), "0")}};
  EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kFail);
}

class Messages : public VerdictTest {
 protected:
  Messages() {
    scenario.expectations.clear();
    for (const char* metric : {"duplicated", "lost"})
      scenario.expectations.push_back(
          {"migrate", metric, "0", 0, 0, parse_condition(*find_metric(metric), "0")});
    baseline().outcome = Outcome::kOk;
    migrate().correctness.messages = 1000;
  }
  /// Of both metrics the same.
  std::pair<Verdict, std::string> known() {
    const Judgement lost = of("migrate.lost");
    EXPECT_EQ(of("migrate.duplicated").verdict, lost.verdict);
    EXPECT_EQ(of("migrate.duplicated").got, lost.got);
    return {lost.verdict, lost.got};
  }
  void expect_unknown(const std::string& why) {
    EXPECT_EQ(known(), std::pair(Verdict::kUnknown, why));
    EXPECT_EQ(verdict(), Verdict::kUnknown);
  }
  Correctness& c = migrate().correctness;
};

TEST_F(Messages, that_were_recognised_are_counted) {
  EXPECT_EQ(known(), std::pair(Verdict::kPass, std::string("0")));
  c.lost = c.duplicated = 2;
  EXPECT_EQ(known(), std::pair(Verdict::kFail, std::string("2")));
}

TEST_F(Messages, that_nobody_saw_are_known_by_all_elements_being_right) {
  const auto from_elements = std::pair(Verdict::kPass, std::string("0: no element is wrong"));
  c.collnet_operations = 10;  // beside others whose messages were seen
  EXPECT_EQ(known(), from_elements);
  c.wrong_elements = 1;
  expect_unknown("through CollNet no message is seen, and elements are wrong");
  c.wrong_elements = c.messages = c.collnet_operations = 0;
  scenario.workload.engine = Engine::kNccl;
  EXPECT_EQ(known(), from_elements);
  c.wrong_elements = 1;
  expect_unknown("no message was recognised, and elements are wrong");
}

TEST_F(Messages, are_not_known_by_elements_that_hide_an_input) {
  c.messages = 0;
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
    scenario.workload.reduction = reduction;
    expect_unknown(std::string("no message was recognised, and a ") +
                   (reduction == Reduction::kMin ? "minimum" : "maximum") +
                   " does not show a missing or doubled input");
  }
}

TEST_F(Messages, that_were_stored_twice_are_not_known_by_elements_where_nothing_is_added_up) {
  c.messages = 0;
  for (const Operation op :
       {Operation::kAllGather, Operation::kBroadcast, Operation::kSendRecv, Operation::kAllToAll}) {
    scenario.workload.op = op;
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMin}) {
      scenario.workload.reduction = reduction;  // means nothing
      EXPECT_EQ(of("migrate.lost").verdict, Verdict::kPass) << name(op);
      EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kUnknown) << name(op);
      EXPECT_EQ(
          of("migrate.duplicated").got,
          "no message was recognised, and one that is stored twice in its place leaves every element right");
    }
  }
  c.duplicated = 1;
  EXPECT_EQ(of("migrate.duplicated").verdict, Verdict::kFail) << "counted by the plugin";
}

TEST_F(Messages, of_a_command_are_unknown) {
  scenario.workload.engine = Engine::kExec;
  c.messages = 0;
  expect_unknown("the command sees no messages, and compares its own data");
}

TEST_F(VerdictTest, a_scenario_that_expects_nothing_has_no_verdict) {
  scenario.expectations.clear();
  baseline().outcome = Outcome::kOk;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, without_a_wakeup_measurement_the_limit_is_unknown) {
  migrate().wakeup_ms = {};
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kUnknown);
}

/// 20 faults, of which some were witnessed and not measured.
class Dropped : public VerdictTest {
 protected:
  void drop(size_t count, const std::string& why, size_t strike = 0) {
    ModeResult& mode = migrate();
    while (mode.faults.size() < 20) mode.faults.push_back(mode.faults[0]);
    for (size_t i = 20 - count; i < 20; ++i) {
      mode.faults[i].sampled = false;
      mode.faults[i].why_not_sampled = why;
      mode.faults[i].strike = strike;
      ++mode.faults_dropped[why];
    }
    mode.faults_planned = mode.faults_witnessed = 20;
    mode.faults_sampled = 20 - count;
    for (Distribution* d : {&mode.detect_ms, &mode.migrate_ms, &mode.recover_ms, &mode.blackout_ms})
      d->n = 20 - count;
  }
  Judgement of_metric(const std::string& metric, const std::string& wanted) {
    scenario.expectations = {
        {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)}};
    return of("migrate." + metric);
  }
  static constexpr const char* kLate = "the job ended before it could be measured";
};

TEST_F(Dropped, a_fault_that_was_not_measured_may_be_the_worst) {
  drop(1, kLate);
  const Judgement most = of_metric("recover_ms.max", "<= floor + wakeup + 50 ms");
  EXPECT_EQ(most.verdict, Verdict::kUnknown);
  EXPECT_EQ(most.doubt, DoubtKind::kProvesNothing);
  EXPECT_NE(
      most.got.find("1 of 20 faults that took effect was not measured: the job ended before it could be "
                    "measured"),
      std::string::npos)
      << most.got;
  for (const char* metric : {"detect_ms.max", "detect_ms.p99", "migrate_ms.max", "blackout_ms.p99"})
    EXPECT_EQ(of_metric(metric, "<= 100 ms").verdict, Verdict::kUnknown) << metric;
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kPass) << "whatever that one took";
  EXPECT_EQ(of_metric("recover_ms.p50", "<= 100 ms").verdict, Verdict::kPass);
  EXPECT_EQ(of_metric("recover_ms.max", "<= 1 ms").verdict, Verdict::kFail) << "others were too slow";
  EXPECT_EQ(of_metric("recover_ms.max", ">= 5 ms").verdict, Verdict::kPass) << "a longer one, too";
}

TEST_F(Dropped, a_percentile_needs_room_for_all_that_was_not_measured) {
  drop(2, kLate);
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kUnknown);
  EXPECT_EQ(of_metric("recover_ms.p50", "<= 100 ms").verdict, Verdict::kPass);
}

TEST_F(Dropped, a_fault_that_met_nothing_has_no_time) {
  for (const char* why :
       {"no operation was open", "no channel used the target", "no segment was in flight on the target",
        "it took nothing from its NIC", "no NIC was struck", "the job's last operation had ended"}) {
    result = sample_result();
    drop(3, why);
    EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").verdict, Verdict::kPass) << why;
  }
}

TEST_F(Dropped, the_last_strike_of_a_fault_that_repeats_until_the_end_is_no_doubt) {
  drop(1, kLate, 3);
  EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").verdict, Verdict::kPass);
}

TEST_F(Dropped, a_recovery_without_a_rate_before_it_may_be_the_worst) {
  drop(0, "");
  migrate().faults[7].why_no_rate_before = "it struck too early";
  migrate().faults[7].recover_ms.reset();
  migrate().recover_ms.n = 19;
  const Judgement most = of_metric("recover_ms.max", "<= 100 ms");
  EXPECT_EQ(most.verdict, Verdict::kUnknown);
  EXPECT_NE(most.got.find("it struck too early"), std::string::npos) << most.got;
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kPass);
  EXPECT_EQ(of_metric("detect_ms.max", "<= 100 ms").verdict, Verdict::kPass) << "that one is known";
}

TEST_F(Dropped, what_was_cut_short_is_no_further_doubt) {
  drop(1, kLate);
  migrate().outcome = Outcome::kCancelled;
  EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").doubt, DoubtKind::kCutShort);
}

}  // namespace
}  // namespace r2bench
