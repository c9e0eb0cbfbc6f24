// SPDX-License-Identifier: Apache-2.0
// How long each algorithm takes, in closed form, and what none can beat. Pure.
//
// Capacities are per node, the same for sending and receiving, relative to any unit; times are for data of
// size 1 at capacity 1: multiply by bytes / (bytes per second of capacity 1). p nodes, a(p) = 2(p−1)/p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

/// a(p): what each node of a ring of p sends for data of size 1.
double ring_volume(size_t ranks);

/// max( max 1/c_i , 2(p−1)/Σc_i ): a node must send its own data, or a sum that holds it, and receive the
/// result; and p−1 partial sums of each element, then p−1 copies of its result, have to be sent by somebody.
/// Chen et al., arXiv 2606.01680.
double allreduce_bound(std::span<const double> capacities);

/// The best shares of unequal_ring_allreduce() in the natural order, and its time without fill: a node that
/// is the end of `extra` carries 2 − 2·equal/p − extra, the others 2 − 2·equal/p.
struct UnequalRingShares {
  UnequalRing shares;
  double seconds = 0;
  /// The shares of another order of the nodes, which take the same time.
  UnequalRing in_order(const Ranks& order) const;
};
UnequalRingShares unequal_ring(std::span<const double> capacities);

/// The fractions of the weighted mix, and its time (without fill). Attains allreduce_bound() for three nodes
/// or more with any capacities of at most kMostLevels different values; with more, neighbouring values count
/// as the lower one.
struct MixFractions {
  std::vector<MixPart> parts;
  double seconds = 0;
};
MixFractions mix_fractions(std::span<const double> capacities);
inline constexpr size_t kMostLevels = 5;
inline constexpr double kSameLevel = 0.01;  ///< capacities that are closer than that are one level
/// The time of any mix without fill: the most loaded node's.
double mix_time(std::span<const double> capacities, std::span<const MixPart> parts);

/// Four-stage with the `leaves` nodes of least capacity as leaves: max(1/c_leaf, (2 + (s−2)/(p−s))/c_owner).
/// Without fill.
double four_stage_time(std::span<const double> capacities, size_t leaves);
/// The best shares of direct_allreduce(), and its time without fill. A node that owns f of the data sends and
/// receives 1 + (p − 2)f, so with T = allreduce_bound(), f = (cT − 1)/(p − 2) gives every node the load cT.
/// Attains the bound for any capacities of two nodes or more.
struct DirectShares {
  std::vector<double> shares;  ///< by node; their sum is 1
  double seconds = 0;
};
DirectShares direct_shares(std::span<const double> capacities);
/// Capacities, the least first, as at most `most` different values, each at most the node's own.
std::vector<double> levelled(std::vector<double> sorted, size_t most);
/// Nodes by capacity, the least first, else by number.
Ranks by_capacity(std::span<const double> capacities);

/// The rings of R2CCL-AllReduce: level k over the nodes of at least the k-th capacity, on the increment of
/// capacity between them. One degraded node: Y = ax/(ax + b(1−x)) is on the partial ring.
struct R2cclRings {
  std::vector<PartialRing> rings;
  double stage1 = 0;  ///< all rings
  double tail = 0;    ///< without fill
  double fill = 0;    ///< of the tail, with `pieces`
  double seconds() const { return stage1 + tail + fill; }
};
R2cclRings r2ccl_rings(std::span<const double> capacities, uint32_t pieces);

/// Upstream's schedule as its public code runs it: P = nodes · per_node ranks in one flat ring, `lost` = X:
/// max(a(P), a(H)) + (1 + 1/K)·X/(1−X), H = P − per_node.
double upstream_time(uint32_t nodes, uint32_t per_node, double lost, uint32_t pieces);

/// What every port of a node has to send or receive, the busier direction, over its capacity: the most of all
/// nodes. Of any schedule.
double busiest_port(const Schedule& schedule, std::span<const double> capacities);

/// What the slowest node takes in the other collectives, and what their builders attain: AllGather and
/// ReduceScatter (p−1)/p, Broadcast 1, AlltoAll (p−1)/p² of the data (of all ranks together) over c_min.
double other_bound(Collective collective, std::span<const double> capacities);

}  // namespace r2ccl::collective
