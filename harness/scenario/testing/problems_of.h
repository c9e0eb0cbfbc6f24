// SPDX-License-Identifier: Apache-2.0
// What a scenario is refused for.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/scenario/load.h"

namespace r2bench {

inline std::vector<Problem> problems_of(const std::string& text, const LoadOptions& options = {}) {
  try {
    parse_scenarios("x.yaml", text, options);
  } catch (const ScenarioError& error) {
    return error.problems();
  }
  ADD_FAILURE() << "accepted:\n" << text;
  return {};
}

inline std::string file(const std::string& body) {
  return "version: 1\nmodes: [baseline, migrate]\n" + body + "\n";
}

}  // namespace r2bench
