// The commands of r2bench. Each prints to the console and returns the exit status; what the user can mend is
// thrown (ScenarioError, UsageError, OutputError) and becomes 64 in guarded().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/console.h"
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
};

/// run_scenario(), or a test's own.
using Runner = std::function<RunResult(const Scenario&, const RunOptions&, const std::atomic<bool>& cancel)>;

int run_command(const RunArguments& arguments, const Runner& runner, const Console& console);
int list_command(const Console& console);
int explain_command(const std::vector<std::string>& scenarios, const LoadOptions& load,
                    const Console& console);
int validate_command(const std::vector<std::string>& files, const Console& console);
int plot_command(const std::vector<std::string>& results, const std::string& out, const Console& console);
int doctor_command(const Console& console);

/// The whole program: parses the command line, runs the command, turns exceptions into exit codes.
int r2bench_main(int argc, const char* const* argv, const Runner& runner, const Console& console);

/// Makes the pictures of one run; what kept it from doing so, or nothing.
std::optional<std::string> make_pictures(const std::string& result_json, const std::string& out_folder);

}  // namespace r2bench
