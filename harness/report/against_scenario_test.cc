// SPDX-License-Identifier: Apache-2.0
#include "harness/report/against_scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "harness/measure/testing/sample_result.h"
#include "harness/report/recheck.h"
#include "harness/report/testing/judged_json.h"
#include "harness/scenario/load.h"

namespace r2bench {
namespace {

class AgainstScenario : public testing::Test {
 protected:
  AgainstScenario() { std::ofstream(file_) << scenario_.source_text; }
  ~AgainstScenario() override { std::filesystem::remove(file_); }

  nlohmann::json& expectation(const std::string& name) { return expectation_of(json_, name); }
  void erase(const std::string& name) {
    auto& all = json_["expectations"];
    all.erase(std::find_if(all.begin(), all.end(), [&](const auto& e) { return e["name"] == name; }));
  }
  std::string said() const {
    std::string text;
    for (const std::string& line : scenario_mismatches(json_, file_)) text += line + "\n";
    return text;
  }

  Scenario scenario_ = sample_scenario();
  const std::string file_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml";
  nlohmann::json json_ = judged_json(scenario_, sample_result());
};

TEST_F(AgainstScenario, what_was_judged_is_what_was_expected) { EXPECT_EQ(said(), ""); }

TEST_F(AgainstScenario, a_failure_that_was_deleted_is_told_by_its_name) {
  RunResult result = sample_result();
  result.modes[1].recover_ms.max = 99;
  result.modes[1].faults[0].recover_ms = 99;
  json_ = judged_json(scenario_, result);
  ASSERT_EQ(json_["verdict"], "fail");
  erase("migrate.recover_ms.max");
  json_["verdict"] = "pass";
  ASSERT_TRUE(conclusion_mismatches(json_).empty()) << "consistent in itself";
  EXPECT_EQ(said(),
            "migrate.recover_ms.max: the scenario expects '<= floor + wakeup + 50 ms', but the result has no "
            "such expectation\n");
}

TEST_F(AgainstScenario, so_is_one_that_was_changed) {
  expectation("migrate.recover_ms.max")["wanted"] = "<= 5000 ms";
  EXPECT_EQ(said(),
            "migrate.recover_ms.max: the scenario expects '<= floor + wakeup + 50 ms', but the result has "
            "'<= 5000 ms'\n");
  expectation("migrate.recover_ms.max")["wanted"] = "<= floor + wakeup + 50 ms (ms × 4096: slow motion)";
  EXPECT_NE(said(), "") << "nothing was run in slow motion";
  json_["overrides"]["slow_motion"] = "4096";
  EXPECT_EQ(said(), "");
}

TEST_F(AgainstScenario, an_outcome_is_expected_though_the_file_does_not_say_it) {
  expectation("migrate.outcome")["wanted"] = "hang";
  EXPECT_EQ(said(), "migrate.outcome: the scenario expects 'ok', but the result has 'hang'\n");
}

TEST_F(AgainstScenario, one_that_the_scenario_does_not_have_is_told) {
  expectation("migrate.correctness")["name"] = "migrate.wrong_elements";
  EXPECT_EQ(said(),
            "migrate.correctness: the scenario expects 'exact', but the result has no such expectation\n"
            "migrate.wrong_elements: the scenario expects nothing of it\n");
}

TEST_F(AgainstScenario, one_that_is_listed_twice_is_told) {
  nlohmann::json twice = expectation("migrate.correctness");
  twice["line"] = 1;
  json_["expectations"].push_back(twice);
  EXPECT_EQ(said(),
            "migrate.correctness: the scenario expects 'exact' once, but the result has it 2 times\n");
}

TEST_F(AgainstScenario, settings_are_those_of_the_scenario) {
  json_["seed"] = 43;  // the gate gives each job its own
  json_["fabric"]["nics_per_node"] = 8;
  json_["workload"]["iters"] = 100;
  EXPECT_EQ(said(),
            "fabric.nics_per_node: is 8, but the scenario says 4\n"
            "workload.iters: is 100, but the scenario says 200\n");
  json_["overrides"] = {{"workload.iters", "100"}, {"fabric.nics_per_node", "8"}, {"seed", "43"}};
  EXPECT_EQ(said(), "");
}

TEST_F(AgainstScenario, faults_and_environment_are_those_of_the_scenario) {
  json_["plan"][0] = "during iteration 61: port_down node1/nic0";
  json_["runs"][1]["env"]["R2CC_FAILBACK_MS"] = "5";
  EXPECT_NE(said().find("plan: is [\"during iteration 61: port_down node1/nic0\"], but the scenario says "
                        "[\"during iteration 60: port_down node1/nic0"),
            std::string::npos)
      << said();
  EXPECT_NE(said().find("migrate.env: is {\"R2CC_FAILBACK_MS\":\"5\"}"), std::string::npos) << said();
  json_.erase("plan");  // an older result
  for (nlohmann::json& run : json_["runs"]) run.erase("env");
  EXPECT_EQ(said(), "");
}

TEST_F(AgainstScenario, a_mode_that_was_deleted_is_missing) {
  json_["runs"].erase(1);
  for (const char* metric : {"outcome", "fault_witness", "correctness", "recover_ms.max", "retained_bw"})
    erase(std::string("migrate.") + metric);
  EXPECT_EQ(said(), "migrate: the scenario has this mode, but the result has neither a run nor a doubt\n");
  json_["doubts"].push_back("migrate: did not run");
  EXPECT_EQ(said(), "");
}

TEST_F(AgainstScenario, what_the_command_line_changed_counts) {
  LoadOptions options;
  options.modes = {"migrate"};
  options.set = {{"expect.migrate.correctness", "wrong"}, {"workload.iters", "300"}};
  options.seed = 7;
  scenario_ = load_scenarios(file_, options)[0];
  scenario_.overrides["fabric.kind"] = "rxe";
  RunResult result = sample_result();
  result.seed = 7;
  result.modes.erase(result.modes.begin());
  json_ = judged_json(scenario_, result);
  EXPECT_EQ(said(), "");
  json_["overrides"].erase("expect.migrate.correctness");
  EXPECT_EQ(said(), "migrate.correctness: the scenario expects 'exact', but the result has 'wrong'\n");
}

TEST_F(AgainstScenario, a_cell_of_a_matrix_is_held_against_that_cell) {
  std::ofstream(file_, std::ios::app) << "matrix: {workload.bytes: [1 MiB, 16 MiB]}\n";
  scenario_ = load_scenarios(file_)[1];
  json_ = judged_json(scenario_, sample_result());
  json_["scenario"] = scenario_.name;
  EXPECT_EQ(said(), "");
  json_["matrix"]["workload.bytes"] = "2 MiB";
  EXPECT_NE(said().find("has no cell of this result's matrix"), std::string::npos) << said();
}

TEST_F(AgainstScenario, a_file_that_cannot_be_read_is_told) {
  std::ofstream(file_) << "version: 1\nfabrik: {}\n";
  EXPECT_NE(said().find("cannot be compared with those of the scenario: "), std::string::npos) << said();
}

}  // namespace
}  // namespace r2bench
