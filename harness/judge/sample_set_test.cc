// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/sample_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace r2bench {
namespace {

using Json = nlohmann::json;

Json sample_result(const std::string& name) {
  std::ifstream stream(std::string(R2BENCH_SOURCE_DIR) + "/harness/judge/testing/" + name + ".json");
  return Json::parse(stream);
}

TEST(SampleSet, takes_the_samples_of_each_fault) {
  const SampleSet set = samples_of_result(sample_result("silent_port_down_10_faults"), "A");
  const ModeSamples* mode = set.find("silent_port_down", "migrate");
  ASSERT_NE(mode, nullptr);
  ASSERT_NE(mode->find("recover_ms"), nullptr);
  EXPECT_EQ(mode->find("recover_ms")->all().size(), 10u);
  EXPECT_EQ(mode->find("detect_ms")->unit, "ms");
  EXPECT_EQ(mode->find("retained")->better, Better::kHigher);
  EXPECT_EQ(mode->conditions.at("workload.op"), "allreduce");
  EXPECT_EQ(mode->outcomes, std::vector<std::string>{"ok"});
}

TEST(SampleSet, faults_and_environment_are_conditions_where_the_result_says_them) {
  Json result = sample_result("silent_port_down_10_faults");
  const auto conditions = [&] {
    return samples_of_result(result, "A").find("silent_port_down", "migrate")->conditions;
  };
  EXPECT_FALSE(conditions().contains("plan"));
  EXPECT_FALSE(conditions().contains("env"));
  result["plan"] = {"during iteration 5: throttle node1/nic0 (rate: 1 Mbit/s)",
                    "after 1 s: blackhole node1/nic1"};
  for (Json& run : result["runs"]) run["env"] = Json::object();
  EXPECT_EQ(conditions().at("plan"),
            "during iteration 5: throttle node1/nic0 (rate: 1 Mbit/s), after 1 s: blackhole node1/nic1");
  EXPECT_EQ(conditions().at("env"), "none");
  for (Json& run : result["runs"]) run["env"] = {{"R2CC_A", "1"}, {"R2CC_B", "2"}};
  EXPECT_EQ(conditions().at("env"), "R2CC_A=1, R2CC_B=2");
  // Beside an older run, which does not say them, they are not known.
  SampleSet both = samples_of_result(sample_result("silent_port_down_10_faults"), "older");
  both.add(samples_of_result(result, "A"));
  EXPECT_FALSE(both.find("silent_port_down", "migrate")->conditions.contains("plan"));
}

TEST(SampleSet, a_command_has_no_operation) {
  Json result = sample_result("silent_port_down_10_faults");
  Json& work = result["workload"];
  work["engine"] = "exec";
  work["command"] = {"true"};
  const SampleSet older = samples_of_result(result, "older");
  work["op"] = work["dtype"] = work["bytes"] = nullptr;
  const SampleSet now = samples_of_result(result, "now");
  EXPECT_EQ(older.modes.at(0).conditions, now.modes.at(0).conditions);
  EXPECT_FALSE(now.modes.at(0).conditions.contains("workload.op"));
  Json baseline = to_baseline(now);
  baseline["modes"][0]["conditions"]["workload.bytes"] = "16777216";
  EXPECT_EQ(samples_of_baseline(baseline, "b").modes.at(0).conditions, now.modes.at(0).conditions);
}

TEST(SampleSet, jobs_that_compare_different_sides_differ) {
  const auto beside = [](const char* against, int copies, const char* settings) {
    Json result = sample_result("silent_port_down_10_faults");
    for (Json& run : result["runs"]) {
      run["metrics"]["beside"] = {{"against", against}, {"copies", copies}};
      if (settings) run["settings"]["beside"] = settings;
    }
    for (Json& run : result["runs"]) run["metrics"]["values"]["beside_ratio"] = 1.25;
    const SampleSet set = samples_of_result(result, "A");
    for (const ModeSamples& mode : set.modes) {
      EXPECT_EQ(mode.find("recover_ms"), nullptr) << "one side's deliveries were seen";
      EXPECT_EQ(mode.find("beside_ratio")->all(), std::vector<double>{1.25});
    }
    return set.modes.at(0).conditions.at("beside");
  };
  EXPECT_EQ(beside("ib", 8, nullptr), "ib × 8");
  EXPECT_EQ(beside("migrate", 1, "migrate R2CC_A=1"), "migrate R2CC_A=1 × 1");
  const SampleSet none = samples_of_result(sample_result("silent_port_down_10_faults"), "A");
  EXPECT_EQ(none.modes.at(0).conditions.at("beside"), "none");
  EXPECT_TRUE(is_newer_condition("beside")) << "older baselines do not say it";
  Json healthy = sample_result("silent_port_down_10_faults");
  for (const bool two_sides : {false, true}) {
    for (Json& run : healthy["runs"]) {
      run["faults"] = Json::array();
      run["iteration_ms"] = {10.0, 11.0};
      if (two_sides) run["metrics"]["beside"] = {{"against", "migrate"}, {"copies", 1}};
    }
    EXPECT_EQ(samples_of_result(healthy, "A").modes.at(0).find("operation_ms") != nullptr, !two_sides);
  }
}

TEST(SampleSet, says_which_metrics_have_no_samples) {
  Json result = sample_result("silent_port_down_10_faults");
  EXPECT_EQ(without_samples(samples_of_result(result, "A")), std::vector<std::string>{});
  for (Json& run : result["runs"])
    for (Json& fault : run["faults"]) fault["sampled"] = false;
  const std::vector<std::string> found = without_samples(samples_of_result(result, "A"));
  EXPECT_NE(std::find(found.begin(), found.end(), "silent_port_down, migrate, recover_ms"), found.end());
}

TEST(SampleSet, takes_pairs_where_there_are_pairs) {
  const SampleSet set = samples_of_result(sample_result("no_fault_balance_40_pairs"), "A");
  const ModeSamples* mode = set.find("no_fault_balance", "balance");
  ASSERT_NE(mode, nullptr);
  EXPECT_EQ(mode->find("busbw")->all().size(), 40u);
  EXPECT_EQ(mode->find("overhead_pct")->all().size(), 40u);
  EXPECT_EQ(mode->find("recover_ms"), nullptr);
}

TEST(SampleSet, takes_a_metric_that_says_so_once_from_each_run) {
  Json result = sample_result("silent_port_down_10_faults");
  EXPECT_EQ(samples_of_result(result, "A").find("silent_port_down", "migrate")->find("renew_ms"), nullptr);
  for (Json& run : result["runs"]) run["metrics"]["values"]["renew_ms"] = 7.5;
  const SampleSet set = samples_of_result(result, "A");
  const MetricSamples* renewal = set.find("silent_port_down", "migrate")->find("renew_ms");
  ASSERT_NE(renewal, nullptr);
  EXPECT_EQ(renewal->all(), std::vector<double>{7.5});
  EXPECT_EQ(renewal->unit, "ms");
  EXPECT_EQ(renewal->better, Better::kLower);
  EXPECT_TRUE(once_per_run("renew_ms"));
  EXPECT_FALSE(once_per_run("recover_ms"));
}

TEST(SampleSet, units_and_directions_are_those_that_the_metrics_declare) {
  const SampleSet pairs = samples_of_result(sample_result("no_fault_balance_40_pairs"), "A");
  const MetricSamples* overhead = pairs.find("no_fault_balance", "balance")->find("overhead_pct");
  ASSERT_NE(overhead, nullptr);
  EXPECT_EQ(overhead->unit, "%");
  EXPECT_EQ(overhead->better, Better::kLower);
}

TEST(SampleSet, a_time_that_never_came_is_infinite) {
  Json result = sample_result("silent_port_down_10_faults");
  for (Json& run : result["runs"])
    for (Json& fault : run["faults"]) fault["recover_ms"] = nullptr;
  for (const double value :
       samples_of_result(result, "A").find("silent_port_down", "migrate")->find("recover_ms")->all())
    EXPECT_TRUE(std::isinf(value));
}

TEST(SampleSet, a_recovery_that_cannot_be_judged_is_no_sample) {
  Json result = sample_result("silent_port_down_10_faults");
  for (Json& run : result["runs"])
    if (run["mode"] == "migrate") {
      run["faults"][0]["recover_ms"] = nullptr;
      run["faults"][0]["why_no_rate_before"] = "it struck too early";
    }
  const SampleSet set = samples_of_result(result, "A");
  const ModeSamples* mode = set.find("silent_port_down", "migrate");
  EXPECT_EQ(mode->find("recover_ms")->all().size(), 9u);
  EXPECT_EQ(mode->find("detect_ms")->all().size(), 10u);
}

TEST(SampleSet, adds_runs_and_survives_a_baseline_file) {
  const SampleSet one = samples_of_result(sample_result("silent_port_down_10_faults"), "A");
  SampleSet all;
  all.add(one.pooled().beside(one));
  all.add(one.pooled().beside(one));
  const SampleSet again = samples_of_baseline(Json::parse(to_baseline(all).dump()), "baseline");
  const MetricSamples* metric = again.find("silent_port_down", "migrate")->find("detect_ms");
  ASSERT_NE(metric, nullptr);
  EXPECT_EQ(metric->runs.size(), 2u);
  EXPECT_EQ(metric->references.size(), 2u);
  EXPECT_EQ(metric->runs[0], one.find("silent_port_down", "migrate")->find("detect_ms")->all());
  // A run without a reference: those that there are would stand beside the wrong ones.
  all.add(one.pooled());
  EXPECT_TRUE(all.find("silent_port_down", "migrate")->find("detect_ms")->references.empty());
}

TEST(SampleSet, conditions_that_differ_between_runs_are_various) {
  Json other = sample_result("silent_port_down_10_faults");
  SampleSet set = samples_of_result(other, "A");
  other["fabric"]["nodes"] = 3;
  set.add(samples_of_result(other, "B"));
  EXPECT_EQ(set.find("silent_port_down", "migrate")->conditions.at("fabric.nodes"), "various");
}

TEST(SampleSet, says_what_is_wrong_with_a_baseline) {
  const auto why = [](const Json& json) {
    try {
      samples_of_baseline(json, "b");
    } catch (const BaselineError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(why(Json::parse("{}")).find("no baseline"), std::string::npos);
  EXPECT_NE(why({{"baseline_version", 9}}).find("baseline_version 9"), std::string::npos);
  EXPECT_NE(why({{"baseline_version", 1}}).find("damaged baseline"), std::string::npos);
}

}  // namespace
}  // namespace r2bench
