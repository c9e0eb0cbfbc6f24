// SPDX-License-Identifier: Apache-2.0
// The times of a fault, each told once. From this table follow the metrics (harness/judge/metrics/times.cc),
// how several faults and jobs are pooled, the bounds that name each fault's own floor, and result.json: under
// its name in `faults` and in `metrics.recovery`. Pure.
#pragma once

#include <optional>
#include <string>

#include "harness/measure/result.h"

namespace r2bench {

struct FaultTime {
  const char* name;
  const char* meaning;
  std::optional<double> FaultSample::*of_fault;
  Distribution ModeResult::*of_all;  ///< of the sampled faults
  bool spans_hosts;                  ///< from an event of one host to one of another
};

inline constexpr FaultTime kFaultTimes[] = {
    {"detect_ms", "time from the fault to the start of the fence", &FaultSample::detect_ms,
     &ModeResult::detect_ms, true},
    {"migrate_ms", "time from the fence until the last affected channel has delivered on another path",
     &FaultSample::migrate_ms, &ModeResult::migrate_ms, true},
    {"recover_ms", "time from the fault until the rate is back to 90 % of what the remaining NICs can carry",
     &FaultSample::recover_ms, &ModeResult::recover_ms, true},
    // A gap at one receiver needs one clock only.
    {"blackout_ms", "longest gap between delivered segments of an affected channel",
     &FaultSample::blackout_ms, &ModeResult::blackout_ms, false},
};

/// nullopt: the fault has no time of that name.
std::optional<double> time_of(const FaultSample& fault, const std::string& name);

/// Whether such a time of the fault can be judged. A recovery needs a rate before it.
bool can_have(const FaultSample& fault, const std::string& name);

/// Fills each `of_all` from the sampled faults. A rate that never came back counts for as long as it was
/// waited for.
void summarize_times(ModeResult& mode);

}  // namespace r2bench
