// SPDX-License-Identifier: Apache-2.0
// `doctor --cluster` and `doctor --first-day`.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/console.h"

namespace r2bench {

struct ClusterArguments {
  std::vector<std::string> hosts;  ///< empty: this one alone; names of this machine need no ssh
  bool json = false;
  std::string ssh = "ssh -o BatchMode=yes";
  std::string probe;  ///< path of r2bench-port-probe on the others; empty: as here
};

/// Exit status 0: nothing is missing; 1: something is.
int cluster_command(const ClusterArguments& arguments, const Console& console);

struct FirstDayArguments {
  std::string folder = "first_day";  ///< logs and what was done; goes on from there
  bool run = false;                  ///< runs the next steps; else it only shows them
  bool markdown = false;             ///< prints the page
  bool allow_real_faults = false;
  std::string skip;   ///< a step that is not to be done
  std::string again;  ///< a step that is to be done once more
  std::string done;   ///< a step that was done by hand
  std::string hosts;  ///< separated by commas: fills in HOSTS
  std::string run_options;  ///< further ones of each `r2bench run`: "--shorter 10"
};

/// Exit status 0: all steps are done or skipped; 1: some are left or failed.
int first_day_command(const FirstDayArguments& arguments, const Console& console);

}  // namespace r2bench
