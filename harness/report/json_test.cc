// SPDX-License-Identifier: Apache-2.0
#include "harness/report/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "harness/measure/statistics.h"
#include "harness/measure/testing/sample_result.h"
#include "harness/report/read_back.h"
#include "harness/report/schema.h"

namespace r2bench {
namespace {

using Json = nlohmann::json;

Json schema() {
  std::ifstream file(R2BENCH_SCHEMA);
  return Json::parse(file);
}

Json written(const Scenario& scenario, const RunResult& result) {
  std::ostringstream text;
  const Judged judged = judge(scenario, result);
  JsonReporter().write({scenario, result, judged}, text);
  return Json::parse(text.str());
}

std::string joined(const std::vector<Mismatch>& mismatches) {
  std::string text;
  for (const Mismatch& mismatch : mismatches) text += in_words(mismatch) + "\n";
  return text;
}

TEST(ResultJson, follows_its_schema) {
  EXPECT_EQ(joined(schema_mismatches(schema(), written(sample_scenario(), sample_result()))), "");
}

TEST(ResultJson, follows_its_schema_when_nothing_is_known) {
  Scenario scenario = sample_scenario();
  RunResult result;
  result.evidence = "emulated";
  EXPECT_EQ(joined(schema_mismatches(schema(), written(scenario, result))), "");
  result.modes.emplace_back();
  result.modes[0].mode = "migrate";
  result.modes[0].faults.emplace_back();
  result.overheads.push_back({"migrate", "baseline", 2, 1, 2, 1, 2, {0.5, 1.5}, 0, 0, 0});
  result.overheads.push_back(paired_overhead({51}, {50}));  // one pair has no bound
  result.overheads.back().mode = "migrate";
  result.jobs.emplace_back();
  EXPECT_EQ(joined(schema_mismatches(schema(), written(scenario, result))), "");
}

TEST(ResultJson, says_null_for_what_is_not_known) {
  const Json json = written(sample_scenario(), sample_result());
  const Json& baseline = json["runs"][0]["metrics"];
  EXPECT_TRUE(baseline["recovery"]["recover_ms"]["max"].is_null());
  EXPECT_TRUE(baseline["throughput"]["retained"].is_null());
  EXPECT_DOUBLE_EQ(json["runs"][1]["metrics"]["recovery"]["recover_ms"]["max"], 12.3);
  EXPECT_EQ(json["verdict"], "pass");
  EXPECT_DOUBLE_EQ(json["runs"][1]["faults"][0]["t0_at_ms"], 2040.5);
}

TEST(ResultJson, says_by_keys_of_the_schema_why_a_verdict_is_unknown) {
  Scenario scenario = sample_scenario();
  RunResult result = sample_result();
  ModeResult& migrate = result.modes[1];
  migrate.trace_lost = migrate.witnesses_lost = migrate.rounds_fired = migrate.faults_added = 1;
  migrate.hosts.emplace_back().clock_beyond_ms = 1;
  migrate.incomplete = "it gave up";
  migrate.faults_witnessed = 0;
  result.modes.erase(result.modes.begin());
  result.cancelled = true;
  Json json = written(scenario, result);
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  EXPECT_EQ(json["doubt_kinds"],
            Json({"mode_not_run", "fault_not_seen", "trace_lost", "effects_not_recorded",
                  "rounds_not_recorded", "faults_added", "clocks", "faults_not_struck", "cut_short"}));
  EXPECT_EQ(json["doubts"].size(), json["doubt_kinds"].size());
  migrate.outcome = Outcome::kCancelled;
  scenario.expectations.clear();
  json = written(scenario, result);
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  EXPECT_EQ(json["doubt_kinds"][0], "expects_nothing");
  EXPECT_EQ(json["expectations"][0]["doubt"], "fault_not_seen");
}

TEST(ResultJson, says_which_rates_the_ports_did_not_limit) {
  RunResult result = sample_result();
  const auto held_up = [&] {
    const Json json = written(sample_scenario(), result);
    EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
    return json["runs"][1]["metrics"]["throughput"]["held_up"];
  };
  EXPECT_TRUE(held_up().is_null());
  result.modes[1].throughput.retained = 0.67;
  EXPECT_NE(held_up().get<std::string>().find("more was retained than the remaining NICs can carry"),
            std::string::npos);
  result.modes[1].throughput.retained = 0.5;
  EXPECT_TRUE(held_up().is_null());
  result.modes[1].throughput.least_before_gbps = 6.7;  // of one of several jobs
  result.modes[1].throughput.most_of_limit = 1;
  EXPECT_NE(held_up().get<std::string>().find("6.70 were delivered in one of its jobs"), std::string::npos);
  result.modes[1].throughput.rounds = 0;
  EXPECT_TRUE(held_up().is_null()) << "no fault struck a NIC";
}

TEST(ResultJson, says_which_faults_were_not_sampled_and_why) {
  const Json json = written(sample_scenario(), sample_result_with_dropped_faults());
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  const Json& run = json["runs"][1];
  EXPECT_EQ(run["metrics"]["faults"],
            (Json{{"planned", 5},
                  {"witnessed", 5},
                  {"sampled", 2},
                  {"dropped", {{"no operation was open", 1}, {"no segment was in flight on the target", 2}}},
                  {"unrecovered", 0},
                  {"recovered_after_heal", 1},
                  {"rounds_at_end", 2},
                  {"rounds_not_fired", 3}}));
  EXPECT_EQ(run["faults"][0]["sampled"], false);
  EXPECT_EQ(run["faults"][0]["why_not_sampled"], "no operation was open");
  EXPECT_TRUE(run["faults"][0]["recover_ms"].is_null());
  EXPECT_EQ(run["faults"][1]["sampled"], true);
  EXPECT_TRUE(run["faults"][1]["why_not_sampled"].is_null());
}

TEST(ResultJson, says_what_balance_did_and_nothing_of_it_in_other_modes) {
  Scenario scenario = sample_scenario();
  RunResult result = sample_result();
  result.modes[1].r2cc_mode = 2;
  result.modes[1].counts["gray_nics"] = 3;
  result.modes[1].counts["well_nics"] = 2;
  result.modes[1].counts["lanes"] = 14;
  const Json json = written(scenario, result);
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  EXPECT_TRUE(json["runs"][0]["metrics"]["balance"].is_null());
  EXPECT_EQ(json["runs"][1]["metrics"]["balance"], (Json{{"gray_nics", 3}, {"well_nics", 2}, {"lanes", 14}}));
}

TEST(ResultJson, says_of_a_command_no_operation_that_never_ran) {
  Scenario scenario = sample_scenario();
  scenario.workload.engine = Engine::kExec;
  scenario.workload.exec.arguments = {"all_reduce_perf", "-b", "8"};
  const Json json = written(scenario, sample_result());
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  for (const char* key : {"op", "dtype", "bytes"}) EXPECT_TRUE(json["workload"][key].is_null()) << key;
  EXPECT_EQ(json["workload"]["command"], (Json{"all_reduce_perf", "-b", "8"}));
  ASSERT_TRUE(scenario_of(json));
  EXPECT_EQ(scenario_of(json)->workload.engine, Engine::kExec);
}

TEST(ResultJson, says_what_cpu_time_a_byte_took) {
  RunResult result = sample_result();
  result.modes[1].cpu = {3, 1.5};
  result.overheads.push_back({"migrate", "baseline", 20, 1, 2, 1, 2, {}, 19, 2.5, 4.1});
  const Json json = written(sample_scenario(), result);
  EXPECT_EQ(joined(schema_mismatches(schema(), json)), "");
  EXPECT_TRUE(json["runs"][0]["metrics"]["cpu"]["s_per_gb"].is_null());
  EXPECT_EQ(json["runs"][1]["metrics"]["cpu"], (Json{{"seconds", 3.0}, {"gbytes", 1.5}, {"s_per_gb", 2.0}}));
  EXPECT_DOUBLE_EQ(json["runs"][1]["metrics"]["overhead_pct"]["cpu_loss_upper95"], 4.1);
}

TEST(ResultJson, survives_broken_utf8_in_an_error) {
  RunResult result = sample_result();
  result.modes[0].error = "vhca0: \xff\xfe";
  EXPECT_EQ(joined(schema_mismatches(schema(), written(sample_scenario(), result))), "");
}

TEST(Schema, finds_what_does_not_fit) {
  Json json = written(sample_scenario(), sample_result());
  json["verdict"] = "maybe";
  json["runs"][0]["metrics"]["correctness"].erase("lost");
  json["runs"][1]["surprise"] = 1;
  json["runs"][1]["metrics"]["throughput"]["retaned"] = 1;
  json["seed"] = "42";
  const std::string text = joined(schema_mismatches(schema(), json));
  EXPECT_NE(text.find("/verdict is \"maybe\""), std::string::npos) << text;
  EXPECT_NE(text.find("/runs/0/metrics/correctness lacks \"lost\""), std::string::npos) << text;
  EXPECT_NE(text.find("/runs/1/surprise is an unknown key\n"), std::string::npos) << text;
  EXPECT_NE(text.find("/runs/1/metrics/throughput/retaned is an unknown key; did you mean 'retained'?"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("/seed must be \"integer\", but is string"), std::string::npos) << text;
}

TEST(Schema, refuses_keywords_that_it_would_not_check) {
  EXPECT_THROW(schema_mismatches(Json{{"maxLength", 3}}, "text"), std::invalid_argument);
  EXPECT_THROW(schema_mismatches(Json{{"$ref", "#/$defs/none"}}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace r2bench
