// SPDX-License-Identifier: Apache-2.0
// The scripts of this folder, and a bounded way to run them.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace r2bench {

/// The path of one of guest/'s files: below R2BENCH_SHARE, beside an installed program, or in the source
/// tree. Throws FabricError when it is nowhere.
std::string fabric_script(const std::string& name);

struct ScriptResult {
  int exit_code = 0;   ///< 128 + signal when one ended it, 124 when it took longer than allowed
  std::string output;  ///< stdout and stderr together
};
/// command[0] is a path. It ends with the thread that runs it, and when `cancel` becomes true: killed with
/// all that it has started. Throws std::system_error when it cannot be started.
ScriptResult run_script(const std::vector<std::string>& command, int seconds,
                        const std::atomic<bool>* cancel = nullptr);

}  // namespace r2bench
