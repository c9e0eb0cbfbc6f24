// SPDX-License-Identifier: Apache-2.0
// The command lines of `sim` and of `explain --capacities`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/sim_command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

/// What both commands say of nodes and job.
struct JobOptions {
  std::vector<std::string> capacities;  ///< as given
  std::string bytes = "1 GiB", rate = "400 Gbit/s", latency = "5 us", reduction = "0";
  uint32_t segments = 64;

  /// `group`: the heading of these options in --help.
  CLI::Option* add_to(CLI::App& command, const std::string& group);
  /// Throws UsageError.
  r2ccl::collective::Job job() const;
  /// The same with nodes of these capacities.
  r2ccl::collective::Job job(std::vector<double> of_nodes) const;
};

struct SimOptions {
  JobOptions job;
  uint32_t nodes = 0;
  std::vector<std::string> degraded;
  std::string operation, sharing = "maxmin";
  bool json = false, only_chosen = false;
  CLI::App* command = nullptr;

  void add_to(CLI::App& app);
  /// Throws UsageError.
  SimArguments finished() const;
};

/// The part of `explain` that is about a plan.
struct PlanOptions {
  JobOptions job;
  std::string algorithm, xml, chakra;
  std::string print;  ///< a rank, or 'all'; empty: none
  CLI::Option* capacities = nullptr;

  void add_to(CLI::App& explain, const std::string& group);
  PlanArguments finished() const;
};

}  // namespace r2bench
