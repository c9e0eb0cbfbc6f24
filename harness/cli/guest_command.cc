// SPDX-License-Identifier: Apache-2.0
// `r2bench guest`: any command in a fresh guest of the rxe fabric, with its soft RoCE devices; or one in each
// of two.
#include <algorithm>
#include <array>

#include "harness/cli/guest_run.h"
#include "harness/fabric/device_fabric.h"
#include "harness/fabric/scripts.h"

namespace r2bench {
namespace {

/// The devices first, then the command in the same shell's place. `up`: the arguments of rxe_net.sh. The
/// command finds the script as $RXE_NET, to break the network with.
std::vector<std::string> with_devices(const std::string& script, const std::string& up,
                                      const std::vector<std::string>& command) {
  std::vector<std::string> words = {"/bin/sh", "-c", R"(export RXE_NET="$0"; "$0" $1 && shift && exec "$@")",
                                    script, up};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// Each guest's own: what stands before and behind '::', or the same for both.
std::array<std::vector<std::string>, 2> one_each(const std::vector<std::string>& words) {
  const auto middle = std::find(words.begin(), words.end(), "::");
  if (middle == words.end()) return {words, words};
  const std::vector<std::string> first(words.begin(), middle), second(middle + 1, words.end());
  if (first.empty() || second.empty() || std::find(second.begin(), second.end(), "::") != second.end())
    throw UsageError("guest --guests 2: write one command for each guest, with one '::' between them");
  return {first, second};
}

}  // namespace

int guest_command(const GuestArguments& arguments, const Console& console) {
  if (arguments.command.empty()) throw UsageError("guest: no command is given; write it after '--'");
  if (!arguments.writable.empty() && !std::filesystem::is_directory(arguments.writable))
    throw UsageError("--write " + arguments.writable + ": no such folder");
  if (arguments.guests == 2 && arguments.nodes != 2)
    throw UsageError("guest --guests 2: there is one node in each, so --nodes is 2");
  std::string script;
  try {
    script = fabric_script("rxe_net.sh");
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
  const std::string nics = std::to_string(arguments.nics);
  if (arguments.guests == 1) {
    const Signals signals;
    return run_in_rxe_guest(
        with_devices(script, "up " + std::to_string(arguments.nodes) + " " + nics, arguments.command),
        arguments.writable, console, signals.cancel());
  }
  auto commands = one_each(arguments.command);
  for (size_t node = 0; node < commands.size(); ++node)
    commands[node] =
        with_devices(script, "up-one " + std::to_string(node) + " " + nics + " eth0", commands[node]);
  const Signals signals;
  return run_in_two_rxe_guests(commands, arguments.writable, console, signals.cancel());
}

}  // namespace r2bench
