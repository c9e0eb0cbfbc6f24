// SPDX-License-Identifier: Apache-2.0
// Whether a result.json judges what its scenario expects: an expectation that was deleted or changed leaves a
// result that is consistent in itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

/// One sentence, with the expectation's name, for each one that is missing, changed or not of the scenario;
/// and for each mode that is missing. `file` is the scenario as it was run (scenario.yaml in the folder of
/// the result); what the command line changed of it, the result says itself. `result` has to fit
/// results/schema.json.
std::vector<std::string> scenario_mismatches(const nlohmann::json& result, const std::string& file);

}  // namespace r2bench
