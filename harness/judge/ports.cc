// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/ports.h"

#include <numeric>

namespace r2bench {

NodeLoad load_of(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  NodeLoad load;
  if (fabric.topology) load.far_cost = 100.0 / fabric.topology->cross_percent;
  const int sockets = fabric.topology ? fabric.topology->sockets : 1;
  for (int nic = 0; nic < fabric.nics_per_node; ++nic) {
    load.nic_socket.push_back(socket_of_nic(fabric, nic));
    load.demand.emplace_back(size_t(sockets), 0.0);
  }
  for (int rank = 0; rank < fabric.ranks_per_node; ++rank) {
    const std::vector<int> nics = nics_from_near(fabric, rank);
    const int channels = channels_of(scenario, rank);
    for (int c = 0; c < channels; ++c)
      load.demand[size_t(nics[size_t(c) % nics.size()])][size_t(socket_of_rank(fabric, rank))] +=
          1.0 / channels;
  }
  return load;
}

double ports_gbps(const Scenario& scenario, ModeKind mode) {
  const Fabric& fabric = scenario.fabric;
  const NodeLoad load = load_of(scenario);
  const double time = healthy_time(mode, load);
  if (fabric.nic_rate_bits_per_s == 0 || time <= 0) return 0;
  double asked = 0;
  for (const auto& nic : load.demand) asked += std::accumulate(nic.begin(), nic.end(), 0.0);
  double total = double(fabric.nodes) * double(fabric.nic_rate_bits_per_s) / 1e9 * asked / time;
  const double ranks = communicator_of(scenario, 0).size;
  if (scenario.workload.op == Operation::kBroadcast && ranks > 0)
    total *= (ranks - 1) / ranks;  // not the root
  return total;
}

}  // namespace r2bench
