// SPDX-License-Identifier: Apache-2.0
// The options with which several commands change a scenario: --modes, --repeats, --seed, --set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/commands.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

/// Adds `--seed` with this help. CLI11 alone reads -1 and numbers that are too large as the largest one.
CLI::Option* add_seed(CLI::App& command, uint64_t& seed, const std::string& help);

struct ChangeOptions {
  std::vector<std::string> modes;
  int repeats = 0;
  uint64_t seed = 0;
  std::vector<std::string> set;
  CLI::Option* has_repeats = nullptr;
  CLI::Option* has_seed = nullptr;

  /// `group`: the heading of these options in --help.
  void add_to(CLI::App& command, const std::string& group = "Options");
  /// Throws UsageError.
  LoadOptions load() const;
};

}  // namespace r2bench
