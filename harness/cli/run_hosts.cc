// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/run_hosts.h"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <ostream>
#include <stdexcept>

#include "harness/cli/exit_codes.h"
#include "harness/launch/host_list.h"

namespace r2bench {
namespace {

Launcher launcher_of(const std::string& named) {
  const auto launcher = launcher_named(named);
  if (!launcher) throw UsageError("--launcher " + named + ": choose local, mpi, slurm or env");
  return *launcher;
}

/// Throws UsageError.
ClusterOptions options_of(const RunArguments& arguments, const std::vector<Scenario>& scenarios) {
  ClusterOptions options;
  options.launcher = launcher_of(arguments.launcher);
  try {
    options.hosts = host_list(arguments.hosts, "--hosts");
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  const bool takes_hosts = options.launcher == Launcher::kMpi || options.launcher == Launcher::kSlurm;
  if (!options.hosts.empty() && !takes_hosts)
    throw UsageError("--hosts is for --launcher mpi and slurm; " +
                     (options.launcher == Launcher::kLocal
                          ? std::string("without one of them, all nodes are on this machine")
                          : "'" + arguments.launcher + "' has its own"));
  if (options.launcher == Launcher::kLocal) return options;
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  options.most_hosts = INT_MAX;
  for (const Scenario& scenario : scenarios) {
    options.most_hosts = std::min(options.most_hosts, scenario.fabric.nodes);
    if (scenario.fabric.kind == FabricKind::kRxe)
      throw UsageError("--launcher " + arguments.launcher + ": " + scenario.name +
                       " uses the fabric rxe, whose devices are all on one machine; create soft RoCE "
                       "devices on each host (rdma link add NAME type rxe netdev INTERFACE) and choose "
                       "--fabric verbs");
  }
  if (options.hosts.size() > size_t(options.most_hosts))
    throw UsageError("--hosts names " + std::to_string(options.hosts.size()) + " hosts, but a scenario has " +
                     std::to_string(options.most_hosts) + " nodes; name as many hosts or fewer");
  return options;
}

}  // namespace

void check_hosts(const RunArguments& arguments, const std::vector<Scenario>& scenarios) {
  options_of(arguments, scenarios);
}

std::unique_ptr<Cluster> hosts_of_run(const RunArguments& arguments, const std::vector<Scenario>& scenarios,
                                      const std::atomic<bool>& cancel) {
  ClusterOptions options = options_of(arguments, scenarios);
  if (options.launcher == Launcher::kLocal) return nullptr;
  options.cancel = &cancel;
  try {
    return std::make_unique<LaunchedCluster>(options);
  } catch (const LauncherError&) {
    throw;
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
}

std::optional<int> serve_instead(const RunArguments& arguments, const Console& console) {
  if (launcher_of(arguments.launcher) != Launcher::kEnv) return std::nullopt;
  LaunchedPlace place;
  try {
    place = launched_place(Launcher::kEnv);
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
  if (!place.first_of_host) {
    console.out << "r2bench: the first process of this host serves the runner; this one has nothing to do\n";
    return 0;
  }
  if (place.order == 0) return std::nullopt;
  return host_agent(Launcher::kEnv);
}

int host_agent_command(const std::string& launcher) {
  try {
    return host_agent(launcher_of(launcher));
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace r2bench
