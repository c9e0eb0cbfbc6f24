// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/rank_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace r2bench {
namespace {

constexpr size_t kMostExact = 20;

/// P(U >= u) for samples of m and n values without ties: counts of the arrangements by U (Mann & Whitney
/// 1947).
double exact_tail(size_t m, size_t n, double u) {
  // ways[k]: arrangements of i values of one sample among n of the other with U = k, for i = 0 … m.
  std::vector<double> ways(m * n + 1, 0);
  ways[0] = 1;
  // The Gaussian binomial coefficient [m + n over m] as a product of (1 − q^(n+i)) / (1 − q^i).
  for (size_t i = 1; i <= m; ++i) {
    for (size_t k = ways.size(); k-- > n + i;) ways[k] -= ways[k - n - i];
    for (size_t k = i; k < ways.size(); ++k) ways[k] += ways[k - i];
  }
  const double all = std::accumulate(ways.begin(), ways.end(), 0.0);
  const double tail = std::accumulate(ways.begin() + std::ptrdiff_t(std::ceil(u)), ways.end(), 0.0);
  return std::min(1.0, tail / all);
}

double of_sorted(const std::vector<double>& sorted, double percent) {
  const auto nth = size_t(std::ceil(percent / 100 * double(sorted.size()) - 1e-9));
  return sorted[std::max<size_t>(nth, 1) - 1];
}

/// inf − inf is no difference.
double difference(double second, double first) { return second == first ? 0 : second - first; }

double shift_of_sorted(const std::vector<double>& first, const std::vector<double>& second) {
  const double quartile = difference(of_sorted(second, 25), of_sorted(first, 25));
  const double median = difference(of_sorted(second, 50), of_sorted(first, 50));
  if (quartile > 0 && median > 0) return std::min(quartile, median);
  if (quartile < 0 && median < 0) return std::max(quartile, median);
  return 0;
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

RankTest mann_whitney_larger(const std::vector<double>& first, const std::vector<double>& second) {
  RankTest test;
  if (first.empty() || second.empty()) return test;
  struct Value {
    double value;
    bool second;
  };
  std::vector<Value> all;
  for (const double v : first) all.push_back({v, false});
  for (const double v : second) all.push_back({v, true});
  std::sort(all.begin(), all.end(), [](const Value& a, const Value& b) { return a.value < b.value; });
  const double m = double(first.size()), n = double(second.size()), count = m + n;
  double rank_sum = 0, ties = 0;
  for (size_t i = 0, end = 0; i < all.size(); i = end) {
    while (end < all.size() && all[end].value == all[i].value) ++end;
    const double t = double(end - i), rank = double(i + end + 1) / 2;
    ties += t * t * t - t;
    for (size_t k = i; k < end; ++k) rank_sum += all[k].second ? rank : 0;
  }
  test.u = rank_sum - n * (n + 1) / 2;
  test.exact = ties == 0 && first.size() <= kMostExact && second.size() <= kMostExact;
  if (test.exact) {
    test.p = exact_tail(first.size(), second.size(), test.u);
    return test;
  }
  const double variance = m * n / 12 * (count + 1 - ties / (count * (count - 1)));
  if (!(variance > 0)) return test;  // all values are the same
  const double z = (test.u - m * n / 2 - 0.5) / std::sqrt(variance);
  test.p = std::min(1.0, 0.5 * std::erfc(z / std::sqrt(2.0)));
  return test;
}

double quantile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return of_sorted(values, percent);
}

double shift(const std::vector<double>& first, const std::vector<double>& second) {
  return shift_of_sorted(sorted(first), sorted(second));
}

ConfidenceInterval bootstrap_shift(const std::vector<double>& first, const std::vector<double>& second,
                                   size_t resamples, std::mt19937_64& random) {
  const auto draw = [&](const std::vector<double>& values) {
    std::vector<double> drawn(values.size());
    for (double& value : drawn) value = values[random() % values.size()];
    std::sort(drawn.begin(), drawn.end());
    return drawn;
  };
  std::vector<double> shifts(std::max<size_t>(resamples, 1));
  for (double& value : shifts) value = shift_of_sorted(draw(first), draw(second));
  std::sort(shifts.begin(), shifts.end());
  return {of_sorted(shifts, 2.5), of_sorted(shifts, 97.5)};
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> corrected(p.size());
  double least = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    least = std::max(least, std::min(1.0, p[order[i]] * double(p.size() - i)));
    corrected[order[i]] = least;
  }
  return corrected;
}

}  // namespace r2bench
