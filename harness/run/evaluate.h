// From what a job recorded to what it means: the ModeResult. Pure.
#pragma once

#include "harness/run/job.h"

namespace r2bench {

ModeResult evaluate(const Scenario& scenario, const JobRecord& job);

/// One result for all jobs of a mode in a paired run: worst outcome, sums of counts, all iterations.
ModeResult pool(const std::vector<const ModeResult*>& jobs);

}  // namespace r2bench
