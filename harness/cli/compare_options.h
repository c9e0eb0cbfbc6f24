// SPDX-License-Identifier: Apache-2.0
// The command lines of `compare` and `gate`.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/comparison_output.h"

namespace r2bench {

struct CompareArguments {
  std::vector<std::string> results;  ///< before and now; with a baseline only now
  std::string baseline, save;
  std::string out;
  Thresholds thresholds;
};

struct GateArguments {
  std::vector<std::string> scenarios;
  LoadOptions load;
  std::string baseline, save;
  std::vector<std::string> reference;  ///< key=value: what the reference has otherwise; empty: there is none
  bool append = false;                 ///< to the baseline that is saved
  int jobs = 0;                        ///< by which the faults of a run are divided
  int runs = 1;                        ///< more only to make a baseline
  std::string out;
  bool quiet = false;
  Thresholds thresholds;
};

/// `compare` and `gate` as CLI11 sees them.
struct CompareOptions {
  CLI::App* compare = nullptr;
  CLI::App* gate = nullptr;
  void add_to(CLI::App& app);
  CompareArguments compare_finished() const;
  /// All but `load`.
  GateArguments gate_finished() const;

 private:
  CompareArguments compare_;
  GateArguments gate_;
  ThresholdOptions compare_thresholds_, gate_thresholds_;
};

int compare_command(const CompareArguments& arguments, const Console& console);
/// Also 64 and 128 + signal, as run_command().
int gate_command(const GateArguments& arguments, const Runner& runner, const Console& console);

}  // namespace r2bench
