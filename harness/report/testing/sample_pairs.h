// SPDX-License-Identifier: Apache-2.0
// A finished run of three interleaved pairs of jobs without a fault.
#pragma once

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

Scenario sample_pairs_scenario();
/// Live migration costs 1 to 3 % of time, and 5 to 7 % of CPU time.
RunResult sample_pairs_result();

}  // namespace r2bench
