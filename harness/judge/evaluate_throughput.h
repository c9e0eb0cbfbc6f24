// SPDX-License-Identifier: Apache-2.0
// What was retained of the rate behind the faults of each round. For evaluate_faults.cc. Pure.
#pragma once

#include "harness/judge/job_times.h"
#include "harness/judge/nics_left.h"

namespace r2bench {

/// Fills `mode`'s throughput: of each round, from the window behind its last strike that can be measured,
/// since then everything that was planned is broken. `mode`'s faults are known: the sample of each strike, in
/// the same order.
void measure_throughput(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                        const NicsLeft& left, const JobTimes& times, ModeResult& mode);

}  // namespace r2bench
