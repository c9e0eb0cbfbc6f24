// SPDX-License-Identifier: Apache-2.0
// The best that Balance and AllReduce can keep of a job's bandwidth when NICs are dead or slow. Pure.
#pragma once

#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// What the channels of one node ask of its NICs, where memory and NICs are on sockets. All nodes are alike.
struct NodeLoad {
  std::vector<int> nic_socket;
  double far_cost =
      1;  ///< time of a byte between a NIC and memory of another socket, in that of a near one; >= 1
  /// `demand[nic][socket]`: bytes of the channels that have their home on this NIC and their memory on that
  /// socket, in any unit. Each NIC has an entry for every socket.
  std::vector<std::vector<double>> demand;
};

/// Of modes that share everything among the NICs that are left, as well as it can be: Balance and AllReduce.
/// `capacity[node][nic]`: 1 healthy, 0 dead, between: throttled. Returns the fraction of the healthy rate
/// that is left, 0 … 1.
///
/// An operation ends with the busiest NIC, so the rate is 1 / its time, least_time(). Healthy is what the
/// mode does without a failure: channels at home; it shares then too if some channel lives on a far NIC (else
/// nothing calls for it). Of the other modes: channel_limits.h.
double shared_limit(const std::vector<std::vector<double>>& capacity, const NodeLoad& load);

/// The same of a job in mode AllReduce whose operation is an AllReduce among one rank of each node: the lower
/// bound of any schedule, max(max 1/c, 2(p−1)/Σc) for nodes that keep c of their capacity (Chen et al., arXiv
/// 2606.01680), beside the ring's 2(p−1)/p without a failure. What p − 1 healthy nodes have left over counts,
/// so it is more than the weakest node's c.
double allreduce_limit(const std::vector<std::vector<double>>& capacity, const NodeLoad& load);

/// Time of the busiest NIC without a failure, in that of one unit of demand over a whole NIC.
double healthy_time(ModeKind mode, const NodeLoad& load);

/// Time of the busiest NIC when the demand of each socket is divided over all NICs as well as it can be: the
/// optimum of the linear program
///     minimise T   so that   sum over i of x[s][i] = demand[s],   sum over s of cost[s][i] * x[s][i] <=
///     capacity[i] * T,
/// x >= 0, cost = 1 on the NIC's own socket and far_cost >= 1 elsewhere. With one cost for all that is far,
/// near first and what is too much to wherever there is room is exact. Infinite when there is demand and no
/// NIC is left.
double least_time(const std::vector<double>& demand, const std::vector<double>& capacity,
                  const std::vector<int>& nic_socket, double far_cost);

}  // namespace r2bench
