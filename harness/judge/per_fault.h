// SPDX-License-Identifier: Apache-2.0
// A bound on a time that names `floor` holds for each fault with the floor of that fault, not with the
// largest of the run; and what a job that was cut short proves of such a bound. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

bool names_floor(const Sum& bound);

struct PerFault {
  double got = 0;     ///< of the fault that decides: its time, infinite when that never came
  double wanted = 0;  ///< and its own bound
};

/// `family` is recover_ms, detect_ms …, `statistic` p50, p95, p99 or max: that percentile (nearest rank) of
/// how far each sampled fault is above its own bound. Nothing when no fault was sampled or another name of
/// the bound has no value.
std::optional<PerFault> per_fault(const ModeResult& mode, const std::string& family,
                                  const std::string& statistic, const Numeric& expected,
                                  const QuantityValue& others);

/// A metric that is a percentile of a time of faults.
struct PercentileOf {
  std::string family;
  size_t percent = 100;  ///< 100: the largest
};
/// nullopt: the metric is something else.
std::optional<PercentileOf> percentile_of(const std::string& metric);

/// Faults that took effect and whose time of that name is not known, by reason. Not those that met nothing,
/// nor the one that was not waited for because the run was cut short.
std::map<std::string, size_t> unknown_times(const ModeResult& mode, const std::string& family);

/// Whether the expectation is met whatever the times are that are not known, `unknown` in all.
bool met_in_any_case(const ModeResult& mode, const PercentileOf& percentile, const Numeric& expected,
                     double slack_ms, const QuantityValue& quantities, size_t unknown);

/// The most faults of a mode that its jobs can sample, each strike once; nullopt: a fault strikes for as long
/// as the job lasts.
std::optional<size_t> most_samples(const Scenario& scenario, size_t repeats);

/// Whether a percentile is above its bound whatever the rest of the run brings: it still is when all faults
/// that can come, `most` in all, are within their bounds. Faults count that took longer already, or whose
/// rate has been missing for longer. The bound is the largest that it can become by the end: `wakeup` may
/// grow up to its cap, and clocks of several hosts leave `slack_ms` open. What depends on more of the rest
/// (`limit`) is not above it. A time that had not come when the next round struck never comes, and is above
/// each bound.
bool too_long_for_good(const ModeResult& mode, const PercentileOf& percentile, const Numeric& expected,
                       double slack_ms, std::optional<size_t> most);

}  // namespace r2bench
