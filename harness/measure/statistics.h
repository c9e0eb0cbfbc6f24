// SPDX-License-Identifier: Apache-2.0
// Small, exact statistics: percentiles that are measured values, and the one-sided bound of a paired
// difference. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/measure/result.h"

namespace r2bench {

/// Nearest-rank percentiles (the smallest value that at least p % of the sample do not exceed).
Distribution summarize(std::vector<double> values);

/// The 0.95 quantile of Student's t with `degrees` degrees of freedom, exact to three decimals.
/// Infinity for 0 degrees: one sample bounds nothing.
double student_t95(size_t degrees);

struct MeanBound {
  size_t n = 0;
  double mean = 0;
  double upper95 = 0;  ///< mean + t·s/√n; infinity for n < 2
};
/// One-sided upper 95 % confidence bound of the mean.
MeanBound mean_upper95(const std::vector<double>& values);

/// `with[i]` and `without[i]` are the two halves of pair i: seconds (or any time) per operation.
/// Fills everything but the labels. Throws std::invalid_argument when the lengths differ or a value is not
/// above 0.
/// The mean and its bound are those of ln(with[i] / without[i]). The mean of the ratios themselves is biased:
/// noise alone makes the time look longer (the mean of e^x is above e^0), and the loss of busbw smaller.
/// (cpu_* apart: add_cpu_loss.)
Overhead paired_overhead(const std::vector<double>& with, const std::vector<double>& without,
                         PairMean mean_of = PairMean::kLogRatios);

/// The one-sided lower 95 % bound that belongs to a mean and its upper bound, all in per cent. `of_loss`:
/// they are losses (1 - ratio), not gains in time (ratio - 1).
double lower95_pct(double mean_pct, double upper95_pct, PairMean mean_of, bool of_loss);

/// Fills cpu_pairs, cpu_mean_pct and cpu_upper95_pct from CPU time per byte of pairs, in the way of
/// `overhead.mean_of`. Throws as above.
void add_cpu_loss(Overhead& overhead, const std::vector<double>& with, const std::vector<double>& without);

/// Both, of the pairs of jobs whose two halves ended well and have a time. Fills everything but the labels.
Overhead overhead_between(const std::vector<const ModeResult*>& with,
                          const std::vector<const ModeResult*>& without,
                          PairMean mean_of = PairMean::kLogRatios);

}  // namespace r2bench
