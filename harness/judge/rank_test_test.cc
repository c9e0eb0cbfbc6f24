// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/rank_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace r2bench {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(RankTest, agrees_with_published_exact_values) {
  // Hollander & Wolfe, Nonparametric Statistical Methods, table 4.1; R: wilcox.test(x, y, "greater"): W = 35.
  const std::vector<double> x = {0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const std::vector<double> y = {1.15, 0.88, 0.90, 0.74, 1.21};
  const RankTest test = mann_whitney_larger(y, x);
  EXPECT_TRUE(test.exact);
  EXPECT_EQ(test.u, 35);
  EXPECT_NEAR(test.p, 0.1272, 5e-5);
  // scipy's documentation: males against females, U = 17, p = 0.1111 on both sides together.
  const std::vector<double> males = {19, 22, 16, 29, 24}, females = {20, 11, 17, 12};
  EXPECT_EQ(mann_whitney_larger(females, males).u, 17);
  EXPECT_NEAR(mann_whitney_larger(females, males).p, 0.1111111 / 2, 1e-6);
  EXPECT_NEAR(mann_whitney_larger({1, 2, 3}, {4, 5, 6}).p, 1.0 / 20, 1e-12);
  EXPECT_NEAR(mann_whitney_larger({4, 5, 6}, {1, 2, 3}).p, 1, 1e-12);
}

TEST(RankTest, counts_arrangements_as_enumeration_does) {
  // Every choice of which 4 of the values 0 … 8 are the second sample.
  for (unsigned chosen = 0; chosen < 512; ++chosen) {
    if (__builtin_popcount(chosen) != 4) continue;
    const auto u_of = [](unsigned set) {
      int u = 0;
      for (int i = 0; i < 9; ++i)
        for (int j = 0; j < i; ++j) u += (set >> i & 1) && !(set >> j & 1);
      return u;
    };
    int as_large = 0, all = 0;
    for (unsigned other = 0; other < 512; ++other)
      if (__builtin_popcount(other) == 4) ++all, as_large += u_of(other) >= u_of(chosen);
    std::vector<double> first, second;
    for (int i = 0; i < 9; ++i) (chosen >> i & 1 ? second : first).push_back(i);
    const RankTest test = mann_whitney_larger(first, second);
    ASSERT_EQ(test.u, u_of(chosen));
    ASSERT_NEAR(test.p, double(as_large) / all, 1e-12);
  }
}

TEST(RankTest, approximates_with_corrections_for_ties_and_continuity) {
  // U = 7.5 of 9; variance 9/12·(7 − (3·(8 − 2))/30)… written out: two ties of two, one of two.
  const RankTest tied = mann_whitney_larger({1, 2, 3}, {2, 3, 4});
  EXPECT_FALSE(tied.exact);
  EXPECT_EQ(tied.u, 7);
  const double variance = 9.0 / 12 * (7 - 2 * 6.0 / 30);
  EXPECT_NEAR(tied.p, 0.5 * std::erfc((7 - 4.5 - 0.5) / std::sqrt(variance) / std::sqrt(2.0)), 1e-12);
  // Larger samples: scipy's asymptotic p of the males and females above is 0.1113 on both sides.
  std::vector<double> first, second;
  for (int i = 0; i < 25; ++i) first.push_back(i), second.push_back(i + 0.5);
  EXPECT_FALSE(mann_whitney_larger(first, second).exact);
  EXPECT_NEAR(mann_whitney_larger(first, second).p,
              0.5 * std::erfc((12.5 - 0.5) / std::sqrt(25.0 * 25 / 12 * 51) / std::sqrt(2.0)), 1e-12);
}

TEST(RankTest, equal_or_empty_samples_show_nothing) {
  EXPECT_EQ(mann_whitney_larger({}, {1, 2}).p, 1);
  EXPECT_EQ(mann_whitney_larger({1, 2}, {}).p, 1);
  EXPECT_EQ(mann_whitney_larger({5, 5, 5}, {5, 5, 5}).p, 1);
}

TEST(RankTest, what_never_came_is_larger_than_all) {
  EXPECT_NEAR(mann_whitney_larger({1, 2, 3}, {4, 5, kInf}).p, 1.0 / 20, 1e-12);
  EXPECT_EQ(shift({1, kInf, kInf}, {1, kInf, kInf}), 0);
}

TEST(Shift, needs_both_quartile_and_median_to_move) {
  std::vector<double> calm;
  for (int i = 1; i <= 20; ++i) calm.push_back(i);
  std::vector<double> later = calm, disturbed = calm;
  for (double& v : later) v += 2;
  for (size_t i = 0; i < disturbed.size(); i += 2) disturbed[i] += 100;  // half of them
  EXPECT_EQ(shift(calm, later), 2);
  EXPECT_EQ(shift(later, calm), -2);
  EXPECT_EQ(shift(calm, calm), 0);
  EXPECT_EQ(quantile(calm, 50), 10);
  EXPECT_EQ(quantile(calm, 25), 5);
  EXPECT_EQ(quantile({3}, 99), 3);
  EXPECT_LE(shift(calm, disturbed), 5);  // the quartile of the undisturbed half, not 100
}

TEST(Shift, bootstrap_interval_covers_the_shift_and_not_zero) {
  std::mt19937_64 random(7);
  std::vector<double> first, second;
  for (int i = 0; i < 40; ++i) first.push_back(i % 10), second.push_back(i % 10 + 5);
  const ConfidenceInterval interval = bootstrap_shift(first, second, 1000, random);
  EXPECT_LE(interval.low, 5);
  EXPECT_GE(interval.high, 5);
  EXPECT_GT(interval.low, 1);
  EXPECT_LT(interval.high, 9);
}

TEST(Shift, bootstrap_interval_covers_the_truth_as_often_as_it_says) {
  // 300 pairs of samples of 25 whose true shift is 1: a 95 % interval misses it in some 15 of them.
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int covered = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<double> first(25), second(25);
    for (double& v : first) v = normal(random);
    for (double& v : second) v = 1 + normal(random);
    const ConfidenceInterval interval = bootstrap_shift(first, second, 200, random);
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  EXPECT_GE(covered, 255);
}

TEST(Holm, steps_down_from_the_smallest) {
  const std::vector<double> p = holm({0.01, 0.04, 0.03, 0.005});  // R: p.adjust(…, "holm")
  EXPECT_NEAR(p[0], 0.03, 1e-12);
  EXPECT_NEAR(p[1], 0.06, 1e-12);
  EXPECT_NEAR(p[2], 0.06, 1e-12);
  EXPECT_NEAR(p[3], 0.02, 1e-12);
  EXPECT_TRUE(holm({}).empty());
}

}  // namespace
}  // namespace r2bench
