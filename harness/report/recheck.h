// SPDX-License-Identifier: Apache-2.0
// Whether what a result.json concludes follows from what it says: each expectation from the value that was
// got, that value from the run's metrics where they hold it, and the verdict from all of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/schema.h"

namespace r2bench {

/// One sentence for each thing that does not follow; empty when all does. `result` has to fit
/// results/schema.json. What older results do not hold is not checked. Whether an expectation was deleted or
/// changed only the scenario says (against_scenario.h).
std::vector<std::string> conclusion_mismatches(const nlohmann::json& result);

/// Each name in `metrics.values` that no metric has, with the one that may be meant.
std::vector<Mismatch> unknown_metrics(const nlohmann::json& result);

}  // namespace r2bench
