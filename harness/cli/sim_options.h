// SPDX-License-Identifier: Apache-2.0
// The command lines of `sim`, and of `explain` for a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/nic_options.h"
#include "harness/cli/sim_command.h"
#include "r2ccl/base/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

/// What both commands say of nodes and job.
struct JobOptions {
  std::vector<std::string> capacities, degraded;  ///< as given
  uint32_t nodes = 0;
  NicOptions nics;
  std::string bytes = "1 GiB", rate = "400 Gbit/s", latency = "5 us", reduction = "0";
  uint32_t segments = 64;

  /// `group`: the heading of these options in --help. Those that say which nodes there are: one of them is
  /// given, or the others are of no use.
  std::vector<CLI::Option*> add_to(CLI::App& command, const std::string& group);
  bool says_nodes() const { return nodes != 0 || !capacities.empty(); }
  /// An option that needs the nodes and is given; empty: none is.
  std::string needs_nodes() const;
  /// Throws UsageError.
  r2ccl::collective::Job job() const;

 private:
  std::vector<double> degraded_capacities() const;
};

struct SimOptions {
  JobOptions job;
  std::string operation, sharing = "maxmin";
  bool json = false, only_chosen = false, exactly = false;
  uint32_t pieces = 1, rails = 0;
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
  int margin = r2ccl::Config{}.collnet_margin;
  std::vector<CLI::Option*> of_nodes;  ///< JobOptions::add_to()

  void add_to(CLI::App& explain, const std::string& group);
  /// Throws UsageError if an option is given that is of no use without nodes.
  void check_unused() const;
  PlanArguments finished() const;
};

}  // namespace r2bench
