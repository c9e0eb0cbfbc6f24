// SPDX-License-Identifier: Apache-2.0
// Is one sample larger than another, and by how much? Mann-Whitney's U, the shift between two samples and its
// bootstrap interval. Pure: random numbers come from a generator that is passed in.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace r2bench {

struct RankTest {
  double u = 0;  ///< pairs in which the second sample's value is larger; a tie counts one half
  double p = 1;  ///< one-sided: of so large a U, or a larger one, if both were drawn from one distribution
  bool exact = false;  ///< from the distribution of U; else from its normal approximation
};

/// One-sided Mann-Whitney U test of "values of `second` tend to be larger than those of `first`". Exact for
/// samples of at most 20 values each without ties, else the normal approximation with corrections for ties
/// and continuity, as scipy.stats.mannwhitneyu(second, first, alternative="greater") has it. Infinite values
/// are the largest. p is 1 when a sample is empty.
RankTest mann_whitney_larger(const std::vector<double>& first, const std::vector<double>& second);

/// The nearest-rank quantile: the smallest value that at least `percent` of the sample do not exceed.
/// `values` need not be sorted and must not be empty.
double quantile(std::vector<double> values, double percent);

/// How far `second` lies above `first`: the smaller of the differences of the lower quartiles and of the
/// medians, if both are above 0; the larger one (nearer to 0) if both are below; else 0. What a program adds
/// to every value it adds to both; what a busy machine adds to some values it adds to the upper ones.
double shift(const std::vector<double>& first, const std::vector<double>& second);

struct ConfidenceInterval {
  double low = 0, high = 0;
};
/// Percentile bootstrap of shift(): 95 % of `resamples` pairs of resamples, drawn with replacement.
ConfidenceInterval bootstrap_shift(const std::vector<double>& first, const std::vector<double>& second,
                                   size_t resamples, std::mt19937_64& random);

/// Holm's correction of p-values for testing several hypotheses at once; in the order given.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace r2bench
