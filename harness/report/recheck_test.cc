// SPDX-License-Identifier: Apache-2.0
#include "harness/report/recheck.h"

#include <gtest/gtest.h>

#include "harness/base/format.h"
#include "harness/judge/settle_bound.h"
#include "harness/measure/testing/sample_result.h"
#include "harness/report/testing/judged_json.h"
#include "harness/report/testing/sample_pairs.h"

namespace r2bench {
namespace {

class Recheck : public testing::Test {
 protected:
  static nlohmann::json good() { return judged_json(sample_scenario(), sample_result()); }
  nlohmann::json& expectation(const std::string& name) { return expectation_of(json, name); }
  std::string said() const {
    std::string text;
    for (const std::string& line : conclusion_mismatches(json)) text += line + "\n";
    return text;
  }
  /// As the run of mode migrate measured it of its one fault.
  void recovered_after(double ms) {
    json["runs"][1]["metrics"]["values"]["recover_ms.max"] = ms;
    json["runs"][1]["faults"][0]["recover_ms"] = ms;
    expectation("migrate.recover_ms.max")["got_value"] = ms;
    expectation("migrate.recover_ms.max")["got"] = fixed(ms, 0) + " ms";
  }
  nlohmann::json json = good();
};

TEST_F(Recheck, what_judge_concluded_follows) { EXPECT_EQ(said(), ""); }

TEST_F(Recheck, a_verdict_that_was_edited_does_not) {
  for (nlohmann::json& e : json["expectations"]) e["ok"] = false;
  EXPECT_NE(said().find("verdict: 'pass', but 'fail' follows from the expectations and doubts"),
            std::string::npos)
      << said();
  EXPECT_NE(said().find("migrate.correctness: is said to be not met"), std::string::npos) << said();
}

TEST_F(Recheck, nor_does_one_that_overlooks_a_doubt_or_what_is_unknown) {
  json["doubts"] = {"3 trace events were overwritten"};
  EXPECT_EQ(said(), "verdict: 'pass', but 'unknown' follows from the expectations and doubts\n");
}

TEST_F(Recheck, nor_does_a_pass_of_no_expectation) {
  json["runs"] = json["expectations"] = nlohmann::json::array();
  EXPECT_EQ(said(), "verdict: 'pass', but 'unknown' follows from the expectations and doubts\n");
}

TEST_F(Recheck, what_is_known_is_not_unknown) {
  expectation("migrate.correctness")["ok"] = nullptr;
  json["verdict"] = "unknown";
  EXPECT_EQ(said(),
            "migrate.correctness: is said to be unknown, but wanted is 'exact' and got 'exact, "
            "1719664640 elements compared'\n");
  json = good();
  recovered_after(99);
  expectation("migrate.recover_ms.max")["ok"] = nullptr;  // false, before it was edited
  json["verdict"] = "unknown";
  EXPECT_EQ(said(),
            "migrate.recover_ms.max: is said to be unknown, but wanted is '<= floor + wakeup + 50 ms' "
            "and got '99 ms'\n");
  expectation("migrate.recover_ms.max")["got"] = "never for 1 of 1 faults";
  expectation("migrate.recover_ms.max")["got_value"] = nullptr;
  EXPECT_NE(said().find("migrate.recover_ms.max: is said to be unknown"), std::string::npos) << said();
}

TEST_F(Recheck, what_was_not_measured_is_unknown) {
  expectation("migrate.recover_ms.max")["got"] = "no sample";
  expectation("migrate.recover_ms.max")["got_value"] = nullptr;
  expectation("migrate.recover_ms.max")["ok"] = nullptr;
  json["verdict"] = "unknown";
  EXPECT_EQ(said(), "");
}

TEST_F(Recheck, a_run_that_is_not_whole_leaves_unknown_all_but_what_is_wrong_in_itself) {
  json["runs"][1]["metrics"]["faults"]["planned"] = 2;
  json["doubts"] = {"migrate: 1 of 2 planned faults were seen to take effect"};
  json["verdict"] = "unknown";
  expectation("migrate.recover_ms.max")["ok"] = nullptr;
  expectation("migrate.correctness")["ok"] = nullptr;
  EXPECT_EQ(said(), "");
  expectation("migrate.correctness")["got_word"] = "wrong";
  expectation("migrate.correctness")["got"] = "3 wrong";
  EXPECT_EQ(said(), "migrate.correctness: is said to be unknown, but wanted is 'exact' and got '3 wrong'\n");
}

TEST_F(Recheck, a_count_that_is_met_is_met_in_each_round) {
  Scenario scenario = sample_scenario();
  scenario.expectations.push_back(
      {"migrate", "migrations", "2", 1, 1, parse_condition(*find_metric("migrations"), "2")});
  RunResult result = sample_result();
  result.repeats = 2;
  result.modes[1].rounds = {{{"migrations", 2}}, {{"migrations", 3}}};
  result.modes[1].counts["migrations"] = 5;
  json = judged_json(scenario, result);
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(said(), "");
  expectation("migrate.migrations")["ok"] = true;
  expectation("migrate.migrations")["got_value"] = 2;
  expectation("migrate.migrations")["got"] = "2";
  json["verdict"] = "pass";
  EXPECT_EQ(said(), "migrate.migrations: is said to be met, but round 2 has 3\n");
}

TEST_F(Recheck, a_time_that_is_met_is_met_whatever_those_are_that_are_not_known) {
  RunResult result = sample_result();
  ModeResult& mode = result.modes[1];
  mode.faults.push_back(mode.faults[0]);
  mode.faults[1].sampled = false;
  mode.faults[1].why_not_sampled = kJobEnded;
  mode.faults_planned = mode.faults_witnessed = 2;
  mode.faults_dropped[kJobEnded] = 1;
  json = judged_json(sample_scenario(), result);
  EXPECT_EQ(json["verdict"], "unknown");
  EXPECT_EQ(said(), "");
  expectation("migrate.recover_ms.max")["ok"] = true;
  expectation("migrate.recover_ms.max")["doubt"] = nullptr;
  json["verdict"] = "pass";
  EXPECT_EQ(said(),
            "migrate.recover_ms.max: is said to be met, but 1 fault that took effect was not measured\n");
}

TEST_F(Recheck, strikes_that_rounds_may_be_which_did_not_fire_are_unknown) {
  Scenario scenario = sample_scenario();
  scenario.expectations.push_back(
      {"migrate", "fault_witness", ">= 4", 1, 1, parse_condition(*find_metric("fault_witness"), ">= 4")});
  RunResult result = sample_result();
  result.modes[1].rounds_not_fired = 3;
  json = judged_json(scenario, result);
  EXPECT_EQ(json["verdict"], "unknown");
  EXPECT_EQ(said(), "");
  json["runs"][1]["metrics"]["faults"]["rounds_not_fired"] = 2;
  EXPECT_NE(said().find("migrate.fault_witness: is said to be unknown"), std::string::npos) << said();
}

TEST_F(Recheck, a_fault_that_one_of_several_jobs_did_not_see_leaves_it_unknown) {
  RunResult result = sample_result();
  ModeResult& mode = result.modes[1];
  mode.outcomes = {{"ok", 2}};
  mode.jobs_without_fault = 1;
  json = judged_json(sample_scenario(), result);
  EXPECT_EQ(json["verdict"], "unknown");
  EXPECT_EQ(json["runs"][1]["metrics"]["faults"]["jobs_without_fault"], 1);
  EXPECT_EQ(said(), "");
  json["verdict"] = "pass";
  json["doubts"] = nlohmann::json::array();
  for (nlohmann::json& expectation : json["expectations"]) expectation["ok"] = true;
  EXPECT_NE(said().find("verdict: 'pass', but 'unknown' follows"), std::string::npos) << said();
}

TEST_F(Recheck, a_loss_that_so_few_pairs_cannot_tell_is_unknown) {
  Scenario scenario = sample_pairs_scenario();
  scenario.expectations.push_back({"migrate", "busbw_loss_pct", "<= 3 %", 1, 1,
                                   parse_condition(*find_metric("busbw_loss_pct"), "<= 3 %")});
  json = judged_json(scenario, sample_pairs_result());
  EXPECT_EQ(json["verdict"], "unknown");
  EXPECT_TRUE(json["expectations"].back()["ok"].is_null());
  EXPECT_EQ(said(), "");
  json["expectations"].back()["ok"] = true;
  EXPECT_NE(said().find("migrate.busbw_loss_pct: is said to be met"), std::string::npos) << said();
  // The other bound does not meet it either.
  json["expectations"].back()["ok"] = nullptr;
  json["expectations"].back()["wanted"] = "<= 0.1 %";
  json["expectations"].back()["wanted_value"] = 0.1;
  EXPECT_NE(said().find("migrate.busbw_loss_pct: is said to be unknown"), std::string::npos) << said();
}

TEST_F(Recheck, a_rate_that_the_ports_did_not_limit_is_unknown_and_said_to_be_so) {
  nlohmann::json& rates = json["runs"][1]["metrics"]["throughput"];
  rates["before_gbps"] = 6.7;
  EXPECT_NE(said().find("migrate.retained_bw: is said to be met, but the ports carry 8.00 Gbit/s"),
            std::string::npos)
      << said();
  EXPECT_NE(said().find("migrate: it does not say that something other than the NICs limited its rates"),
            std::string::npos)
      << said();
  expectation("migrate.retained_bw")["ok"] = nullptr;
  rates["held_up"] = "something else held the job up";
  json["verdict"] = "unknown";
  EXPECT_EQ(said(), "");
  rates["before_gbps"] = 7.8;
  EXPECT_NE(said().find("migrate.retained_bw: is said to be unknown"), std::string::npos) << said();
  EXPECT_NE(said().find("but its metrics do not show that"), std::string::npos) << said();
}

TEST_F(Recheck, an_expectation_is_held_against_what_was_got) {
  expectation("migrate.recover_ms.max")["got_value"] = 55.1;  // 55.03 are allowed
  EXPECT_NE(said().find("migrate.recover_ms.max: is said to be met"), std::string::npos) << said();
  expectation("migrate.recover_ms.max")["got_value"] = nullptr;  // it never came
  EXPECT_NE(said().find("migrate.recover_ms.max: is said to be met"), std::string::npos) << said();
  json = good();
  expectation("migrate.correctness")["got_word"] = "wrong";
  EXPECT_NE(said().find("migrate.correctness: is said to be met"), std::string::npos) << said();
  json = good();
  expectation("migrate.fault_witness")["wanted"] = ">= 2";
  EXPECT_NE(said().find("migrate.fault_witness: is said to be met"), std::string::npos) << said();
}

TEST_F(Recheck, slow_motion_is_no_contradiction) {
  expectation("migrate.recover_ms.max")["wanted"] = "<= 50 ms (ms × 16: slow motion)";
  expectation("migrate.recover_ms.max")["wanted_value"] = 800;
  recovered_after(600);
  EXPECT_EQ(said(), "");
  recovered_after(801);
  EXPECT_NE(said().find("migrate.recover_ms.max: is said to be met"), std::string::npos) << said();
}

TEST_F(Recheck, a_time_is_one_that_the_run_measured) {
  expectation("migrate.recover_ms.max")["got_value"] = 5;
  EXPECT_NE(said().find("migrate.recover_ms.max: got 5, but the run's metrics say "), std::string::npos)
      << said();
  json = good();
  json["runs"][1]["metrics"]["values"]["recover_ms.max"] = nullptr;  // it never came
  json["runs"][1]["faults"][0]["recover_ms"] = nullptr;
  EXPECT_NE(said().find("but the run's metrics say null"), std::string::npos) << said();
  json = good();
  json["runs"][1]["metrics"].erase("values");
  EXPECT_EQ(said(), "") << "an older result";
}

TEST_F(Recheck, a_bound_is_that_of_the_run) {
  expectation("migrate.recover_ms.max")["wanted_value"] = 5000;
  EXPECT_EQ(said(),
            "migrate.recover_ms.max: is held against 5000, which '<= floor + wakeup + 50 ms' is not in this "
            "run\n");
  json = good();
  json["runs"][1]["metrics"]["recovery"]["wakeup_p99_ms"] = 0.1;
  EXPECT_NE(said().find("migrate.recover_ms.max: is held against "), std::string::npos) << said();
}

TEST_F(Recheck, a_run_that_proves_nothing_does_not_pass_without_its_doubts) {
  json["runs"][1]["trace_lost"] = 3;
  EXPECT_EQ(said(), "verdict: 'pass', but 'unknown' follows from the expectations and doubts\n");
  json = good();
  json["runs"][1]["metrics"]["faults"]["planned"] = 2;
  EXPECT_EQ(said(), "verdict: 'pass', but 'unknown' follows from the expectations and doubts\n");
}

TEST_F(Recheck, and_what_was_got_against_the_metrics) {
  json["runs"][1]["metrics"]["faults"]["witnessed"] = 0;
  EXPECT_NE(said().find("migrate.fault_witness: got 1.0, but the run's metrics say 0\n"), std::string::npos)
      << said();
  json = good();
  json["runs"][1]["outcome"] = "hang";
  EXPECT_EQ(said(), "migrate.outcome: got 'ok', but the run's outcome is 'hang'\n");
}

TEST_F(Recheck, every_run_has_an_expectation_of_its_outcome) {
  json["expectations"] = nlohmann::json::array();
  json["verdict"] = "unknown";
  EXPECT_EQ(
      said(),
      "baseline: it has no expectation of its outcome\nmigrate: it has no expectation of its outcome\n");
}

TEST_F(Recheck, a_failure_that_was_proven_before_ctrl_c_is_a_failure) {
  json["cancelled"] = true;
  json["doubts"] = {"the run was ended before it was through"};
  nlohmann::json& migrations = expectation("migrate.recover_ms.max");
  migrations["ok"] = false;
  recovered_after(99);
  json["verdict"] = "unknown";
  EXPECT_EQ(said(), "verdict: 'unknown', but 'fail' follows from the expectations and doubts\n");
  for (nlohmann::json& e : json["expectations"]) e.erase("got_word");
  EXPECT_EQ(said(), "") << "an older result";
}

}  // namespace
}  // namespace r2bench
