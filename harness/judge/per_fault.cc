// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/per_fault.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace r2bench {
namespace {

std::optional<double> time_of(const FaultSample& sample, const std::string& family) {
  if (family == "detect_ms") return sample.detect_ms;
  if (family == "migrate_ms") return sample.migrate_ms;
  if (family == "recover_ms") return sample.recover_ms;
  return sample.blackout_ms;
}

}  // namespace

bool names_floor(const Sum& bound) {
  return std::any_of(bound.terms.begin(), bound.terms.end(), [](const Term& term) {
    return std::any_of(term.factors.begin(), term.factors.end(), [](const Factor& factor) {
      const Quantity* quantity = std::get_if<Quantity>(&factor);
      return quantity && *quantity == Quantity::kFloor;
    });
  });
}

std::optional<PerFault> per_fault(const ModeResult& mode, const std::string& family,
                                  const std::string& statistic, const Numeric& expected,
                                  const QuantityValue& others) {
  std::vector<PerFault> faults;
  for (const FaultSample& sample : mode.faults) {
    if (!sample.sampled) continue;
    const auto wanted = evaluate(expected.bound, [&](Quantity quantity) {
      return quantity == Quantity::kFloor ? std::optional(sample.floor_ms) : others(quantity);
    });
    if (!wanted) return std::nullopt;
    faults.push_back({time_of(sample, family).value_or(std::numeric_limits<double>::infinity()), *wanted});
  }
  if (faults.empty()) return std::nullopt;
  std::sort(faults.begin(), faults.end(),
            [&](const PerFault& a, const PerFault& b) { return a.got - a.wanted < b.got - b.wanted; });
  const double percent = statistic == "p50" ? 50 : statistic == "p95" ? 95 : statistic == "p99" ? 99 : 100;
  const size_t rank = size_t(std::ceil(percent * double(faults.size()) / 100));
  return faults[std::max<size_t>(rank, 1) - 1];
}

}  // namespace r2bench
