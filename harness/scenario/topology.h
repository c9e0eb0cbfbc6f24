// SPDX-License-Identifier: Apache-2.0
// Where a node's GPUs, NICs and memories are, as a scenario declares it, and which ranks talk to each other.
// Pure arithmetic: everything is dealt out in blocks, in order.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace r2bench {

struct Fabric;
struct Scenario;

/// A node: sockets with one NUMA node each, below them PCIe switches, below those GPUs and NICs.
struct NodeTopology {
  std::string preset;           ///< "dgx-h100", "r7525"; empty: given key by key
  int sockets = 2;              ///< 1 … 8
  int switches_per_socket = 0;  ///< 0 … 8; 0: each device has a root port of its own
  int gpus_per_socket = 1;      ///< 1 … 8
  int cross_percent = 50;  ///< 1 … 100: what a NIC carries of its rate to or from memory of another socket

  int gpus() const { return sockets * gpus_per_socket; }
  bool operator==(const NodeTopology&) const = default;
};

/// A known machine, and how many NICs it has.
struct TopologyPreset {
  NodeTopology topology;
  int nics = 0;
};
const std::vector<TopologyPreset>& topology_presets();

/// "dgx-h100: 2 sockets with 4 switches and 4 GPUs each, 50 % of a NIC's rate across sockets"
std::string in_words(const NodeTopology& topology);

// Without a topology everything is on socket 0, and no device is below a switch. Sockets are numbered as
// their NUMA nodes are, switches through all sockets of the node.
int socket_of_nic(const Fabric& fabric, int nic);
std::optional<int> switch_of_nic(const Fabric& fabric, int nic);
/// The GPU of the node's rank `local_rank`; its memory is on that GPU's socket.
int gpu_of_rank(const Fabric& fabric, int local_rank);
int socket_of_gpu(const Fabric& fabric, int gpu);
std::optional<int> switch_of_gpu(const Fabric& fabric, int gpu);
int socket_of_rank(const Fabric& fabric, int local_rank);

/// The NICs in the order in which a rank uses them: below its GPU's switch, on its socket, then the others;
/// equals in turn from where the rank is, so that ranks of one socket do not begin with the same one. Without
/// a topology: 0, 1, …
std::vector<int> nics_from_near(const Fabric& fabric, int local_rank);

/// How many channels a rank has towards each that it sends to. Where the scenario does not say: as many as it
/// has NICs on its own socket (all, when it has none there), and no more than any rank that it talks to has.
int channels_of(const Scenario& scenario, int local_rank);

/// The ranks that do an operation together, and the place of one of them.
struct Communicator {
  int size = 2;
  int position = 0;
  int first = 0;  ///< the job's number of the rank at position 0
  int step = 1;   ///< from one position to the next

  int rank_at(int at) const { return first + (at % size + size) % size * step; }
  bool operator==(const Communicator&) const = default;
};
Communicator communicator_of(const Scenario& scenario, int rank);

}  // namespace r2bench
