// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace r2bench {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// `count` samples around `center`, a different order for each seed.
std::vector<double> around(double center, size_t count, double spread, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(center, spread);
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

SampleSet set_of(const std::string& name, std::vector<MetricSamples> metrics) {
  SampleSet set;
  set.name = name;
  ModeSamples mode;
  mode.scenario = "nic_down";
  mode.mode = "migrate";
  mode.conditions = {{"evidence", "emulated"}, {"fabric.nodes", "2"}};
  mode.outcomes = {"ok"};
  mode.metrics = std::move(metrics);
  set.modes.push_back(std::move(mode));
  return set;
}

MetricSamples recover(std::vector<std::vector<double>> runs) {
  return {"recover_ms", "ms", Better::kLower, std::move(runs), {}};
}

const ComparisonRow& row(const SampleComparison& comparison, const std::string& metric) {
  for (const ComparisonRow& r : comparison.rows)
    if (r.metric == metric) return r;
  throw std::runtime_error("no row " + metric);
}

TEST(Compare, finds_a_shift_that_is_significant_and_larger_than_the_floor) {
  const auto before =
      set_of("A", {recover({around(5, 24, 0.5, 1), around(5, 24, 0.5, 2), around(5, 24, 0.5, 3)})});
  const auto later = set_of("B", {recover({around(7, 24, 0.5, 4)})});
  const SampleComparison comparison = compare(before, later, {});
  EXPECT_EQ(row(comparison, "recover_ms").change, Shift::kWorse);
  EXPECT_NEAR(row(comparison, "recover_ms").worse_by, 2, 0.5);
  EXPECT_LT(row(comparison, "recover_ms").p, 0.01);
  EXPECT_EQ(comparison.change(), Shift::kWorse);
  EXPECT_EQ(row(compare(later, before, {}), "recover_ms").change, Shift::kBetter);
}

TEST(Compare, what_differs_in_its_faults_or_its_environment_is_not_comparable) {
  const auto with = [](std::map<std::string, std::string> conditions) {
    SampleSet set = set_of("A", {recover({around(5, 24, 0.5, 1)})});
    set.modes[0].conditions.merge(conditions);
    return set;
  };
  const auto plain =
      with({{"env", "none"}, {"plan", "during iteration 60: throttle node1/nic0 (rate: 1 Mbit/s)"}});
  const auto tuned =
      with({{"env", "A=1"}, {"plan", "during iteration 60: throttle node1/nic0 (rate: 1 Mbit/s)"}});
  const auto faster =
      with({{"env", "none"}, {"plan", "during iteration 60: throttle node1/nic0 (rate: 9 Mbit/s)"}});
  EXPECT_EQ(row(compare(plain, tuned, {}), "conditions").why,
            "not comparable: env is none before and A=1 now");
  EXPECT_EQ(compare(plain, tuned, {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(plain, faster, {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(plain, plain, {}).change(), Shift::kSame);
  Thresholds thresholds;
  thresholds.may_differ = {"env.A"};
  EXPECT_EQ(compare(plain, tuned, thresholds).change(), Shift::kSame);
  EXPECT_EQ(compare(plain, faster, thresholds).change(), Shift::kUnknown);
  const auto doubly = with(
      {{"env", "A=2, or 3, B=1"}, {"plan", "during iteration 60: throttle node1/nic0 (rate: 1 Mbit/s)"}});
  EXPECT_EQ(row(compare(tuned, doubly, thresholds), "conditions").why,
            "not comparable: env is none before and B=1 now");
  const auto of_several = with({{"env", "various"}});  // runs of one side that differ
  EXPECT_EQ(compare(of_several, tuned, thresholds).change(), Shift::kUnknown);
  thresholds.may_differ = {"env"};
  EXPECT_EQ(compare(tuned, doubly, thresholds).change(), Shift::kSame);
  EXPECT_EQ(compare(of_several, tuned, thresholds).change(), Shift::kSame);
  thresholds.may_differ = {"env.A", "env.B"};
  EXPECT_EQ(compare(tuned, doubly, thresholds).change(), Shift::kSame);
  thresholds.may_differ = {"faults.0.rate"};
  EXPECT_EQ(compare(plain, faster, thresholds).change(), Shift::kSame);
  EXPECT_EQ(compare(plain, tuned, thresholds).change(), Shift::kUnknown);
  // An older side does not say them.
  EXPECT_EQ(compare(with({}), tuned, {}).change(), Shift::kSame);
  EXPECT_EQ(compare(tuned, with({}), {}).change(), Shift::kSame);
}

TEST(Compare, a_baseline_without_samples_of_a_metric_proves_nothing) {
  const auto measured = set_of("B", {recover({around(500, 24, 0.5, 1)})});
  for (const auto& runs : {std::vector<std::vector<double>>{{}}, {}}) {
    const auto empty = set_of("A", {recover(runs)});
    const SampleComparison comparison = compare(empty, measured, {});
    EXPECT_EQ(row(comparison, "recover_ms").change, Shift::kUnknown);
    EXPECT_EQ(row(comparison, "recover_ms").why,
              "0 samples before, 24 now, and 8 are needed on each side; --repeats makes more");
    EXPECT_FALSE(row(comparison, "recover_ms").before);
    EXPECT_EQ(comparison.change(), Shift::kUnknown);
    EXPECT_EQ(compare(measured, empty, {}).change(), Shift::kUnknown);
    EXPECT_EQ(compare(empty, empty, {}).change(), Shift::kSame) << "neither measures it";
  }
}

TEST(Compare, a_run_that_was_cut_short_is_unknown_not_worse) {
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  auto after = set_of("B", {recover({around(5, 24, 0.5, 2)})});
  after.modes[0].outcomes = {"ok", "cancelled"};
  EXPECT_EQ(row(compare(before, after, {}), "outcome").change, Shift::kUnknown);
  EXPECT_EQ(row(compare(before, after, {}), "outcome").why, "ok before, various now: it was cut short");
  EXPECT_EQ(compare(before, after, {}).change(), Shift::kUnknown);
  after.modes[0].outcomes = {"error", "cancelled"};
  EXPECT_EQ(row(compare(before, after, {}), "outcome").change, Shift::kWorse);
  after.modes[0].outcomes = {"ok"};
  EXPECT_EQ(compare(before, after, {}).change(), Shift::kSame);
}

TEST(Compare, a_significant_shift_below_the_floor_is_no_failure) {
  // The baseline's runs differ by 3 ms among themselves: 1 ms more proves nothing.
  const auto before =
      set_of("A", {recover({around(4, 24, 0.3, 1), around(7, 24, 0.3, 2), around(7, 24, 0.3, 3)})});
  const auto later = set_of("B", {recover({around(8, 24, 0.3, 4)})});
  const SampleComparison comparison = compare(before, later, {});
  EXPECT_LT(row(comparison, "recover_ms").p, 0.01);
  EXPECT_GT(row(comparison, "recover_ms").floor, 2.5);
  EXPECT_EQ(row(comparison, "recover_ms").floor_from, "3 runs");
  EXPECT_EQ(row(comparison, "recover_ms").change, Shift::kSame);
}

TEST(Compare, a_large_shift_that_chance_explains_is_no_failure) {
  const auto before = set_of("A", {recover({{1, 9, 2, 8, 3, 7, 4, 6}})});
  const auto later = set_of("B", {recover({{2, 12, 3, 9, 4, 8, 5, 11}})});
  EXPECT_EQ(row(compare(before, later, {}), "recover_ms").change, Shift::kSame);
}

TEST(Compare, a_machine_that_disturbs_half_of_the_faults_is_no_regression) {
  std::vector<double> disturbed = around(5, 24, 0.4, 9);
  for (size_t i = 0; i < disturbed.size(); i += 2) disturbed[i] += 80;
  const auto before = set_of("A", {recover({around(5, 24, 0.4, 1), around(5, 24, 0.4, 2)})});
  EXPECT_EQ(row(compare(before, set_of("B", {recover({disturbed})}), {}), "recover_ms").change, Shift::kSame);
}

TEST(Compare, higher_is_better_for_rates) {
  const MetricSamples fast = {"busbw", "GB/s", Better::kHigher, {around(10, 20, 0.1, 1)}, {}};
  const MetricSamples slow = {"busbw", "GB/s", Better::kHigher, {around(8, 20, 0.1, 2)}, {}};
  EXPECT_EQ(row(compare(set_of("A", {fast}), set_of("B", {slow}), {}), "busbw").change, Shift::kWorse);
  EXPECT_EQ(row(compare(set_of("A", {slow}), set_of("B", {fast}), {}), "busbw").change, Shift::kBetter);
}

TEST(Compare, what_is_missing_is_unknown) {
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  EXPECT_EQ(compare(before, set_of("B", {}), {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(before, set_of("B", {recover({{}})}), {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(before, set_of("B", {recover({{5, 5, 5}})}), {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(before, SampleSet{}, {}).change(), Shift::kUnknown);
  EXPECT_EQ(compare(SampleSet{}, before, {}).change(), Shift::kUnknown);
}

TEST(Compare, what_each_run_has_once_is_noted_until_there_are_enough_runs) {
  const auto renewals = [](size_t runs, double ms) {
    MetricSamples samples = {"renew_ms", "ms", Better::kLower, {}, {}};
    for (size_t i = 0; i < runs; ++i) samples.runs.push_back({ms + 0.01 * double(i)});
    return samples;
  };
  const MetricSamples same = recover({around(5, 24, 0.5, 1)});
  const SampleComparison few =
      compare(set_of("A", {same, renewals(1, 5)}), set_of("B", {same, renewals(1, 9)}), {});
  EXPECT_EQ(few.change(), Shift::kSame);
  ASSERT_EQ(few.notes.size(), 1u);
  EXPECT_NE(few.notes[0].find("renew_ms: 1 sample before, 1 now"), std::string::npos) << few.notes[0];
  const SampleComparison many =
      compare(set_of("A", {same, renewals(12, 5)}), set_of("B", {same, renewals(12, 9)}), {});
  EXPECT_EQ(row(many, "renew_ms").change, Shift::kWorse);
}

TEST(Compare, other_conditions_are_not_comparable) {
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  auto later = set_of("B", {recover({around(5, 24, 0.5, 2)})});
  later.modes[0].conditions["fabric.nodes"] = "4";
  const SampleComparison comparison = compare(before, later, {});
  EXPECT_EQ(comparison.change(), Shift::kUnknown);
  EXPECT_EQ(row(comparison, "conditions").why, "not comparable: fabric.nodes is 2 before and 4 now");
}

TEST(Compare, wrong_data_or_another_outcome_fails_without_statistics) {
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  auto later = set_of("B", {recover({around(5, 24, 0.5, 2)})});
  later.modes[0].wrong = {"wrong_elements 1"};
  EXPECT_EQ(row(compare(before, later, {}), "correctness").change, Shift::kWorse);
  later.modes[0].wrong.clear();
  later.modes[0].outcomes = {"ok", "hang"};
  EXPECT_EQ(row(compare(before, later, {}), "outcome").change, Shift::kWorse);
}

TEST(Compare, a_recovery_that_never_came_is_worse_than_all) {
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  const auto never = set_of("B", {recover({std::vector<double>(24, kInf)})});
  EXPECT_EQ(row(compare(before, never, {}), "recover_ms").change, Shift::kWorse);
  EXPECT_EQ(row(compare(never, never, {}), "recover_ms").change, Shift::kSame);
}

TEST(Compare, the_tail_is_compared_from_a_hundred_samples_on) {
  auto calm = around(5, 200, 0.2, 1), tail = around(5, 200, 0.2, 2);
  for (size_t i = 0; i < 10; ++i) tail[i * 20] += 50;
  const SampleComparison comparison =
      compare(set_of("A", {recover({calm})}), set_of("B", {recover({tail})}), {});
  EXPECT_EQ(row(comparison, "recover_ms").change, Shift::kSame);
  EXPECT_EQ(row(comparison, "recover_ms.p99").change, Shift::kWorse);
  calm.resize(50);
  EXPECT_THROW(
      row(compare(set_of("A", {recover({calm})}), set_of("B", {recover({tail})}), {}), "recover_ms.p99"),
      std::runtime_error);
}

TEST(Compare, by_turns_only_what_differs_within_a_run_is_noise) {
  // A machine that was three times slower in one of the baseline's runs: its reference was, too.
  MetricSamples metric = recover({around(5, 24, 0.3, 1), around(15, 24, 0.3, 2)});
  metric.references = {around(5, 24, 0.3, 3), around(15.4, 24, 0.3, 4)};
  const SampleSet baseline = set_of("baseline", {metric});
  const auto reference = set_of("reference", {recover({around(10, 24, 0.3, 5)})});
  const auto later = set_of("now", {recover({around(12, 24, 0.3, 6)})});
  const SampleComparison comparison = compare_by_turns(reference, later, baseline, {});
  EXPECT_LT(row(comparison, "recover_ms").floor, 1);
  EXPECT_EQ(row(comparison, "recover_ms").change, Shift::kWorse);
  EXPECT_EQ(row(compare(baseline, later, {}), "recover_ms").change, Shift::kSame);
}

TEST(Compare, floors_can_be_given) {
  Thresholds thresholds;
  thresholds.floors["recover_ms"] = 3;
  const auto before = set_of("A", {recover({around(5, 24, 0.5, 1)})});
  const auto later = set_of("B", {recover({around(7, 24, 0.5, 4)})});
  EXPECT_EQ(row(compare(before, later, thresholds), "recover_ms").change, Shift::kSame);
  EXPECT_EQ(row(compare(before, later, thresholds), "recover_ms").floor_from, "given");
}

TEST(Compare, equal_programs_are_rarely_taken_for_different) {
  // 400 comparisons of equal programs at α = 0.02; most of their shifts are below the floor as well.
  int alarms = 0;
  for (unsigned i = 0; i < 400; ++i) {
    const auto a = set_of("A", {recover({around(5, 24, 1, 3 * i)})});
    const auto b = set_of("B", {recover({around(5, 24, 1, 3 * i + 1)})});
    Thresholds thresholds;
    thresholds.resamples = 200;
    alarms += compare(a, b, thresholds).change() == Shift::kWorse;
  }
  EXPECT_LE(alarms, 12);
}

}  // namespace
}  // namespace r2bench
