// SPDX-License-Identifier: Apache-2.0
// What a job asks of its NICs, and what these carry without a fault. Pure.
#pragma once

#include "harness/measure/limits.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// What the ranks of a node ask of its NICs: each the same in all, divided equally over its channels.
NodeLoad load_of(const Scenario& scenario);

/// What the ports deliver at best without a fault, in Gbit/s over all receivers; 0: their rate is no limit.
double ports_gbps(const Scenario& scenario, ModeKind mode);

}  // namespace r2bench
