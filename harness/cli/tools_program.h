// SPDX-License-Identifier: Apache-2.0
// r2bench is two programs, so that a newcomer's first run compiles the half of it: r2bench runs scenarios on
// this machine, and r2bench-tools, which lies beside it, has all commands. r2bench becomes r2bench-tools
// where it has to.
#pragma once

#include <string_view>

#include "harness/cli/console.h"

namespace r2bench {

/// A command that r2bench-tools alone has, as --help names it.
struct ToolCommand {
  const char* name;
  const char* summary;
  bool hidden = false;  ///< not listed: for launchers only
};

/// In the order of --help.
inline constexpr ToolCommand kToolCommands[] = {
    {"host-agent", "Run one host's part of a job; --launcher starts it", true},
    {"list", "List the scenarios that come with the program, the faults, or the metrics"},
    {"explain", "Describe a scenario in sentences, or the plan of an AllReduce"},
    {"validate", "Check scenario files and result.json files"},
    {"plot", "Draw the timelines of runs, or all figures (PNG and PDF)"},
    {"report", "Make one HTML page of one or several results"},
    {"trace", "Make a Chrome/Perfetto trace of a run's event log"},
    {"doctor", "Report what this machine has, and what would prevent a run"},
    {"guest", "Run a command in a QEMU guest with soft RoCE devices"},
    {"conformance", "Run the verbs conformance suite and write the table of deviations"},
    {"matrix", "Run the fault matrix: every kind of fault at every moment, as small jobs (cells)"},
    {"export", "Write throughput results in another program's format"},
    {"env", "Print the environment variables that make your own NCCL job load the plugin"},
    {"exec",
     "Run any program on a node of a shared fabric, with the injector preloaded:\n"
     "r2bench exec [OPTIONS] -- PROGRAM [ARGUMENTS]"},
    {"inject", "Arm and heal faults in a running fabric (`exec`) or job (`run`)"},
    {"heal", "Heal all faults: short for `inject heal`"},
    {"sim", "Simulate AllReduce algorithms on nodes of different capacities"},
    {"compare", "Decide whether a result is worse than another result or a baseline"},
    {"gate", "Run scenarios and fail if they are worse than a baseline: for CI"},
};

/// nullptr: no such command.
const ToolCommand* tool_command(std::string_view name);

/// Replaces this process by r2bench-tools with the same arguments; `argv` ends with a nullptr, as main()'s
/// does. Returns only if it cannot be started: the exit status.
int become_tools(const char* const* argv, const Console& console);

}  // namespace r2bench
