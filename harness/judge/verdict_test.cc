// SPDX-License-Identifier: Apache-2.0
// An expectation against what was measured: times, rates, counts, correctness, overhead.
#include <cmath>

#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, passes_when_all_is_as_expected) {
  EXPECT_EQ(verdict(), Verdict::kPass);
  EXPECT_TRUE(judge(scenario, result).doubts.empty());
  EXPECT_EQ(exit_code(Verdict::kPass), 0);
  EXPECT_EQ(exit_code(Verdict::kFail), 1);
  EXPECT_EQ(exit_code(Verdict::kUnknown), 2);
}

TEST_F(VerdictTest, time_limits_stand_on_floor_and_wakeup) {
  EXPECT_NEAR(*of("migrate.recover_ms.max").wanted_value, 4.19 + 0.84 + 50, 1e-9);
  migrate().faults[0].recover_ms = migrate().recover_ms.max = 55.04;
  EXPECT_EQ(verdict(), Verdict::kFail);
  migrate().faults[0].recover_ms = migrate().recover_ms.max = 55.02;
  EXPECT_EQ(verdict(), Verdict::kPass);
}

TEST_F(VerdictTest, a_time_limit_takes_each_faults_own_floor) {
  // One fault with a floor of 30 ms, which it kept, and one of 4.19 ms that is over its own bound of 55.03
  // ms.
  migrate().faults.push_back(migrate().faults[0]);
  migrate().faults[1].floor_ms = migrate().floor_ms = 30;
  migrate().faults[1].recover_ms = 80;
  migrate().faults[0].recover_ms = 60;
  migrate().faults_sampled = migrate().faults_planned = migrate().faults_witnessed = 2;
  migrate().recover_ms = {2, 60, 80, 80, 80};
  const Judgement over = of("migrate.recover_ms.max");
  EXPECT_EQ(over.verdict, Verdict::kFail);
  EXPECT_DOUBLE_EQ(*over.got_value, 60);
  EXPECT_NEAR(*over.wanted_value, 4.19 + 0.84 + 50, 1e-9);
  migrate().faults[0].recover_ms = 55.02;
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kPass);
}

TEST_F(VerdictTest, wakeup_widens_a_bound_no_further_than_its_cap) {
  migrate().wakeup_ms.p99 = 9;
  migrate().wakeup_p99_ms = kWakeupCapMs;
  EXPECT_NEAR(*of("migrate.recover_ms.max").wanted_value, 4.19 + kWakeupCapMs + 50, 1e-9);
}

TEST_F(VerdictTest, clocks_of_several_hosts_widen_bounds_on_times_between_them_only) {
  const double alone = *of("migrate.recover_ms.max").wanted_value;
  const double limit = *of("migrate.retained_bw").wanted_value;
  migrate().clock_bound_ms = 1.5;
  const Judgement time = of("migrate.recover_ms.max");
  EXPECT_NEAR(*time.wanted_value, alone + 1.5, 1e-9);
  EXPECT_NE(time.got.find("± 1.50 ms between hosts"), std::string::npos) << time.got;
  const Judgement rate = of("migrate.retained_bw");
  EXPECT_NEAR(*rate.wanted_value, limit, 1e-9);
  EXPECT_EQ(rate.got.find("between hosts"), std::string::npos) << rate.got;
}

TEST_F(VerdictTest, bandwidth_is_held_against_the_modes_limit) {
  migrate().throughput.retained = 0.474;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, too_few_agreed_plans_fail_in_any_round) {
  scenario.expectations.push_back(
      {"migrate", "plans_agreed", ">= 3", 0, 0, parse_condition(*find_metric("plans_agreed"), ">= 3")});
  EXPECT_EQ(of("migrate.plans_agreed").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.plans_agreed").got, "0");
  EXPECT_EQ(verdict(), Verdict::kFail);
  migrate().counts["plans_agreed"] = 2;
  EXPECT_EQ(of("migrate.plans_agreed").verdict, Verdict::kFail);
  migrate().counts["plans_agreed"] = 3;
  EXPECT_EQ(of("migrate.plans_agreed").verdict, Verdict::kPass);
  EXPECT_EQ(verdict(), Verdict::kPass);
  migrate().counts["plans_agreed"] = 5;
  migrate().rounds = {{{"plans_agreed", 3}}, {{"plans_agreed", 2}}};
  EXPECT_EQ(of("migrate.plans_agreed").verdict, Verdict::kFail) << "round 2 has too few";
}

TEST_F(VerdictTest, a_round_that_was_not_measured_leaves_the_retained_rate_unknown) {
  migrate().throughput.rounds = 2;
  migrate().throughput.why_not = "round 2: the job ended 40 ms after the last fault";
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("migrate.retained_bw").got,
            "measured in 1 of 2 rounds: round 2: the job ended 40 ms after the last fault");
}

TEST_F(VerdictTest, a_round_that_does_not_settle_fails_whatever_the_mean_is) {
  migrate().throughput.rounds = migrate().throughput.rounds_measured = 20;
  migrate().throughput.rounds_settled = 19;
  migrate().throughput.worst_unsettled = 0.3;
  migrate().throughput.retained = 0.49;
  scenario.expectations.push_back(
      {"migrate", "settled", "yes", 0, 0, parse_condition(*find_metric("settled"), "yes")});
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.settled").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.retained_bw").got,
            "not settled within 250 ms in 1 of 20 rounds (0.300 at worst, 0.490 on average)");
}

TEST_F(VerdictTest, what_was_held_up_by_something_else_does_not_pass) {
  migrate().throughput.retained = 0.67;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kUnknown);
  EXPECT_NE(of("migrate.retained_bw").got.find("more was retained than the remaining NICs can carry"),
            std::string::npos);
  migrate().throughput.retained = 0.54;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kPass);
  migrate().throughput.before_gbps = 6.7;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kUnknown);
  EXPECT_NE(of("migrate.retained_bw").got.find("the ports carry 8.00 Gbit/s"), std::string::npos);
  migrate().throughput.retained = 0.4;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kFail) << "too little is too little";
  migrate().throughput.retained = 0.5;
  migrate().throughput.ports_gbps = 0;
  EXPECT_EQ(of("migrate.retained_bw").verdict, Verdict::kPass) << "ports without a rate";
}

TEST_F(VerdictTest, a_rate_that_does_not_come_back_after_failback_fails) {
  scenario.expectations.push_back(
      {"migrate", "restored", ">= 0.98", 0, 0, parse_condition(*find_metric("restored"), ">= 0.98")});
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kUnknown) << "the NIC never came back";
  EXPECT_EQ(of("migrate.restored").got, "port_down node1/nic0 was still there when the job ended");
  migrate().restored = {0.981, "", 34.0, 34.66, 40, 60};
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kPass);
  EXPECT_EQ(of("migrate.restored").got, "0.981 (median of 60 operations: 34.7 ms, of 40 before: 34.0 ms)");
  migrate().restored = {0.979, "", 34.0, 34.73, 40, 60};
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kFail);
  migrate().restored = {0.99, "round 2: 1 ends of channels were not home again", 34.0, 34.3, 40, 60, 2, 1, 0};
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kUnknown) << "of round 2 nothing is known";
  migrate().restored.rounds_home = 2;
  migrate().restored.why_not = "round 2: only 9 operations once everything was repaired; 10 are wanted";
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("migrate.restored").got, migrate().restored.why_not);
  migrate().restored.why_not = "";
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kPass);
  EXPECT_EQ(of("migrate.restored").got,
            "0.990 (worst of 2 rounds: median of 60 operations: 34.3 ms, of 40 before: 34.0 ms)");
  migrate().restored.rounds_late = 1;
  EXPECT_EQ(of("migrate.restored").verdict, Verdict::kFail) << "a channel that stays away is not restored";
}

TEST_F(VerdictTest, a_nic_that_is_found_gray_without_a_reason_fails) {
  for (const char* metric : {"gray_nics", "well_nics", "lanes"})
    scenario.expectations.push_back(
        {"migrate", metric, "0", 0, 0, parse_condition(*find_metric(metric), "0")});
  EXPECT_EQ(verdict(), Verdict::kPass);
  migrate().counts["gray_nics"] = 1;
  EXPECT_EQ(of("migrate.gray_nics").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.gray_nics").got, "1");
  EXPECT_EQ(of("migrate.lanes").verdict, Verdict::kPass);
  migrate().counts["lanes"] = 2;
  EXPECT_EQ(of("migrate.lanes").verdict, Verdict::kFail);
  EXPECT_EQ(verdict(), Verdict::kFail);
}

TEST_F(VerdictTest, a_recovery_that_never_came_fails) {
  migrate().faults_sampled = 2;
  const Judgement judgement = of("migrate.recover_ms.max");
  EXPECT_EQ(judgement.verdict, Verdict::kFail);
  EXPECT_TRUE(std::isinf(*judgement.got_value));
  EXPECT_EQ(judgement.got, "never for 1 of 2 faults");
}

TEST_F(VerdictTest, a_recovery_that_was_waited_for_in_vain_fails) {
  migrate().faults_unrecovered = 1;  // recover_ms then holds how long it was waited for
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, nothing_compared_is_not_exact) {
  migrate().correctness.checked_elements = 0;
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kUnknown);
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, a_loss_or_a_duplicate_is_not_exact) {
  migrate().correctness.lost = 1;
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kFail);
  migrate().correctness.lost = 0;
  migrate().correctness.duplicated = 1;
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, each_round_has_to_meet_an_expectation_of_a_count) {
  const auto expect = [&](const char* wanted) {
    scenario.expectations = {
        {"migrate", "migrations", wanted, 0, 0, parse_condition(*find_metric("migrations"), wanted)}};
    return of("migrate.migrations");
  };
  migrate().counts["migrations"] = 40;
  migrate().rounds.assign(20, {{"migrations", 2}});
  EXPECT_EQ(expect("2").verdict, Verdict::kPass);
  EXPECT_EQ(expect("2").got, "2 in each of 20 rounds");
  EXPECT_EQ(expect("40").verdict, Verdict::kFail);
  migrate().rounds[6]["migrations"] = 0;
  EXPECT_EQ(expect(">= 1").verdict, Verdict::kFail) << "38 in the other rounds do not make up for it";
  EXPECT_EQ(expect(">= 1").got, "0 … 2 in 20 rounds, 0 in round 7");
  EXPECT_EQ(expect(">= 1").got_value, 0);
  EXPECT_EQ(expect("<= 2").verdict, Verdict::kPass);
}

TEST_F(VerdictTest, each_round_has_to_see_its_faults) {
  FaultSample second = migrate().faults[0];
  second.repetition = 1;
  second.witnessed = false;
  migrate().faults.push_back(second);
  migrate().faults[0].witnessed = true;
  migrate().faults_planned = 2;
  const auto witness = [&] { return of("migrate.fault_witness").got; };
  EXPECT_EQ(witness(), "0 … 1 in 2 rounds, 0 in round 2, but the fault was not seen");
  migrate().faults[1].witnessed = true;
  migrate().faults_witnessed = 2;
  EXPECT_EQ(witness(), "1 in each of 2 rounds");
}

TEST_F(VerdictTest, every_recovery_must_have_been_noticed_the_expected_way) {
  scenario.expectations.push_back({"migrate", "detected_by", "watchdog", 0, 0, Word{false, "watchdog"}});
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kFail);
  migrate().detected_by = {{"watchdog", 19}};
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kPass);
  migrate().detected_by = {{"watchdog", 19}, {"peer", 1}};
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kFail);
  migrate().detected_by = {};
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kUnknown);
}

TEST(Overhead, is_judged_by_its_bounds) {
  Scenario scenario = sample_scenario();
  scenario.faults.clear();
  scenario.expectations.clear();
  scenario.expectations.push_back({"migrate", "overhead_pct", "<= 3 %", 0, 0,
                                   Numeric{Comparison::kLessEqual, Sum{{Term{false, {3.0}}}}}});
  RunResult result = sample_result();
  result.modes[0].outcome = Outcome::kOk;
  result.overheads.push_back({"migrate", "baseline", 20, 1.0, 3.5, 0.9, 2.9, {}, 0, 0, 0});
  const Judged judged = judge(scenario, result);
  EXPECT_EQ(judged.verdict, Verdict::kUnknown) << "it may as well be -1.44 %";
  EXPECT_EQ(
      judged.expectations.back().got,
      "3.50 % (mean 1.00 %, 20 pairs), but 20 pairs leave it between -1.44 and 3.50 %; four times as many "
      "halve that: --set pairs=80");
  result.overheads[0].mean_pct = 3.3;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kFail) << "3.1 % or more";
  result.overheads[0].mean_pct = 1;
  result.overheads[0].upper95_pct = 2.9;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kPass);
  result.overheads[0].pairs = 1;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kUnknown);
}

TEST(Overhead, of_cpu_time_is_judged_by_its_bounds) {
  Scenario scenario = sample_scenario();
  scenario.faults.clear();
  scenario.expectations = {
      {"migrate", "cpu_loss_pct", "<= 5 %", 0, 0, parse_condition(*find_metric("cpu_loss_pct"), "<= 5 %")},
      {"migrate", "cpu_per_gb", "< 2", 0, 0, parse_condition(*find_metric("cpu_per_gb"), "< 2")},
      {"baseline", "outcome", "error", 0, 0, Word{false, "error"}}};
  RunResult result = sample_result();
  result.overheads.push_back({"migrate", "baseline", 20, 0, 0, 0, 0, {}, 20, 4.0, 5.1});
  result.modes[1].cpu = {3, 1.6};
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kUnknown) << "between 2.9 and 5.1 %";
  result.overheads[0].cpu_mean_pct = 5.06;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kFail);
  result.overheads[0].cpu_mean_pct = 4;
  result.overheads[0].cpu_upper95_pct = 4.9;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kPass);
  result.modes[1].cpu = {3, 1.4};
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kFail);
  result.modes[1].cpu = {};
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kUnknown);
  result.modes[1].cpu = {3, 1.6};
  result.overheads[0].cpu_pairs = 1;
  EXPECT_EQ(judge(scenario, result).verdict, Verdict::kUnknown);
}

}  // namespace
}  // namespace r2bench
