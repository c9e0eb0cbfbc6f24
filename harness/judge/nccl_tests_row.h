// SPDX-License-Identifier: Apache-2.0
// The line of nccl-tests' table that a job's operations make. Pure.
#pragma once

#include <vector>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// `ranks`: those of a communicator. `iteration_ms`: times of the operations. algbw is bytes per time, busbw
/// what a ring's busiest link carries of that (nccl-tests, doc/PERFORMANCE.md). Of the engine exec, whose
/// command knows its sizes, times only. `wrong` stays 0.
NcclTestsRow nccl_tests_row(const Workload& work, int ranks, const std::vector<double>& iteration_ms);

}  // namespace r2bench
