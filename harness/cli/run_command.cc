// SPDX-License-Identifier: Apache-2.0
// `r2bench run` wherever the nodes live: on virtual NICs, on other hosts, or in the guest with soft RoCE.
#include <algorithm>
#include <functional>
#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/explain.h"
#include "harness/cli/guest_run.h"
#include "harness/cli/resources.h"
#include "harness/cli/run_hosts.h"
#include "harness/cli/run_parts.h"
#include "harness/conformance/suite.h"
#include "harness/fabric/rxe_fabric.h"

namespace r2bench {
namespace {

/// What the soft RoCE devices of this machine may send in all, measured now.
uint64_t rxe_payload(const std::atomic<bool>& cancel) {
  conformance::SuiteOptions options;
  options.fabric = name(FabricKind::kRxe);
  options.bin_dir = (program_prefix() / "bin").string();
  options.lib_dir = (program_prefix() / "lib").string();
  try {
    return std::max(uint64_t(kRxePayloadShare * conformance::measure_carried(options, cancel)),
                    uint64_t(kRxeLeastPayloadBitsPerSecond));
  } catch (const FabricError& error) {
    if (cancel) return kRxePayloadBitsPerSecond;  // nothing will be run
    throw UsageError(error.what());
  }
}

}  // namespace

int run_command(const RunArguments& arguments, const Runner& runner, const Console& console) {
  if (!arguments.dry_run)  // else nobody runs the job that it would serve
    if (const auto status = serve_instead(arguments, console)) return *status;
  std::vector<Scenario> scenarios = load_all(arguments);
  if (!arguments.dry_run) check_leave(arguments, scenarios);
  if (!rxe_is_here() && !arguments.dry_run && arguments.launcher == "local" &&
      wants_rxe(arguments, scenarios))
    return run_scenarios_in_guest(arguments, scenarios, console);
  const Signals signals;
  uint64_t measured = 0;
  const auto payload = [&] {
    if (!rxe_is_here() || arguments.dry_run) return uint64_t(kRxePayloadBitsPerSecond);
    if (measured == 0) measured = rxe_payload(signals.cancel());
    return measured;
  };
  for (Scenario& scenario : scenarios) adapt(scenario, arguments, payload);
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  if (arguments.dry_run) {
    check_hosts(arguments, scenarios);
    for (const Scenario& scenario : scenarios) print_plan(scenario, console);
    return 0;
  }
  std::unique_ptr<Cluster> cluster;
  try {
    cluster = hosts_of_run(arguments, scenarios, signals.cancel());
  } catch (const UsageError&) {
    if (signals.caught() == 0) throw;
    return kExitSignal + signals.caught();
  } catch (const LauncherError& error) {
    if (signals.caught() != 0) return kExitSignal + signals.caught();
    console.err << "r2bench: " << error.what() << "\n";
    return kExitInternal;
  }
  return run_scenarios(arguments, scenarios, runner, cluster.get(), console, signals);
}

}  // namespace r2bench
