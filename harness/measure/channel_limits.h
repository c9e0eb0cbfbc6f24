// SPDX-License-Identifier: Apache-2.0
// The best that Baseline and live migration can keep of a job's bandwidth: each channel uses one rail, its
// own or the one that it has moved to. Pure.
#pragma once

#include <climits>
#include <compare>
#include <cstdint>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// What is left of a NIC.
struct NicState {
  static constexpr int kAllQueuePairs = INT_MAX;

  double capacity = 1;       ///< 1 healthy, 0 dead, between: throttled
  int lost_queue_pairs = 0;  ///< so many channels are away until they fail back; the NIC is well
  auto operator<=>(const NicState&) const = default;
};

/// A channel: from one node to another, at home on one NIC of each.
struct Connection {
  uint16_t from = 0, to = 0;
  uint16_t tx_nic = 0, rx_nic = 0;
  int from_socket = 0, to_socket = 0;  ///< of its memory
  double demand = 1;                   ///< bytes of an operation, in any unit
};

/// All channels of a job. All nodes are alike.
struct Wiring {
  std::vector<int> nic_socket;  ///< of each NIC of a node
  double far_cost = 1;  ///< time of a byte between a NIC and memory of another socket, in that of a near one
  std::vector<Connection> channels;
};

/// Fraction of the healthy rate that is left, 0 … 1, with `nics[node][nic]`.
///
/// An operation ends with its slowest channel, so the rate is 1 / the time of the busiest port; each port
/// sends and receives at its full rate. Baseline: a dead NIC or a lost queue pair ends the job (0). Migrate:
/// each channel of a dead rail moves by itself to another straight rail (the same distance between the NICs
/// of both ends as at home), to a cross rail when no straight one is left, so that the busiest port is done
/// as early as it can be. All others stay, also on a slow NIC. A channel that lost a queue pair goes on
/// counting at home, as the plugin counts it: it is going to return.
///
/// Exact when all channels that move carry the same and only one node has lost NICs, else what a search
/// finds: the limit is then too low rather than too high.
double channel_limit(ModeKind mode, const std::vector<std::vector<NicState>>& nics, const Wiring& wiring);

}  // namespace r2bench
