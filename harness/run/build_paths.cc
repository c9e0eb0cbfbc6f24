// SPDX-License-Identifier: Apache-2.0
#include "harness/run/build_paths.h"

#include <unistd.h>
#include <climits>

namespace r2bench {

BuildPaths find_build(const RunOptions& options, Engine engine) {
  BuildPaths paths{options.bin_dir, options.lib_dir};
  char self[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
  std::string folder = n > 0 ? std::string(self, size_t(n)) : ".";
  folder = folder.substr(0, folder.rfind('/'));
  if (paths.bin_dir.empty()) paths.bin_dir = folder;
  if (paths.lib_dir.empty()) paths.lib_dir = folder + "/../lib";
  if (access(paths.rank_program(engine).c_str(), X_OK) != 0)
    throw UsageError(std::string("the ") + name(engine) + " workload is missing: there is no program " +
                     paths.rank_program(engine));
  return paths;
}

}  // namespace r2bench
