// SPDX-License-Identifier: Apache-2.0
// What came back when faults were healed. For evaluate_faults.cc. Pure.
#pragma once

#include <vector>

#include "harness/judge/strikes.h"

namespace r2bench {

/// Fills `mode`'s restored: the rate behind the heal of each round whose faults were all healed, and how many
/// other rounds there are. `mode`'s faults are known: the sample of each strike, in the same order.
void measure_restored(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                      ModeResult& mode);

}  // namespace r2bench
