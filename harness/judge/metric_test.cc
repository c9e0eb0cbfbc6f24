// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/metric.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "harness/judge/job_record.h"
#include "harness/measure/testing/sample_result.h"

namespace r2bench {
namespace metrics_of {
std::vector<Metric> of_the_page();           // README.md's slowest()
std::vector<Metric> measured_of_the_page();  // and its quiet()
}  // namespace metrics_of
namespace {

TEST(Metrics, are_declared_once_and_whole) {
  std::set<std::string> names;
  for (const Metric& metric : all_metrics()) {
    SCOPED_TRACE(metric.info.name);
    EXPECT_TRUE(names.insert(metric.info.name).second);
    EXPECT_FALSE(metric.info.meaning.empty());
    EXPECT_NE(std::string(metric.wanted).empty(), metric.info.words.empty())
        << "words say what is wanted themselves";
    EXPECT_EQ(find_metric(metric.info.name)->meaning, metric.info.meaning);
  }
  EXPECT_EQ(metric_of("recover_msmax"), nullptr);
}

TEST(Metrics, have_a_value_or_a_reason_in_every_mode) {
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  for (const ModeResult& mode : result.modes)
    for (const Metric& metric : all_metrics()) {
      const Value value = metric.value({scenario, result, mode});
      EXPECT_FALSE(value.number && value.word) << metric.info.name;
      EXPECT_FALSE(value.text.empty()) << metric.info.name;
      EXPECT_TRUE(!value.word || metric.info.text || !metric.info.words.empty()) << metric.info.name;
      EXPECT_TRUE(!metric.by_round || !metric.by_round(mode).empty()) << metric.info.name;
    }
}

const Metric& metric_of_the_page(const std::string& name) {
  static const std::vector<Metric> metrics = {complete(metrics_of::of_the_page().front()),
                                              complete(metrics_of::measured_of_the_page().front())};
  return metrics[name == metrics.front().info.name ? 0 : 1];
}

#include "test_of_the_page.inc"

TEST(Metrics, the_one_of_the_page_is_read_and_measured) {
  const std::vector<Metric> of_the_page = metrics_of::of_the_page();
  ASSERT_EQ(of_the_page.size(), 1u);
  const Metric& slowest = of_the_page.front();
  const Numeric wanted = std::get<Numeric>(parse_condition(slowest.info, "<= 50 ms"));
  EXPECT_THROW(parse_condition(slowest.info, "<= 50"), ExpressionError);
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  const Value value = slowest.value({scenario, result, result.modes.front()});
  ASSERT_TRUE(value.number);
  EXPECT_DOUBLE_EQ(*value.number, 34.4);
  EXPECT_TRUE(compare(*value.number, wanted.comparison, *evaluate(wanted.bound, nullptr)));
  ModeResult empty;
  EXPECT_FALSE(slowest.value({scenario, result, empty}).number);
}

TEST(Metrics, what_is_measured_of_a_job_has_its_value_in_the_result) {
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  const Metric& quiet = metric_of_the_page("quiet_ms");
  ModeResult mode;
  const Value none = quiet.value({scenario, result, mode});
  EXPECT_FALSE(none.number);
  EXPECT_EQ(none.text, "no deliveries were recorded");
  mode.measured["quiet_ms"] = 12.5;
  EXPECT_EQ(quiet.value({scenario, result, mode}).number, 12.5);
  EXPECT_EQ(quiet.value({scenario, result, mode}).text, "12.5 ms");
}

TEST(Metrics, numbers_of_several_jobs_become_one_as_the_metric_says) {
  const std::vector<double> numbers = {3, 1, 5};
  EXPECT_EQ(pooled(numbers, Pooled::kMost), 5);
  EXPECT_EQ(pooled(numbers, Pooled::kLeast), 1);
  EXPECT_EQ(pooled(numbers, Pooled::kSum), 9);
  EXPECT_EQ(pooled(numbers, Pooled::kMean), 3);
}

TEST(Metrics, what_is_counted_has_a_value_for_each_round) {
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  Metric metric{.info = {.name = "drops", .meaning = "x"}, .wanted = "a count, in each round"};
  metric.counts = [](const r2ccl::trace::Event&) { return true; };
  const Metric counted = complete(metric);
  ModeResult mode;
  EXPECT_EQ(counted.value({scenario, result, mode}).number, 0.0);
  mode.counts["drops"] = 3;
  mode.rounds = {{{"drops", 3}}};
  EXPECT_EQ(counted.value({scenario, result, mode}).text, "3");
  mode.rounds = {{{"drops", 1}}, {{"drops", 2}}};
  EXPECT_EQ(counted.by_round(mode), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(counted.value({scenario, result, mode}).text, "1 … 2 in 2 rounds");
}

TEST(Metrics, what_is_compared_has_a_unit_that_samples_have_too) {
  for (const Metric& metric : all_metrics())
    if (metric.info.compared) {
      EXPECT_TRUE(metric.info.words.empty() && !metric.info.text) << metric.info.name;
      EXPECT_TRUE(metric.info.unit == Unit::kNone || std::string(metric.info.compared->unit).empty())
          << metric.info.name;
    }
}

TEST(Metrics, renewal_in_a_migration_is_one_between_its_fence_and_its_end) {
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  const auto event = [](uint64_t ms, const char* source, const char* name, int64_t channel, uint64_t c = 0) {
    LoggedEvent logged;
    logged.time_ns = ms * 1'000'000;
    logged.source = source;
    logged.name = name;
    logged.channel = channel;
    logged.c = c;
    return logged;
  };
  ModeResult mode = result.modes[0];
  mode.ranks.assign(2, {});
  mode.events = {
      event(10, "node0/rank0", "fence_started", 1),    event(11, "node0/rank0", "fence_started", 2),
      event(12, "node1/rank1", "fence_started", 1, 1),  // a planned failback
      event(14, "node0/rank0", "migration_done", 1),    // channel 2 is still on its way
      event(16, "node0/rank0", "migration_done", 2),   event(30, "node1/rank1", "fence_started", 7)};
  const auto found = [&](uint64_t first_ms, uint64_t second_ms) {
    for (size_t i = 0; i < 2; ++i) {
      mode.ranks[i].label = i == 0 ? "node0/rank0" : "node1/rank1";
      mode.ranks[i].renewal = RenewalResult{20, true, 2, 500, (i == 0 ? first_ms : second_ms) * 1'000'000};
    }
    return metric_of("renewed_in_migration")->value({scenario, result, mode});
  };
  EXPECT_EQ(found(9, 9).number, 0.0);
  EXPECT_EQ(found(13, 13).number, 1.0);
  EXPECT_EQ(found(15, 15).number, 1.0);
  EXPECT_EQ(found(17, 17).number, 0.0);
  EXPECT_EQ(found(15, 31).number, 2.0);
  mode.events_left_out = 3;
  EXPECT_FALSE(found(15, 31).number);
  mode.ranks[1].renewal.reset();
  EXPECT_FALSE(metric_of("renewed_in_migration")->value({scenario, result, mode}).number);
}

TEST(Metrics, detected_by_says_of_how_many_lost_nics_no_fence_tells) {
  const RunResult result = sample_result();
  const Scenario scenario = sample_scenario();
  ModeResult mode = result.modes[1];
  mode.detected_by = {{"watchdog", 1}};
  mode.faults.resize(1);
  const auto text = [&] { return metric_of("detected_by")->value({scenario, result, mode}).text; };
  EXPECT_EQ(text(), "watchdog");
  FaultSample undetected = mode.faults[0];
  undetected.detected_by = "";
  for (const auto& [kind, wanted] :
       {std::pair("throttle", "watchdog"), {"port_down", "watchdog; no fence answered 1 more fault"}}) {
    undetected.kind = kind;
    mode.faults.push_back(undetected);
    EXPECT_EQ(text(), wanted);
  }
}

TEST(Metrics, the_page_of_scenarios_lists_them) {
  const std::string file = std::string(R2BENCH_SOURCE_DIR) + "/harness/scenario/README.md";
  std::stringstream read;
  read << std::ifstream(file).rdbuf();
  const std::string page = read.str(), end = "<!-- /metrics -->";
  const size_t mark = page.find("<!-- metrics:"), from = page.find("-->\n", mark) + 4, to = page.find(end);
  ASSERT_NE(mark, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string wanted = "\n" + metrics_as_markdown() + "\n";
  if (std::getenv("R2BENCH_UPDATE_GOLDEN") != nullptr)
    std::ofstream(file) << page.substr(0, from) << wanted << page.substr(to);
  else
    EXPECT_EQ(page.substr(from, to - from), wanted)
        << "R2BENCH_UPDATE_GOLDEN=1 ./r2bench test -R '^verdict_test$' writes it";
}

}  // namespace
}  // namespace r2bench
