// SPDX-License-Identifier: Apache-2.0
// From what a job recorded to what it means: the ModeResult. Pure.
#pragma once

#include "harness/judge/job_record.h"

namespace r2bench {

ModeResult evaluate(const Scenario& scenario, const JobRecord& job);

}  // namespace r2bench
