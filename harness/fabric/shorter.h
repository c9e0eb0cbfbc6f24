// SPDX-License-Identifier: Apache-2.0
// A scenario with fewer iterations, for a fabric on which each of them takes long. What happens at an
// iteration happens at the same part of the job; nothing else changes, so ratios and times stay the same
// claims, taken over a shorter stretch. Pure.
#pragma once

#include <chrono>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// How long one mode takes when its NICs carry what they are allowed to, the half of it from the first fault
/// on. Zero where NICs have no rate.
std::chrono::duration<double> expected_time(const Scenario& scenario);

/// The least divisor by which one mode is expected to take no longer than `budget`, as far as that leaves the
/// scenario its meaning: at least 10 iterations before the first fault, between two, and after the last one.
/// 1 where a fault or a rank's fault has a time of its own, beside which fewer iterations would be a
/// different story, and where pairs of jobs are compared.
int shorter_divisor(const Scenario& scenario, std::chrono::seconds budget);

/// Iterations, and the iterations at which something happens, divided (rounded to the nearest). 1 changes
/// nothing. What was changed stands in `overrides`. Throws std::invalid_argument when `divisor` is less than
/// 1 or leaves no iteration.
Scenario shorter(Scenario scenario, int divisor);

}  // namespace r2bench
