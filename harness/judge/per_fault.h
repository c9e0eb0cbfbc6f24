// SPDX-License-Identifier: Apache-2.0
// A bound on a time that names `floor` holds for each fault with the floor of that fault, not with the
// largest of the run; and what a job that was cut short proves of such a bound. Pure.
#pragma once

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

/// Whether the largest time of `family` is above its bound whatever the rest of the job brings: a fault took
/// longer already, or the rate has been missing for longer. The bound is the largest that it can become by
/// the end: `wakeup` may grow up to its cap, and clocks of several hosts leave `slack_ms` open. False if the
/// bound names what the rest of the job may change otherwise.
bool too_long_for_good(const ModeResult& mode, const std::string& family, const Numeric& expected,
                       double slack_ms);

}  // namespace r2bench
