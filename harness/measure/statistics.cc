// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace r2bench {

Distribution summarize(std::vector<double> values) {
  Distribution d;
  d.n = values.size();
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  const auto rank = [&](size_t percent) {
    const size_t nth = (percent * values.size() + 99) / 100;  // ceil, from 1
    return values[std::max<size_t>(nth, 1) - 1];
  };
  d.p50 = rank(50);
  d.p95 = rank(95);
  d.p99 = rank(99);
  d.max = values.back();
  return d;
}

double student_t95(size_t degrees) {
  static constexpr std::array<double, 30> kTable = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860,
                                                    1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
                                                    1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711,
                                                    1.708, 1.706, 1.703, 1.701, 1.699, 1.697};
  if (degrees == 0) return std::numeric_limits<double>::infinity();
  if (degrees <= kTable.size()) return kTable[degrees - 1];
  // Expansion of the quantile around the normal one (Abramowitz & Stegun 26.7.5), good to 1e-4 here.
  const double z = 1.6448536, n = double(degrees);
  const double z3 = z * z * z, z5 = z3 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
}

MeanBound mean_upper95(const std::vector<double>& values) {
  MeanBound bound;
  bound.n = values.size();
  bound.upper95 = std::numeric_limits<double>::infinity();
  if (values.empty()) return bound;
  double sum = 0;
  for (double v : values) sum += v;
  const double n = double(values.size());
  bound.mean = sum / n;
  if (values.size() < 2) return bound;
  double squares = 0;
  for (double v : values) squares += (v - bound.mean) * (v - bound.mean);
  bound.upper95 = bound.mean + student_t95(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return bound;
}

namespace {

/// Mean and bound, in per cent, of `change(log of the ratio)`, which grows with the ratio.
MeanBound bound_of_change(const std::vector<double>& ratios, PairMean mean_of, double (*change)(double)) {
  std::vector<double> values;
  for (const double ratio : ratios)
    values.push_back(mean_of == PairMean::kLogRatios ? std::log(ratio) : 100 * change(std::log(ratio)));
  MeanBound bound = mean_upper95(values);
  if (mean_of == PairMean::kRatios) return bound;
  bound.mean = 100 * change(bound.mean);
  if (std::isfinite(bound.upper95)) bound.upper95 = 100 * change(bound.upper95);
  return bound;
}

double more_time(double log_ratio) { return std::expm1(log_ratio); }
double less_busbw(double log_ratio) { return -std::expm1(-log_ratio); }  // busbw is 1/time

}  // namespace

Overhead paired_overhead(const std::vector<double>& with, const std::vector<double>& without,
                         PairMean mean_of) {
  if (with.size() != without.size()) throw std::invalid_argument("a pair is incomplete");
  Overhead overhead;
  overhead.mean_of = mean_of;
  overhead.pairs = with.size();
  std::vector<double> ratios;
  for (size_t i = 0; i < with.size(); ++i) {
    if (!(with[i] > 0) || !(without[i] > 0)) throw std::invalid_argument("a time of a pair is not above 0");
    ratios.push_back(with[i] / without[i]);
    overhead.each_pct.push_back(100 * (ratios.back() - 1));
  }
  const MeanBound time = bound_of_change(ratios, mean_of, more_time);
  const MeanBound loss = bound_of_change(ratios, mean_of, less_busbw);
  overhead.mean_pct = time.mean;
  overhead.upper95_pct = time.upper95;
  overhead.loss_mean_pct = loss.mean;
  overhead.loss_upper95_pct = loss.upper95;
  return overhead;
}

void add_cpu_loss(Overhead& overhead, const std::vector<double>& with, const std::vector<double>& without) {
  const Overhead cpu = paired_overhead(with, without, overhead.mean_of);
  overhead.cpu_pairs = cpu.pairs;
  overhead.cpu_mean_pct = cpu.mean_pct;
  overhead.cpu_upper95_pct = cpu.upper95_pct;
}

double lower95_pct(double mean_pct, double upper95_pct, PairMean mean_of, bool of_loss) {
  if (mean_of == PairMean::kRatios) return 2 * mean_pct - upper95_pct;  // Student's t is symmetric
  const double sign = of_loss ? -1 : 1;
  const double mean = std::log1p(sign * mean_pct / 100), upper = std::log1p(sign * upper95_pct / 100);
  return sign * 100 * std::expm1(2 * mean - upper);
}

const char* name(Outcome outcome) {
  // clang-format off
  switch (outcome) {
    case Outcome::kOk: return "ok";
    case Outcome::kError: return "error";
    case Outcome::kHang: return "hang";
    case Outcome::kKilled: return "killed";
    case Outcome::kCancelled: return "cancelled";
  }
  // clang-format on
  return "unknown";
}

Overhead overhead_between(const std::vector<const ModeResult*>& with,
                          const std::vector<const ModeResult*>& without, PairMean mean_of) {
  std::vector<double> time_with, time_without, cpu_with, cpu_without;
  for (size_t pair = 0; pair < std::min(with.size(), without.size()); ++pair) {
    const ModeResult &a = *with[pair], &b = *without[pair];
    if (a.outcome != Outcome::kOk || b.outcome != Outcome::kOk) continue;
    if (a.row.time_us <= 0 || b.row.time_us <= 0) continue;
    time_with.push_back(a.row.time_us);
    time_without.push_back(b.row.time_us);
    if (!a.cpu.known() || !b.cpu.known()) continue;
    cpu_with.push_back(a.cpu.per_gb());
    cpu_without.push_back(b.cpu.per_gb());
  }
  Overhead overhead = paired_overhead(time_with, time_without, mean_of);
  add_cpu_loss(overhead, cpu_with, cpu_without);
  return overhead;
}

}  // namespace r2bench
