// SPDX-License-Identifier: Apache-2.0
// What a job's record says of its faults: each strike's times, what was retained of the rate behind them, and
// what came back when they were healed. For evaluate.cc. Pure.
#pragma once

#include "harness/judge/job_record.h"
#include "harness/judge/nics_left.h"

namespace r2bench {

/// Fills `mode`'s faults and their counts, times, throughput, restored and the picture's limits. `strikes`
/// and `left` belong together.
void evaluate_faults(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                     const NicsLeft& left, ModeResult& mode);

}  // namespace r2bench
