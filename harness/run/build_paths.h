// SPDX-License-Identifier: Apache-2.0
// Where the build's programs and libraries lie.
#pragma once

#include <string>

#include "harness/run/runner.h"

namespace r2bench {

struct BuildPaths {
  std::string bin_dir;
  std::string lib_dir;
  std::string rank_program(Engine engine) const { return bin_dir + "/r2bench-" + name(engine) + "-rank"; }
};

/// As the options say, else ../bin and ../lib beside the running program's folder, as in the build tree and
/// in an installation. Throws UsageError when the engine's rank program is not there.
BuildPaths find_build(const RunOptions& options, Engine engine);

}  // namespace r2bench
