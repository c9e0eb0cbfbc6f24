// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/tools_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ostream>

#include "harness/cli/exit_codes.h"
#include "harness/cli/resources.h"

namespace r2bench {

const ToolCommand* tool_command(std::string_view name) {
  const auto* const end = std::end(kToolCommands);
  const auto* const found = std::find_if(std::begin(kToolCommands), end,
                                         [&](const ToolCommand& command) { return command.name == name; });
  return found == end ? nullptr : found;
}

int become_tools(const char* const* argv, const Console& console) {
  const std::string program = (program_prefix() / "bin" / "r2bench-tools").string();
  console.out << std::flush;
  ::execv(program.c_str(), const_cast<char* const*>(argv));
  const int error = errno;
  if (error == ENOENT) {
    console.err << "r2bench: this needs " << program
                << ", which is missing; in a checkout `./r2bench build` builds it\n";
  } else {
    console.err << "r2bench: " << program << " cannot be started: " << std::strerror(error) << "\n";
  }
  return kExitUsage;
}

}  // namespace r2bench
