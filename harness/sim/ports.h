// SPDX-License-Identifier: Apache-2.0
// The ports that a schedule runs on, and which connections share which of them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/sim/fair_shares.h"
#include "r2ccl/base/result.h"
#include "r2ccl/collective/schedule.h"

namespace r2bench {

enum class Sharing {
  kMaxMin,  ///< weighted max-min: what a flow cannot use the others get, in proportion to their connections'
            ///< weights
  kExclusive,  ///< each group has its part of each port to itself, in proportion to its weight there; within
               ///< it max-min
};

/// What the schedule runs on.
struct Ports {
  /// Bytes per second of each node, sending and receiving alike; [0] of all its rails, further ones by
  /// ConnectionGroup::rail_class.
  std::vector<std::vector<double>> capacity;
  /// Each NIC is a port, and rail i joins the i-th NICs of the nodes: what each NIC carries, 0 … 1 of a whole
  /// one, those of node 0 first, the same number of each node. Each rank is a node. `capacity` is not looked
  /// at. Empty: a port for each node.
  std::vector<double> nics;
  double nic_bytes_per_second = 0;     ///< of a whole NIC, sending and receiving alike
  std::vector<uint32_t> node_of_rank;  ///< empty: each rank is a node. Within a node nothing takes time
  double latency_s = 0;  ///< from the last byte sent to the receiver's operation; credits return at once
  double reduce_bytes_per_second = 0;  ///< of each rank, one addition at a time; 0: no limit
  Sharing sharing = Sharing::kMaxMin;
};

/// A part of a connection's traffic, on one port of its sender and one of its receiver.
struct PortFlow {
  uint32_t connection = 0;
  double share = 1;  ///< of each chunk
};
struct SharedPorts {
  std::vector<PortFlow> flows;  ///< those of a connection beside each other
  FairShares shares;            ///< of `flows`, by their number
};

/// One flow for each connection; over NICs one for each rail that the host engine would use for it, with the
/// engine's share of each chunk (rail_shares()). kInvalidArgument: a capacity is not given, or
/// have_common_rails() is false.
r2ccl::Result<SharedPorts> shared_ports(const r2ccl::collective::Schedule& schedule, const Ports& ports);

/// Has each connection a rail on which both nodes' NICs carry something? If not, a job's Balance finds a
/// path, and which one is not known. `nics`: Ports::nics; true if empty.
bool have_common_rails(const r2ccl::collective::Schedule& schedule, std::span<const double> nics);

}  // namespace r2bench
