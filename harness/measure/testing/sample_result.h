// SPDX-License-Identifier: Apache-2.0
// A run as it might have been, for the tests of verdicts and reports: two modes, one fault, all fields
// filled.
#pragma once

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// baseline ends in an error at iteration 60; migrate goes on. Both as expected.
Scenario sample_scenario();
RunResult sample_result();

/// The same with five repetitions in migrate: two were measured, the second of them only once it was healed;
/// three took effect and could not be measured, for two reasons.
RunResult sample_result_with_dropped_faults();

/// The same with operations of migrate that take turns with those of baseline in its job, and take 1.02 times
/// as long; before the fault twice as long.
Scenario sample_beside_scenario();
RunResult sample_beside_result();

}  // namespace r2bench
