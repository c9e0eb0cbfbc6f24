// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/per_fault.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/judge/fault_times.h"

namespace r2bench {
namespace {

/// nullopt: it depends on what is known at the end only.
std::optional<double> largest_bound(const Sum& bound, double floor_ms) {
  const auto with_wakeup = [&](double wakeup_ms) {
    return evaluate(bound, [&](Quantity quantity) -> std::optional<double> {
      if (quantity == Quantity::kLimit) return std::nullopt;  // a mean over the rounds
      return quantity == Quantity::kFloor ? floor_ms : wakeup_ms;
    });
  };
  const auto least = with_wakeup(0), most = with_wakeup(kWakeupCapMs);  // linear: a product has one time
  return least && most ? std::optional(std::max(*least, *most)) : std::nullopt;
}

/// The shortest that a recovery takes which had not been seen when the job ended: an interval of good rate
/// that had begun may have been cut. 0: all faults had recovered.
double least_missing_recovery_ms(const ModeResult& mode) {
  if (mode.faults_unrecovered == 0) return 0;
  double window_ms = 0;
  for (const FaultSample& sample : mode.faults)
    if (sample.sampled && !sample.recover_ms) window_ms = std::max(window_ms, sample.window_ms);
  return mode.recover_ms.max - window_ms;
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

bool too_long_for_good(const ModeResult& mode, const std::string& family, const Numeric& expected,
                       double slack_ms) {
  const auto exceeds = [&](double ms, double floor_ms) {
    const auto bound = largest_bound(expected.bound, floor_ms);
    return bound && exceeds_for_good(ms, expected.comparison, *bound + slack_ms);
  };
  if (family == "recover_ms" && exceeds(least_missing_recovery_ms(mode), mode.floor_ms)) return true;
  return std::any_of(mode.faults.begin(), mode.faults.end(), [&](const FaultSample& sample) {
    const auto ms = time_of(sample, family);
    return sample.sampled && ms && exceeds(*ms, sample.floor_ms);
  });
}

}  // namespace r2bench
