// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/per_fault.h"

#include <algorithm>
#include <iterator>
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

std::optional<size_t> percent_of(const std::string& statistic) {
  if (statistic == "p50") return 50;
  if (statistic == "p95") return 95;
  if (statistic == "p99") return 99;
  return statistic == "max" ? std::optional<size_t>(100) : std::nullopt;
}

/// Nearest rank: at least so many of `count` values do not exceed the percentile.
size_t rank_of(size_t percent, size_t count) { return std::max<size_t>((percent * count + 99) / 100, 1); }

/// Whether a time of a fault is missing that was sampled in a round before the last one.
bool never_came(const ModeResult& mode, const std::string& family) {
  size_t last = 0;
  return std::any_of(mode.faults.rbegin(), mode.faults.rend(), [&](const FaultSample& sample) {
    if (!can_have(sample, family)) return false;
    if (sample.repetition < last && !time_of(sample, family)) return true;
    last = std::max(last, sample.repetition);
    return false;
  });
}

/// Its time; of a recovery that has not come, the shortest that it can take: an interval of good rate that
/// had begun may have been cut.
std::optional<double> least_time_of(const FaultSample& sample, const std::string& family) {
  const auto ms = time_of(sample, family);
  return ms || family != "recover_ms" || !sample.waited_ms
             ? ms
             : std::optional(*sample.waited_ms - sample.window_ms);
}

/// The same of the longest recovery that had not come when the job ended. 0: all faults had recovered.
double least_missing_recovery_ms(const ModeResult& mode) {
  if (mode.faults_unrecovered == 0) return 0;
  double window_ms = 0;
  for (const FaultSample& sample : mode.faults)
    if (can_have(sample, "recover_ms") && !sample.recover_ms)
      window_ms = std::max(window_ms, sample.window_ms);
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
    if (!can_have(sample, family)) continue;
    const auto wanted = evaluate(expected.bound, [&](Quantity quantity) {
      return quantity == Quantity::kFloor ? std::optional(sample.floor_ms) : others(quantity);
    });
    if (!wanted) return std::nullopt;
    faults.push_back({time_of(sample, family).value_or(std::numeric_limits<double>::infinity()), *wanted});
  }
  if (faults.empty()) return std::nullopt;
  std::sort(faults.begin(), faults.end(),
            [&](const PerFault& a, const PerFault& b) { return a.got - a.wanted < b.got - b.wanted; });
  return faults[rank_of(percent_of(statistic).value_or(100), faults.size()) - 1];
}

std::optional<PercentileOf> percentile_of(const std::string& metric) {
  const size_t dot = metric.find('.');
  const bool of_faults =
      std::any_of(std::begin(kFaultTimes), std::end(kFaultTimes),
                  [&](const FaultTime& time) { return metric.substr(0, dot) == time.name; });
  const auto percent = dot == std::string::npos ? std::nullopt : percent_of(metric.substr(dot + 1));
  if (!of_faults || !percent) return std::nullopt;
  return PercentileOf{metric.substr(0, dot), *percent};
}

std::optional<size_t> most_samples(const Scenario& scenario, size_t repeats) {
  size_t strikes = 0;  // of a round; what strikes a rank is not sampled
  for (const faultinject::FaultSpec& fault : scenario.faults) {
    const bool outages = fault.kind->ends == faultinject::Ends::kAfterItsTime;
    if (outages && fault.count == faultinject::FaultSpec::kAll) return std::nullopt;
    strikes += std::max<size_t>(fault.repeat, 1) * (outages ? std::max<size_t>(fault.count, 1) : 1);
  }
  return strikes * std::max<size_t>(repeats, 1) * size_t(std::max(scenario.pairs, 1));
}

bool too_long_for_good(const ModeResult& mode, const PercentileOf& percentile, const Numeric& expected,
                       double slack_ms, std::optional<size_t> most) {
  const auto exceeds = [&](double ms, double floor_ms) {
    const auto bound = largest_bound(expected.bound, floor_ms);
    return bound && exceeds_for_good(ms, expected.comparison, *bound + slack_ms);
  };
  if (never_came(mode, percentile.family))
    return exceeds_for_good(std::numeric_limits<double>::infinity(), expected.comparison, 0);
  size_t over = size_t(std::count_if(mode.faults.begin(), mode.faults.end(), [&](const FaultSample& sample) {
    const auto ms = least_time_of(sample, percentile.family);
    return sample.sampled && ms && exceeds(*ms, sample.floor_ms);
  }));
  if (over == 0 && percentile.family == "recover_ms" &&
      exceeds(least_missing_recovery_ms(mode), mode.floor_ms))
    over = 1;
  if (percentile.percent == 100) return over > 0;
  if (!most) return false;
  const size_t all = std::max(*most, mode.faults_sampled);
  return over > all - rank_of(percentile.percent, all);
}

}  // namespace r2bench
