// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace r2bench {
namespace {

TEST(Statistics, percentiles_are_measured_values_by_nearest_rank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Distribution d = summarize(values);
  EXPECT_EQ(d.n, 100u);
  EXPECT_EQ(d.p50, 50);
  EXPECT_EQ(d.p95, 95);
  EXPECT_EQ(d.p99, 99);
  EXPECT_EQ(d.max, 100);
}

TEST(Statistics, a_single_value_is_every_percentile_and_none_gives_zero) {
  EXPECT_EQ(summarize({7.5}).p50, 7.5);
  EXPECT_EQ(summarize({7.5}).p99, 7.5);
  EXPECT_EQ(summarize({3, 1}).p50, 1);
  EXPECT_EQ(summarize({}).n, 0u);
  EXPECT_EQ(summarize({}).max, 0);
}

TEST(Statistics, student_quantiles_agree_with_the_tables) {
  EXPECT_TRUE(std::isinf(student_t95(0)));
  EXPECT_DOUBLE_EQ(student_t95(1), 6.314);
  EXPECT_DOUBLE_EQ(student_t95(9), 1.833);
  EXPECT_NEAR(student_t95(40), 1.684, 1e-3);
  EXPECT_NEAR(student_t95(120), 1.658, 1e-3);
  EXPECT_NEAR(student_t95(1'000'000), 1.6449, 1e-3);
}

TEST(Statistics, upper_bound_of_the_mean_is_mean_plus_t_times_standard_error) {
  const MeanBound bound = mean_upper95({1, 2, 3});  // s = 1, s/sqrt(3) = 0.57735, t(2) = 2.920
  EXPECT_DOUBLE_EQ(bound.mean, 2);
  EXPECT_NEAR(bound.upper95, 2 + 2.920 / std::sqrt(3.0), 1e-12);
  EXPECT_TRUE(std::isinf(mean_upper95({5}).upper95));
  EXPECT_TRUE(std::isinf(mean_upper95({}).upper95));  // nothing measured is no overhead of zero
}

TEST(Statistics, overhead_is_taken_pair_by_pair) {
  // The machine doubles its speed between the pairs: only the ratio within a pair counts.
  const Overhead overhead = paired_overhead({1.02, 0.51, 2.04}, {1.0, 0.5, 2.0});
  EXPECT_EQ(overhead.pairs, 3u);
  EXPECT_NEAR(overhead.mean_pct, 2.0, 1e-9);
  EXPECT_NEAR(overhead.upper95_pct, 2.0, 1e-9);
  EXPECT_NEAR(overhead.loss_mean_pct, 100 * (1 - 1 / 1.02), 1e-9);
  EXPECT_THROW(paired_overhead({1}, {1, 2}), std::invalid_argument);
  EXPECT_THROW(paired_overhead({0}, {1}), std::invalid_argument);
}

TEST(Statistics, two_modes_that_take_turns_at_being_faster_cost_nothing) {
  const Overhead overhead = paired_overhead({1.25, 1.0}, {1.0, 1.25});
  EXPECT_NEAR(overhead.mean_pct, 0, 1e-9);
  EXPECT_NEAR(overhead.loss_mean_pct, 0, 1e-9);
  EXPECT_NEAR(overhead.each_pct[0], 25, 1e-9);
  const double half = 6.314 * std::log(1.25);  // the error of the mean of two values is half their distance
  EXPECT_NEAR(overhead.upper95_pct, 100 * std::expm1(half), 1e-6);
  EXPECT_NEAR(overhead.loss_upper95_pct, -100 * std::expm1(-half), 1e-6);
  EXPECT_NEAR(lower95_pct(overhead.mean_pct, overhead.upper95_pct, overhead.mean_of, false),
              100 * std::expm1(-half), 1e-6);
  EXPECT_NEAR(lower95_pct(overhead.loss_mean_pct, overhead.loss_upper95_pct, overhead.mean_of, true),
              -100 * std::expm1(half), 1e-6);
  EXPECT_TRUE(std::isinf(paired_overhead({1}, {1}).loss_upper95_pct));  // one pair bounds nothing
}

TEST(Statistics, the_upper_bound_is_below_the_true_loss_in_no_more_than_5_of_100_experiments) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 0.2);
  constexpr size_t kExperiments = 1000, kPairs = 120;
  size_t loss_below = 0, time_below = 0;
  for (size_t experiment = 0; experiment < kExperiments; ++experiment) {
    std::vector<double> with, without;
    for (size_t pair = 0; pair < kPairs; ++pair) {
      with.push_back(std::exp(noise(random)) / 0.96);  // 4 % less busbw
      without.push_back(std::exp(noise(random)));
    }
    const Overhead overhead = paired_overhead(with, without);
    loss_below += overhead.loss_upper95_pct < 4;
    time_below += overhead.upper95_pct < 100 * (1 / 0.96 - 1);
  }
  EXPECT_LE(loss_below, kExperiments * 7 / 100);
  EXPECT_GE(loss_below, kExperiments * 3 / 100);
  EXPECT_EQ(time_below, loss_below);
}

TEST(Statistics, the_mean_of_older_results_is_that_of_the_ratios) {
  const Overhead overhead = paired_overhead({1.25, 1.0}, {1.0, 1.25}, PairMean::kRatios);
  EXPECT_NEAR(overhead.mean_pct, 2.5, 1e-9);
  EXPECT_NEAR(overhead.loss_mean_pct, -2.5, 1e-9);
  EXPECT_NEAR(lower95_pct(1, 3.5, PairMean::kRatios, false), -1.5, 1e-9);
}

TEST(Statistics, cpu_loss_is_taken_pair_by_pair_and_leaves_the_rest_alone) {
  Overhead overhead = paired_overhead({1.02, 0.51, 2.04}, {1.0, 0.5, 2.0});
  add_cpu_loss(overhead, {3.3, 2.0}, {3.0, 2.0});  // 10 % and none, t(1) = 6.314
  EXPECT_EQ(overhead.pairs, 3u);
  EXPECT_NEAR(overhead.mean_pct, 2.0, 1e-9);
  EXPECT_EQ(overhead.cpu_pairs, 2u);
  EXPECT_NEAR(overhead.cpu_mean_pct, 100 * (std::sqrt(1.1) - 1), 1e-9);
  EXPECT_NEAR(overhead.cpu_upper95_pct, 100 * (std::exp((1 + 6.314) * std::log(1.1) / 2) - 1), 1e-6);
}

}  // namespace
}  // namespace r2bench
