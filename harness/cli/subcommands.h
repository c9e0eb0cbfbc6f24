// SPDX-License-Identifier: Apache-2.0
// The subcommands of r2bench as CLI11 sees them: what each is called with, and what it then does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/cli/commands.h"

namespace CLI {
class App;
}

namespace r2bench {

struct Subcommand {
  std::function<bool()> called;  ///< by the command line that was parsed
  /// The exit status; throws what commands.h says.
  std::function<int(const Runner&, const Console&)> run;
};

/// Adds all of them to `app`. `foreign`: the words behind '--' of `exec` and `guest`, filled in before a
/// subcommand runs; it must outlive them.
std::vector<Subcommand> add_subcommands(CLI::App& app, const std::vector<std::string>& foreign);

}  // namespace r2bench
