// SPDX-License-Identifier: Apache-2.0
// A result.json as the structures that it was written from, as far as it holds them, so that what was
// computed from them can be computed again. Times of faults count from an arbitrary moment.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// All of these: `result` has to fit results/schema.json; what older results do not hold keeps its default.
/// Fabric and workload alone. nullopt: it names an operation, type or engine that this r2bench does not know.
std::optional<Scenario> scenario_of(const nlohmann::json& result);
/// Of one of `runs`. Without events, timeline and hosts.
ModeResult mode_of(const nlohmann::json& run);
/// Modes and overheads; `jobs` have their row, and CPU time per byte as seconds of one gigabyte.
RunResult result_of(const nlohmann::json& result);

}  // namespace r2bench
