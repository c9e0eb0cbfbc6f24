// SPDX-License-Identifier: Apache-2.0
// A whole plan as people write it: the text of a file, or of one command line. Pure: reads no file.
#pragma once

#include <string>
#include <vector>

#include "faultinject/plan/plan.h"

namespace faultinject {

// A list of faults, a mapping whose key 'faults' holds one, or a single fault. `file` is for messages only.
// Every fault must have a trigger ('at' or 'on'), as nobody is there who could fire it by hand. An empty plan
// is an error, too. Throws PlanError with the place, for YAML that cannot be read as well.
std::vector<FaultSpec> parse_plan(const std::string& text, const std::string& file);

}  // namespace faultinject
