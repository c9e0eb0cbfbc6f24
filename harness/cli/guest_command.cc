// `r2bench guest`: any command in a fresh guest of the rxe fabric, with its soft RoCE devices.
#include "harness/cli/guest_run.h"
#include "harness/fabric/device_fabric.h"
#include "harness/fabric/scripts.h"

namespace r2bench {

int guest_command(const GuestArguments& arguments, const Console& console) {
  if (arguments.command.empty()) throw UsageError("guest: what is to run in it? Write it after '--'");
  std::string script;
  try {
    script = fabric_script("rxe_net.sh");
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
  // The devices first, then the command in the same shell's place.
  std::vector<std::string> command = {"/bin/sh",
                                      "-c",
                                      "\"$0\" up \"$1\" \"$2\" && shift 2 && exec \"$@\"",
                                      script,
                                      std::to_string(arguments.nodes),
                                      std::to_string(arguments.nics)};
  command.insert(command.end(), arguments.command.begin(), arguments.command.end());
  const Signals signals;
  if (!arguments.writable.empty() && !std::filesystem::is_directory(arguments.writable))
    throw UsageError("--write " + arguments.writable + ": no such folder");
  return run_in_rxe_guest(command, arguments.writable, console, signals.cancel());
}

}  // namespace r2bench
