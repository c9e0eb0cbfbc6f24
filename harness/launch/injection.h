// SPDX-License-Identifier: Apache-2.0
// The environment that puts the fault injector, and a fabric's stand-in libraries, into a program.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace r2bench {

struct Injection {
  std::string lib_dir;                       ///< the build's lib folder, with libfaultinject.so
  std::vector<std::string> library_folders;  ///< of the fabric; they come first in LD_LIBRARY_PATH
  std::string board;                         ///< BoardHost::path()
  std::string node;                          ///< "node0": where the program sits
  std::string rank;                          ///< its name in witnesses, up to 23 bytes
};

std::string injector_library(const std::string& lib_dir);

/// Sets FAULTINJECT_*, and puts libraries in front of what LD_LIBRARY_PATH and LD_PRELOAD hold already. A
/// build without the injector is left without it: what needs no faults still runs.
void add_injection(std::map<std::string, std::string>& environment, const Injection& injection);

}  // namespace r2bench
