// SPDX-License-Identifier: Apache-2.0
// `r2bench env`: what a user's own NCCL job needs to load the plugin, as commands of a shell.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/launch/process.h"

namespace r2bench {
namespace {

constexpr const char* kModes[] = {"baseline", "migrate", "balance", "allreduce"};  // by R2CC_MODE's numbers

}  // namespace

int env_command(const std::string& mode, const Console& console) {
  const auto number = std::find(std::begin(kModes), std::end(kModes), mode) - std::begin(kModes);
  const std::string plugin =
      std::filesystem::weakly_canonical(program_prefix() / "lib" / "libnccl-net-r2ccl.so").string();
  if (::access(plugin.c_str(), R_OK) != 0)
    throw UsageError("the plugin is missing: there is no " + plugin + "; build the target nccl-net-r2ccl");
  console.out << "export NCCL_NET_PLUGIN=" << shell_quoted(plugin) << "\n"
              << "export NCCL_NET=R2CCL\n"
              << "export R2CC_MODE=" << number << "\n"
              << (mode == "allreduce" ? "export NCCL_COLLNET_ENABLE=1\n" : "unset NCCL_COLLNET_ENABLE\n");
  return 0;
}

}  // namespace r2bench
