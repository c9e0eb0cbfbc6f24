// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/topology.h"

#include <algorithm>

#include "harness/scenario/scenario.h"

namespace r2bench {
namespace {

/// Where thing `i` of `n` goes when they are dealt to `places` in blocks.
int block(int i, int n, int places) { return i * places / n; }

std::optional<int> switch_below(const Fabric& fabric, int i, int n) {
  const auto& t = fabric.topology;
  if (!t || t->switches_per_socket == 0) return std::nullopt;
  return block(i, n, t->sockets * t->switches_per_socket);
}

int near_nics(const Fabric& fabric, int local_rank) {
  int near = 0;
  for (int nic = 0; nic < fabric.nics_per_node; ++nic)
    near += socket_of_nic(fabric, nic) == socket_of_rank(fabric, local_rank);
  return near > 0 ? near : fabric.nics_per_node;
}

}  // namespace

const std::vector<TopologyPreset>& topology_presets() {
  static const std::vector<TopologyPreset> all = {
      {{"dgx-h100", 2, 4, 4, 50}, 8},
      {{"r7525", 2, 0, 1, 50}, 2},
  };
  return all;
}

std::string in_words(const NodeTopology& topology) {
  const auto counted = [](int n, const char* what, const char* more) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : more);
  };
  std::string text = topology.preset.empty() ? "" : topology.preset + ": ";
  text += counted(topology.sockets, "socket", "s") + " with ";
  if (topology.switches_per_socket > 0)
    text += counted(topology.switches_per_socket, "switch", "es") + " and ";
  return text + counted(topology.gpus_per_socket, "GPU", "s") + " each, " +
         std::to_string(topology.cross_percent) + " % of a NIC's rate across sockets";
}

int socket_of_nic(const Fabric& fabric, int nic) {
  return fabric.topology ? block(nic, fabric.nics_per_node, fabric.topology->sockets) : 0;
}

std::optional<int> switch_of_nic(const Fabric& fabric, int nic) {
  return switch_below(fabric, nic, fabric.nics_per_node);
}

int gpu_of_rank(const Fabric& fabric, int local_rank) {
  return fabric.topology ? block(local_rank, fabric.ranks_per_node, fabric.topology->gpus()) : local_rank;
}

int socket_of_gpu(const Fabric& fabric, int gpu) {
  return fabric.topology ? gpu / fabric.topology->gpus_per_socket : 0;
}

std::optional<int> switch_of_gpu(const Fabric& fabric, int gpu) {
  return fabric.topology ? switch_below(fabric, gpu, fabric.topology->gpus()) : std::nullopt;
}

int socket_of_rank(const Fabric& fabric, int local_rank) {
  return socket_of_gpu(fabric, gpu_of_rank(fabric, local_rank));
}

std::vector<int> nics_from_near(const Fabric& fabric, int local_rank) {
  const int nics = fabric.nics_per_node;
  const int socket = socket_of_rank(fabric, local_rank);
  const auto home = switch_of_gpu(fabric, gpu_of_rank(fabric, local_rank));
  const auto distance = [&](int nic) {
    if (home && switch_of_nic(fabric, nic) == home) return 0;
    return socket_of_nic(fabric, nic) == socket ? 1 : 2;
  };
  const int start = fabric.topology ? block(local_rank, fabric.ranks_per_node, nics) : 0;
  std::vector<int> order;
  for (int step = 0; step < nics; ++step) order.push_back((start + step) % nics);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return distance(a) < distance(b); });
  return order;
}

int channels_of(const Scenario& scenario, int local_rank) {
  const Fabric& fabric = scenario.fabric;
  if (scenario.workload.channels > 0) return scenario.workload.channels;
  if (scenario.workload.groups == Groups::kLocalRank) return near_nics(fabric, local_rank);
  int least = fabric.nics_per_node;
  for (int rank = 0; rank < fabric.ranks_per_node; ++rank) least = std::min(least, near_nics(fabric, rank));
  return least;
}

Communicator communicator_of(const Scenario& scenario, int rank) {
  const Fabric& fabric = scenario.fabric;
  if (scenario.workload.groups == Groups::kAll) return {fabric.ranks(), rank, 0, 1};
  const int per_node = fabric.ranks_per_node;
  return {fabric.nodes, rank / per_node, rank % per_node, per_node};
}

}  // namespace r2bench
