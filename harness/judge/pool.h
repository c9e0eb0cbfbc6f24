// SPDX-License-Identifier: Apache-2.0
// Several jobs of one mode as one result: the pairs of an overhead measurement, and repeats of a fault that
// no job survives twice. Pure.
#pragma once

#include <vector>

#include "harness/measure/result.h"

namespace r2bench {

/// Worst outcome, sums of counts, all iterations, all faults (rounds count on from job to job) and their
/// times; rates are means. What came back (`restored`) is the worst job's. Timelines stand one behind the
/// other.
ModeResult pool(const std::vector<const ModeResult*>& jobs);

/// Whether a job of a scenario with faults saw them take effect. One that a fault ended need not have seen
/// those planned for later.
bool saw_its_faults(const ModeResult& job);

}  // namespace r2bench
