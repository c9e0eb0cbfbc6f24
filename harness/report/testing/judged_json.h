// SPDX-License-Identifier: Apache-2.0
// A result.json as r2bench writes it, for tests that change it.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "harness/judge/verdict.h"
#include "harness/report/json.h"

namespace r2bench {

inline nlohmann::json judged_json(const Scenario& scenario, const RunResult& result) {
  const Judged judged = judge(scenario, result);
  return nlohmann::json::parse(to_json({scenario, result, judged}).dump());
}

/// Throws std::out_of_range when nothing is expected of `name`, such as "migrate.outcome".
inline nlohmann::json& expectation_of(nlohmann::json& result, const std::string& name) {
  for (nlohmann::json& each : result["expectations"])
    if (each["name"] == name) return each;
  throw std::out_of_range(name);
}

}  // namespace r2bench
