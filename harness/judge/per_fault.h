// SPDX-License-Identifier: Apache-2.0
// A bound on a time that names `floor` holds for each fault with the floor of that fault, not with the
// largest of the run. Pure.
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

}  // namespace r2bench
