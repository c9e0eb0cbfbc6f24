// SPDX-License-Identifier: Apache-2.0
// What is no result is refused with the file, the place and what to do.
#include "harness/report/result_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "harness/measure/testing/sample_result.h"
#include "harness/report/json.h"
#include "harness/report/nccl_tests.h"
#include "harness/report/read_back.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class ResultFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "result_file_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    std::ifstream stream(R2BENCH_SCHEMA);
    schema = nlohmann::json::parse(stream);
    const Scenario scenario = sample_scenario();
    const RunResult result = sample_result();
    const Judged judged = judge(scenario, result);
    good = nlohmann::json(to_json(Report{scenario, result, judged}));
  }
  void TearDown() override { fs::remove_all(root); }

  fs::path write(const std::string& content) {
    const fs::path file = root / "result.json";
    std::ofstream(file) << content;
    return file;
  }
  std::string why(const fs::path& file) {
    try {
      read_result_file(file, schema);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::string why(const std::string& content) { return why(write(content)); }

  fs::path root;
  nlohmann::json schema, good;
};

TEST_F(ResultFile, a_good_one_is_read_by_its_name_or_its_folders) {
  write(good.dump(1));
  EXPECT_EQ(read_result_file(root / "result.json", schema), good);
  EXPECT_EQ(read_result_file(root, schema), good);
}

TEST_F(ResultFile, what_each_of_two_transports_used_is_read_back) {
  RunResult result = sample_result();
  result.modes[0].ranks[0].cpu_s = 3;
  result.modes[0].ranks[0].cpu_by_side_s = {1, 2};
  const Scenario scenario = sample_scenario();
  const Judged judged = judge(scenario, result);
  const nlohmann::json json(to_json(Report{scenario, result, judged}));
  const nlohmann::json read = read_result_file(write(json.dump()), schema);
  EXPECT_EQ(result_of(read).modes[0].ranks[0].cpu_by_side_s, (std::vector<double>{1, 2}));
}

TEST_F(ResultFile, what_two_sides_of_a_job_show_is_said_and_read_back) {
  const RunResult result = sample_beside_result();
  const Scenario scenario = sample_beside_scenario();
  const Judged judged = judge(scenario, result);
  const nlohmann::json json(to_json(Report{scenario, result, judged}));
  EXPECT_FALSE(json["runs"][0]["metrics"].contains("beside")) << "baseline compares nothing";
  EXPECT_EQ(json["runs"][0]["metrics"]["values"]["beside_ratio"], nullptr);
  const nlohmann::json& metrics = json["runs"][1]["metrics"];
  EXPECT_NEAR(metrics["beside"]["ratio"].get<double>(), 1.02, 1e-9);
  EXPECT_EQ(metrics["beside"]["ratio"], metrics["values"]["beside_ratio"]);
  EXPECT_EQ(metrics["beside"]["operations"], metrics["values"]["beside_operations"]);
  EXPECT_EQ(metrics["beside"]["operations"], 128);
  EXPECT_EQ(metrics["beside"]["why_not"], nullptr);
  const nlohmann::json read = read_result_file(write(json.dump()), schema);
  const ModeResult mode = result_of(read).modes[1];
  ASSERT_TRUE(mode.beside);
  EXPECT_EQ(mode.beside->against, "baseline");
  EXPECT_EQ(mode.beside->copies, 1u);
}

TEST_F(ResultFile, why_two_sides_show_nothing_is_said) {
  RunResult result = sample_beside_result();
  ModeResult& migrate = result.modes[1];
  migrate.faults[0].t0_ns = migrate.timeline.start_ns + 8'000'000'000;  // after the last operation
  const Scenario scenario = sample_beside_scenario();
  const Judged judged = judge(scenario, result);
  const nlohmann::json json(to_json(Report{scenario, result, judged}));
  const nlohmann::json& beside = json["runs"][1]["metrics"]["beside"];
  EXPECT_EQ(beside["ratio"], nullptr);
  EXPECT_EQ(beside["operations"], 0);
  EXPECT_NE(beside["why_not"].get<std::string>().find("fewer than 16 operations"), std::string::npos);
  EXPECT_EQ(why(json.dump()), "");
}

TEST_F(ResultFile, nothing_there) {
  EXPECT_NE(
      why(root / "none.json").find("none.json: no such file; give a result.json or the folder of a run"),
      std::string::npos);
  EXPECT_NE(why(root).find("result.json: no such file"), std::string::npos);
  EXPECT_NE(why(std::string()).find("result.json: is empty; copy it again"), std::string::npos);
  EXPECT_NE(why(std::string(" \n ")).find("is empty"), std::string::npos);
}

TEST_F(ResultFile, one_that_was_cut_off_says_where_it_ends) {
  const std::string whole = good.dump(1);
  for (const size_t length : {size_t(1), whole.size() / 3, whole.size() / 2, whole.size() - 2}) {
    const std::string part = whole.substr(0, length), said = why(part);
    EXPECT_NE(said.find("was cut off"), std::string::npos) << said;
    const auto line = 1 + std::count(part.begin(), part.end(), '\n');
    // White space at the end is not where it was cut.
    EXPECT_TRUE(said.find("result.json:" + std::to_string(line) + ":") != std::string::npos ||
                said.find("result.json:" + std::to_string(line - 1) + ":") != std::string::npos)
        << said;
  }
}

TEST_F(ResultFile, what_is_no_json_says_where) {
  const std::string said = why(std::string("{\"a\": 1,\n \"b\" 2}\n"));
  EXPECT_NE(said.find("result.json:2:6: is not JSON"), std::string::npos) << said;
  EXPECT_NE(why(std::string("version: 1\nname: x\n")).find(":1:1: is not JSON"), std::string::npos);
}

TEST_F(ResultFile, foreign_json_is_named_for_what_it_is) {
  EXPECT_NE(why(std::string("[]")).find("is JSON, but no result of r2bench run"), std::string::npos);
  EXPECT_NE(why(std::string("{\"version\": 3, \"results\": []}")).find("nccl-tests"), std::string::npos);
  EXPECT_NE(why(std::string("{\"context\": {}, \"benchmarks\": []}")).find("Google Benchmark"),
            std::string::npos);
  EXPECT_NE(why(std::string("{\"baseline_version\": 1}")).find("give it to --baseline"), std::string::npos);
}

TEST_F(ResultFile, another_version_says_which_and_what_to_do) {
  good["schema_version"] = 1;
  EXPECT_NE(why(good.dump()).find("schema_version 1, and this r2bench knows 2 only"), std::string::npos);
  good["schema_version"] = 99;
  EXPECT_NE(why(good.dump()).find("take the r2bench that wrote it"), std::string::npos);
}

TEST_F(ResultFile, what_the_schema_refuses_names_the_place) {
  good["runs"][0].erase("outcome");
  good["seed"] = "x";
  const std::string said = why(good.dump());
  EXPECT_NE(said.find("result.json: /runs/0 lacks \"outcome\""), std::string::npos) << said;
  EXPECT_NE(said.find("(and 1 more); r2bench validate says all"), std::string::npos);
}

TEST_F(ResultFile, throughput_as_nccl_tests_writes_it) {
  const nlohmann::ordered_json json = nccl_tests_json({good}, "migrate");
  EXPECT_EQ(json["version"], 3);
  ASSERT_EQ(json["results"].size(), 1u);
  const auto& row = json["results"][0];
  EXPECT_EQ(row["size"], 16u << 20);
  EXPECT_EQ(row["root"], "    -1");
  EXPECT_EQ(row["out_of_place"]["time"], 34'200.0);
  EXPECT_EQ(row["out_of_place"]["nwrong"], 0.0);
  EXPECT_TRUE(row["in_place"].is_null());
  EXPECT_EQ(row["experiment_name"], "nic_down/migrate");
  // Iterations of 34.0, 34.1 … 34.4 ms, forty of each.
  const auto& each = row["out_of_place_per_iter"];
  EXPECT_EQ(each["times_us"].size(), 200u);
  EXPECT_NEAR(each["min_us"].get<double>(), 34'000, 1e-6);
  EXPECT_NEAR(each["p50_us"].get<double>(), 34'200, 1e-6);
  EXPECT_NEAR(each["p99_us"].get<double>(), 34'400, 1e-6);
  EXPECT_NEAR(each["stdev_us"].get<double>(), 141.42, 0.01);
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  EXPECT_EQ(json["config"]["per_iter_timing"], "true");
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_TRUE(json["errors"].empty());
  EXPECT_EQ(nccl_tests_json({good}, "baseline")["errors"].size(), 1u);  // the job that ended in an error
  EXPECT_EQ(nccl_tests_json({good, good}, "")["results"].size(), 4u);
}

}  // namespace
}  // namespace r2bench
