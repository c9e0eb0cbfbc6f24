// SPDX-License-Identifier: Apache-2.0
// The command line of `doctor`: this machine, its topology, several machines, or the first day on new ones.
#pragma once

#include <string>

#include "harness/cli/cluster_command.h"
#include "harness/cli/commands.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace r2bench {

struct DoctorOptions {
  CLI::App* command = nullptr;

  void add_to(CLI::App& app);
  /// The exit status.
  int run(const Console& console) const;

 private:
  void add_topology(CLI::App& doctor);
  CLI::Option* add_cluster(CLI::App& doctor, CLI::Option* hosts);
  CLI::Option* add_first_day(CLI::App& doctor);

  std::string fabric_, hosts_;
  bool draw_ = false, prove_ = false, first_ = false;
  TopologyArguments topology_;
  ClusterArguments cluster_;
  FirstDayArguments first_day_;
};

}  // namespace r2bench
