// SPDX-License-Identifier: Apache-2.0
// The subcommands of r2bench as CLI11 sees them: what each is called with, and what it then does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
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
  /// Whether exit status 0 stands although output is lost: it is a verdict, and the files that show it have
  /// been written, or it is the status of the program that the command ran. None: it becomes 64.
  std::function<bool()> status_stands = nullptr;
};

/// Adds a program's commands to `app`. `foreign`: the words behind '--' of `exec` and `guest`, filled in
/// before a subcommand runs; it outlives them.
using AddSubcommands =
    std::function<std::vector<Subcommand>(CLI::App& app, const std::vector<std::string>& foreign)>;

/// Parses the command line, runs the command, turns exceptions into exit codes.
int program_main(int argc, const char* const* argv, const AddSubcommands& add, const Runner& runner,
                 const Console& console);

/// The words of `exec` or `guest` before its '--', and the program's own behind it; all words are ours for
/// other commands.
std::pair<std::vector<const char*>, std::vector<std::string>> split_at_program(int argc,
                                                                               const char* const* argv);

/// Adds `run`. `run`: plain_run() or run_command().
Subcommand add_run(CLI::App& app, std::function<int(const RunArguments&, const Runner&, const Console&)> run);

/// All commands of r2bench-tools, in the order of --help.
std::vector<Subcommand> add_all_subcommands(CLI::App& app, const std::vector<std::string>& foreign);

/// Adds a command of tools_program.h, as it is named there.
CLI::App* add_tool(CLI::App& app, const char* name);

}  // namespace r2bench
