// SPDX-License-Identifier: Apache-2.0
#include "harness/run/nccl_environment.h"

#include <unistd.h>

#include "harness/run/job.h"
#include "harness/workload/nccl/nccl_options.h"

namespace r2bench {

constexpr int kMostMerged = 4;  // NCCL_NET_MAX_DEVS_PER_NIC

namespace {

/// What NCCL_NET_FORCE_MERGE says: the NICs of a node, as few merged NICs of like sizes. NCCL merges at most
/// four.
std::string merged_nics(const Fabric& fabric) {
  const int groups = (fabric.nics_per_node + kMostMerged - 1) / kMostMerged;
  std::string names;
  for (int nic = 0, group = 0; nic < fabric.nics_per_node; ++nic) {
    const bool next = nic == (group + 1) * fabric.nics_per_node / groups;
    group += next;
    names += (nic == 0 ? "" : next ? ";" : ",") + ("vhca" + std::to_string(nic));
  }
  return names;
}

}  // namespace

void add_nccl_variables(std::map<std::string, std::string>& environment, const Scenario& scenario,
                        const Mode& mode, const std::string& plugin, const std::string& node,
                        const std::string& job) {
  environment["NCCL_HOSTID"] = node + "-" + job;
  environment["NCCL_NVLS_ENABLE"] = "0";
  environment.try_emplace("NCCL_DEBUG", "WARN");
  if (const int channels = scenario.workload.channels; channels > 0)
    environment["NCCL_MIN_NCHANNELS"] = environment["NCCL_MAX_NCHANNELS"] = std::to_string(channels);
  const Transport transport = scenario.transport_of(mode);
  if (has_plugin(transport)) environment["NCCL_NET_PLUGIN"] = plugin;
  if (transport == Transport::kPlugin) {
    // Or NCCL takes another network without a word when the plugin cannot start.
    if (scenario.workload.plugin == Workload{}.plugin)
      environment["NCCL_NET"] = "R2CCL";
    else
      environment.erase("NCCL_NET");
    return;
  }
  // Side by side each communicator names its own.
  if (is_beside(transport))
    environment.erase("NCCL_NET");
  else
    environment["NCCL_NET"] = "IB";
  if (!has_plugin(transport)) environment["NCCL_NET_PLUGIN"] = "none";
  // Host memory alone, as the plugin has it, and nothing of a GPU-initiated network.
  environment["NCCL_DMABUF_ENABLE"] = "0";
  environment["NCCL_NET_GDR_LEVEL"] = "LOC";
  environment["NCCL_GIN_TYPE"] = "2";
  environment["NCCL_GIN_ENABLE"] = "0";
  // Its failover needs merged NICs. Beside the plugin it has what the plugin has: each NIC for itself.
  environment["NCCL_IB_MERGE_NICS"] = is_beside(transport) ? "0" : "1";
  if (scenario.fabric.kind == FabricKind::kVhca) {
    environment["NCCL_IB_GID_INDEX"] = "1";
    if (!is_beside(transport)) environment["NCCL_NET_FORCE_MERGE"] = merged_nics(scenario.fabric);
  }
  if (transport == Transport::kIbFailover)
    environment["NCCL_IB_RESILIENCY_PORT_FAILOVER"] = environment["NCCL_IB_RESILIENCY_PORT_RECOVERY"] = "1";
}

nlohmann::json nccl_options(const Scenario& scenario, const Mode& mode, int rank) {
  const NcclSettings& settings = scenario.workload.nccl;
  NcclOptions options;
  options.library = settings.library;
  options.transport = scenario.transport_of(mode);
  options.graph = settings.graph;
  options.communicators = settings.communicators;
  options.group_calls = settings.group_calls;
  options.registers = settings.registers;
  options.blocking = settings.blocking;
  options.copies = scenario.workload.pairs();
  options.job_rank = rank;
  options.renewal = settings.renewal;
  options.ranks_per_node = scenario.fabric.ranks_per_node;
  // NCCL merges virtual NICs only where a file says that they are near a GPU: they have no place in /sys.
  if (options.transport != Transport::kPlugin && !is_beside(options.transport) &&
      scenario.fabric.kind == FabricKind::kVhca)
    for (int nic = 0; nic < scenario.fabric.nics_per_node; ++nic)
      options.placed_nics.push_back("vhca" + std::to_string(nic));
  return options.to_json();
}

void Job::add_nccl_environment(std::map<std::string, std::string>& environment, const RankLink& rank) const {
  const std::string& plugin = scenario_.workload.plugin;
  add_nccl_variables(environment, scenario_, mode_,
                     plugin == Workload{}.plugin ? paths_.lib_dir + "/libnccl-net-r2ccl.so" : plugin,
                     node_name(rank.node()), std::to_string(getpid()));
}

}  // namespace r2bench
