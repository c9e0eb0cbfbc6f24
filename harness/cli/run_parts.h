// SPDX-License-Identifier: Apache-2.0
// What every `run` does, wherever its nodes live: load, adapt, run, judge, report and draw one scenario after
// the other.
#pragma once

#include <functional>
#include <vector>

#include "harness/cli/commands.h"

namespace r2bench {

class Signals;

/// All that the command line names; throws ScenarioError with what is wrong in any of them.
std::vector<Scenario> load_all(const RunArguments& arguments);

/// What needs the user's leave is refused before anything runs, whichever of the scenarios it is in. Throws
/// UsageError.
void check_leave(const RunArguments& arguments, const std::vector<Scenario>& scenarios);

/// Whether any of them runs on soft RoCE, and so in a guest, which reads the files again. Throws UsageError
/// if it does and `arguments` name a pipe.
bool wants_rxe(const RunArguments& arguments, const std::vector<Scenario>& scenarios);

/// The fabric that the command line wants, and what a slow one makes of the scenario. `payload`: what soft
/// RoCE may send in all, bits per second; not called for another fabric. Throws UsageError.
void adapt(Scenario& scenario, const RunArguments& arguments, const std::function<uint64_t()>& payload);

/// Runs them all, and prints what became of each. The exit status.
int run_scenarios(const RunArguments& arguments, const std::vector<Scenario>& scenarios, const Runner& runner,
                  Cluster* cluster, const Console& console, const Signals& signals);

/// `run` where nothing but this machine's own NICs or virtual ones are needed. nullopt, and nothing has
/// begun: it needs run_command(), because of other hosts, soft RoCE, or --dry-run.
std::optional<int> plain_run(const RunArguments& arguments, const Runner& runner, const Console& console);

}  // namespace r2bench
