// SPDX-License-Identifier: Apache-2.0
// Whether a result.json agrees with itself where it says something twice: counts and percentiles with the
// list of faults, totals with their rounds, a metric's value with its other place, times with their marks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

/// One sentence for each contradiction, beginning with the mode; empty when there is none. `result` has to
/// fit results/schema.json. What older results do not hold is not checked.
std::vector<std::string> contradictions(const nlohmann::json& result);

}  // namespace r2bench
