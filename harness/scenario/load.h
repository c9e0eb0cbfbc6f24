// SPDX-License-Identifier: Apache-2.0
// Scenario files: YAML in, checked Scenarios out, or every problem with its line. The key table and the
// defaults stand in harness/scenario/README.md.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/scenario/problem.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// What the command line changes in a file.
struct LoadOptions {
  std::vector<std::string> modes;  ///< labels of the file or names of modes; empty = the file's own
  std::optional<int> repeats;
  std::optional<uint64_t> seed;
  std::vector<std::pair<std::string, std::string>> set;  ///< ("workload.bytes", "4 MiB")
  /// Set after them, for the reference of a gate: cells and names of scenarios stay as without it.
  std::vector<std::pair<std::string, std::string>> reference;
};

/// Reads `path`. One Scenario, or one per cell of its `matrix`. Throws ScenarioError: bad content, or the
/// file cannot be read.
std::vector<Scenario> load_scenarios(const std::string& path, const LoadOptions& options = {});

/// The same from memory; `file` is only the name in messages.
std::vector<Scenario> parse_scenarios(const std::string& file, const std::string& text,
                                      const LoadOptions& options = {});

}  // namespace r2bench
