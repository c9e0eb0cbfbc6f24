// SPDX-License-Identifier: Apache-2.0
// `sim`: AllReduce algorithms on simulated ports; `explain --nodes` or `--capacities`: what the planner
// takes, and the schedule itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/console.h"
#include "harness/sim/comparison.h"

namespace r2bench {

struct SimArguments {
  r2ccl::collective::Job job;
  ComparisonOptions options;
  bool json = false;
};

struct PlanArguments {
  r2ccl::collective::Job job;
  std::string algorithm;        ///< whose schedule is written; empty: the one that the planner takes
  std::string xml;              ///< file for the schedule as XML; empty: none
  std::string chakra;           ///< prefix of files PREFIX.RANK.et; empty: none
  std::vector<uint32_t> print;  ///< ranks whose operations are printed
  int margin = 0;               ///< R2CC_COLLNET_MARGIN of the job, in percent
};

int sim_command(const SimArguments& arguments, const Console& console);
int explain_plan_command(const PlanArguments& arguments, const Console& console);

}  // namespace r2bench
