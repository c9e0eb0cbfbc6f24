// SPDX-License-Identifier: Apache-2.0
// The commands of r2bench. Each prints to the console and returns the exit status; what the user can mend is
// thrown (ScenarioError, UsageError, InputError, OutputError, ControlError,
// PlanError) and becomes 64 in guarded().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/console.h"
#include "harness/exec/fabric_shape.h"
#include "harness/run/runner.h"
#include "harness/scenario/load.h"

namespace r2bench {

struct RunArguments {
  std::vector<std::string> scenarios;
  LoadOptions load;
  std::string out;  ///< empty: results/runs/NAME-TIME below the working directory
  uint16_t port = 0;
  bool dry_run = false;
  bool plot = true;
  bool quiet = false;
  bool keep_going = false;
  bool allow_real_faults = false;
  std::string fabric;              ///< overrides the scenarios'; empty: theirs
  int slow_motion = 0;             ///< a power of two; 0: what the fabric needs
  int shorter = 0;                 ///< a divisor of the iterations; 0: what the fabric needs
  std::string launcher = "local";  ///< or mpi, slurm, env: who starts the ranks' hosts
  std::string hosts;               ///< separated by commas; empty: all that the launcher has been given
};

struct GuestArguments {
  int guests = 1;           ///< 2: a node in each
  int nodes = 2, nics = 4;  ///< of the soft RoCE devices
  std::string writable;     ///< folder that the command may write; empty: none
  std::vector<std::string> command;
};

struct ExecArguments {
  std::string name = "default";  ///< of the fabric
  std::string node;
  WantedShape wanted;
  std::string plan;     ///< file; empty: no fault is armed
  std::string witness;  ///< file for the plan's story as JSON
  bool quiet = false;
  std::vector<std::string> command;
};

struct ConformanceArguments {
  std::vector<std::string> fabrics = {"vhca", "rxe"};
  std::vector<std::string> cases;  ///< prefixes of their names; empty: all
  bool faults = true;
  std::string out;  ///< folder of the table; empty: results/runs/conformance-TIME
  std::string raw;  ///< file for one fabric's result, without a table
};

struct MatrixArguments {
  std::vector<std::string> only;  ///< patterns of cells; empty: all
  int jobs = 0;                   ///< cells at a time; 0: one per core
  uint64_t seed = 1;
  std::string mode = "migrate";  ///< or balance
  std::string out;               ///< folder of the tables; empty: results/runs/matrix-TIME
  bool list = false;
};

struct ExportArguments {
  std::vector<std::string> results;  ///< files, or folders of runs
  std::string mode;                  ///< empty: all
  std::string out;                   ///< file; empty: the console
};

struct InjectArguments {
  enum class Action { kAdd, kList, kRemove, kHeal };
  Action action = Action::kList;
  std::string name;      ///< empty: the only one that runs
  std::string fault;     ///< kAdd: YAML text, or @file
  uint32_t id = 0;       ///< kRemove
  bool json = false;     ///< kList
  bool effects = false;  ///< kList
};

/// run_scenario(), or a test's own.
using Runner = std::function<RunResult(const Scenario&, const RunOptions&, const std::atomic<bool>& cancel)>;

int run_command(const RunArguments& arguments, const Runner& runner, const Console& console);
/// Serves the runner that its environment names, until that is gone: what --launcher starts on each host.
int host_agent_command(const std::string& launcher);
struct ListOptions {
  bool faults = false;   ///< the kinds of fault, in place of the scenarios
  bool metrics = false;  ///< the metrics, in place of the scenarios
  bool json = false;     ///< of faults and metrics: for scripts
};
int list_command(const ListOptions& options, const Console& console);
int explain_command(const std::vector<std::string>& scenarios, const LoadOptions& load,
                    const Console& console);
int validate_command(const std::vector<std::string>& files, const Console& console);
/// A signal ends the drawing, here and in plot_all_command(): no half figure is left.
int plot_command(const std::vector<std::string>& results, const std::string& out, const Console& console);
/// Every figure of the project from the results below `results`, into `out`. 0; 1 with `strict` when a figure
/// has no data.
int plot_all_command(const std::string& results, const std::string& out, bool strict, const Console& console);
/// One page about all of `results`; `out`: its file, else report.html beside the first.
int report_command(const std::vector<std::string>& results, const std::string& out, const Console& console);
/// A run's event log for Perfetto; `out`: the file, else trace.json beside the result.
int trace_command(const std::string& result, const std::string& out, const Console& console);
/// 0 when scenarios can run on `fabric` (empty: vhca) and nothing of the build is missing, else 1.
int doctor_command(const std::string& fabric, const Console& console);
/// What `doctor --topology` draws: at most one of the two is given; none: this machine.
struct TopologyArguments {
  std::string xml, scenario;
};
int topology_command(const TopologyArguments& arguments, const Console& console);
/// The program's exit status, 128 + signal when one ended it, 127 or 126 when it could not be started.
int exec_command(const ExecArguments& arguments, const Console& console);
/// 0; 1 when something differs that is not explained, or explained as wrong.
int conformance_command(const ConformanceArguments& arguments, const Console& console);
/// 0: every cell holds; 1: one fails; 2: a fault missed its moment, however often it was tried.
int matrix_command(const MatrixArguments& arguments, const Console& console);
/// The command's exit status, as exec_command().
int guest_command(const GuestArguments& arguments, const Console& console);
/// Prints the variables with which NCCL loads the plugin in this mode (baseline, migrate, balance or
/// allreduce), for eval "$(r2bench env)".
int env_command(const std::string& mode, const Console& console);
int export_command(const ExportArguments& arguments, const Console& console);
int inject_command(const InjectArguments& arguments, const Console& console);

/// The program r2bench-tools, which has all commands: parses the command line, runs the command, turns
/// exceptions into exit codes.
int r2bench_main(int argc, const char* const* argv, const Runner& runner, const Console& console);
/// The program r2bench: the same, but it has plain_run() alone, and becomes r2bench-tools for all else.
int plain_main(int argc, const char* const* argv, const Runner& runner, const Console& console);

}  // namespace r2bench
