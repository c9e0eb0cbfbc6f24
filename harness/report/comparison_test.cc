// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "harness/report/comparison_report.h"

namespace r2bench {
namespace {

SampleComparison sample_comparison() {
  SampleComparison comparison;
  comparison.before = "baseline.json";
  comparison.after = "results/runs/x";
  ComparisonRow worse;
  worse.scenario = "nic_down";
  worse.mode = "migrate";
  worse.metric = "recover_ms";
  worse.unit = "ms";
  worse.change = Shift::kWorse;
  worse.n_before = worse.n_after = 24;
  worse.before = 5.2;
  worse.after = 7.3;
  worse.worse_by = 2.1;
  worse.interval = {1.6, 2.7};
  worse.floor = 0.5;
  worse.floor_from = "8 runs";
  worse.p = 0.00001;
  ComparisonRow rate = worse;
  rate.metric = "busbw";
  rate.unit = "GB/s";
  rate.better = Better::kHigher;
  rate.change = Shift::kSame;
  ComparisonRow unknown = worse;
  unknown.metric = "detect_ms";
  unknown.change = Shift::kUnknown;
  unknown.why = "24 samples before, 0 now | with <markup>";
  unknown.n_after = 0;
  unknown.after.reset();
  ComparisonRow fact;
  fact.scenario = "nic_down";
  fact.mode = "migrate";
  fact.metric = "outcome";
  fact.is_fact = true;
  fact.change = Shift::kSame;
  fact.why = "ok before, ok now";
  comparison.rows = {fact, worse, rate, unknown};
  comparison.notes = {"cpu: A before, B now"};
  return comparison;
}

TEST(ComparisonReport, text_says_what_is_worse_and_by_how_much) {
  const std::string text = comparison_text(sample_comparison());
  EXPECT_NE(
      text.find("worse: nic_down migrate recover_ms: 5.20 ms before, 7.30 ms now; worse by +2.10 ms (95 %: "
                "+1.60 to +2.70), noise floor 0.500 ms (8 runs), p < 0.001"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("unknown: nic_down migrate detect_ms"), std::string::npos);
  EXPECT_NE(text.find("Comparison: fail, 1 of 4 checks worse"), std::string::npos);
  EXPECT_EQ(text.find("outcome"), std::string::npos);  // nothing is the matter with it
}

TEST(ComparisonReport, markdown_is_one_table_whose_cells_break_nothing) {
  const std::string text = comparison_markdown(sample_comparison());
  EXPECT_NE(text.find("| nic\\_down | migrate | recover\\_ms | 5.20 ms | 7.30 ms |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("0 now \\| with \\<markup>"), std::string::npos);
  EXPECT_NE(text.find("### r2bench: fail"), std::string::npos);
}

TEST(ComparisonReport, annotations_are_errors_and_warnings_of_one_line_each) {
  SampleComparison comparison = sample_comparison();
  comparison.rows[3].why = "100 %\nof it";
  EXPECT_EQ(comparison_annotations(comparison)
                .find("::error title=r2bench regression::nic_down migrate recover_ms: "),
            0u);
  EXPECT_NE(comparison_annotations(comparison)
                .find("::warning title=r2bench unknown::nic_down migrate detect_ms: 100 %25%0Aof it\n"),
            std::string::npos);
}

TEST(ComparisonReport, junit_counts_and_escapes) {
  const std::string text = comparison_junit(sample_comparison());
  EXPECT_NE(text.find("tests=\"4\" failures=\"1\" errors=\"1\""), std::string::npos) << text;
  EXPECT_NE(text.find("with &lt;markup&gt;"), std::string::npos);
  EXPECT_NE(comparison_junit(SampleComparison{}).find("errors=\"0\""), std::string::npos);
  EXPECT_NE(comparison_junit(SampleComparison{}).find("nothing to compare"), std::string::npos);
}

TEST(ComparisonReport, json_for_benchmark_services) {
  const SampleComparison comparison = sample_comparison();
  const auto smaller = benchmark_action_json(comparison, Better::kLower);
  ASSERT_EQ(smaller.size(), 1u);  // what was not measured is no number
  EXPECT_EQ(smaller[0]["name"], "nic_down/migrate/recover_ms");
  EXPECT_EQ(smaller[0]["unit"], "ms");
  EXPECT_EQ(smaller[0]["value"], 7.3);
  EXPECT_EQ(benchmark_action_json(comparison, Better::kHigher)[0]["name"], "nic_down/migrate/busbw");
  EXPECT_EQ(bencher_json(comparison)["nic_down/migrate"]["recover_ms (ms)"]["value"], 7.3);
  const auto all = comparison_json(comparison);
  EXPECT_EQ(all["change"], "worse");
  EXPECT_EQ(all["rows"].size(), 4u);
  EXPECT_TRUE(all["rows"][3]["after"].is_null());
}

TEST(ComparisonReport, what_never_came_is_said_so_and_is_null) {
  SampleComparison comparison = sample_comparison();
  comparison.rows[1].after = std::numeric_limits<double>::infinity();
  comparison.rows[1].worse_by = std::numeric_limits<double>::infinity();
  EXPECT_NE(comparison_text(comparison).find("never ms now"), std::string::npos)
      << comparison_text(comparison);
  EXPECT_TRUE(comparison_json(comparison)["rows"][1]["after"].is_null());
  EXPECT_TRUE(benchmark_action_json(comparison, Better::kLower).empty());
}

}  // namespace
}  // namespace r2bench
