// SPDX-License-Identifier: Apache-2.0
// The algorithms, each a function that writes a schedule, and the blocks that several of them share. Ranks
// are nodes unless a caller says otherwise; `order` is a ring's order of ranks. Which of them is the fastest
// says the planner; how long each takes, cost.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/collective/builder.h"
#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

using Ranks = std::vector<uint32_t>;

/// 0, 1, … ranks − 1.
Ranks natural_order(uint32_t ranks);

// ---- AllReduce ----

/// Ring: reduce-scatter and all-gather around `order`; each of 2(p−1) steps a segment. `depth` chunks of each
/// rank are under way at a time, so that one travels while the other is waited for.
Schedule ring_allreduce(const Ranks& order, uint32_t segments, uint32_t depth = 2);

/// Balance's ring where capacities differ, still between neighbours only: `equal` of the data goes around as
/// in any ring; `extra[i]` is summed along it up to the i-th in `order`, and the result goes on from there,
/// so that this rank sends and receives that part once and not twice. unequal_ring() of cost.h gives the best
/// shares.
struct UnequalRing {
  double equal = 1;
  std::vector<double> extra;  ///< by position; the sum with `equal` is 1
};
Schedule unequal_ring_allreduce(const Ranks& order, const UnequalRing& shares, uint32_t segments);

/// Two binary trees, half the data each; who is an inner node of one is a leaf of the other.
Schedule double_tree_allreduce(uint32_t ranks, uint32_t segments);

/// Four-stage: reduce-scatter among `owners`, each leaf's own data to the owner of each chunk, the result
/// back to the leaves, and all-gather among the owners, all four pipelined over the segments. A leaf sends
/// and receives the data once.
Schedule four_stage_allreduce(const Ranks& owners, const Ranks& leaves, uint32_t segments);

/// A part of the data for the weighted mix, run with these leaves (none: a ring).
struct MixPart {
  double fraction = 1;
  Ranks owners, leaves;
  bool operator==(const MixPart&) const = default;
};
/// Each part's algorithm at the same time, each on its share of the ports.
Schedule mix_allreduce(uint32_t ranks, std::span<const MixPart> parts, uint32_t segments);
/// Segments of its ring: so few that its chunks are no smaller than the others', beside what a step costs.
uint32_t mix_ring_segments(double fraction, uint32_t segments);

/// Direct: for each chunk all other ranks send their data to its owner, which sends them the result. Rank i
/// owns `shares[i]` of the data, in `depth` chunks of each segment; 0: it owns none. direct_shares() of
/// cost.h gives the best ones. Two latencies whatever the number of ranks, but a rank has up to 4(p−1) ends
/// of connections.
Schedule direct_allreduce(std::span<const double> shares, uint32_t segments, uint32_t depth = 2);
inline constexpr uint32_t kDirectCredits = 2;  ///< of its connections

/// Rings on parts of the data, the first over all ranks, each further one over a part of the members of the
/// one before.
struct PartialRing {
  double fraction = 1;
  Ranks order;
};
/// R2CCL-AllReduce: all rings at the same time, then the tail: for each partial ring in at least `pieces`
/// pieces, the ranks that are not in it send their data to its first member (bridge), which sends the result
/// along the ring; the last member sends it to them.
Schedule r2ccl_allreduce(uint32_t ranks, std::span<const PartialRing> rings, uint32_t pieces);
/// How many pieces that makes of a partial ring of `members`.
uint32_t tail_pieces(uint32_t members, uint32_t pieces);

/// What upstream's public code runs (R2CC_AR_SCHEDULE=1): ranks are GPUs, `per_node` on each node, in one
/// flat ring; node 0 has lost the part `lost` of its NICs. AllReduce of 1 − lost over the NICs that it has
/// left, the healthy ranks' AllReduce of the rest over the NICs that it has lost at the same time; then
/// `pieces` pieces, each a Reduce of node 0's data onto the first healthy rank and, when the whole piece is
/// there, a Broadcast in a chain over all ranks.
Schedule upstream_allreduce(uint32_t nodes, uint32_t per_node, double lost, uint32_t pieces);
inline constexpr uint16_t kSurvivingRails = 1, kLostRails = 2;  ///< its rail classes

// ---- the others: a ring, a chain or direct exchange is already as fast as the slowest node allows (README)
// ----

Schedule ring_allgather(const Ranks& order, uint32_t segments, uint32_t depth = 2);
Schedule ring_reduce_scatter(const Ranks& order, uint32_t segments, uint32_t depth = 2);
/// A chain from order[0]; ranks of the least capacity belong at its end, where they send to nobody.
Schedule chain_broadcast(const Ranks& order, uint32_t segments);
/// Each rank to each other, at the same time.
Schedule direct_alltoall(uint32_t ranks, uint32_t segments);

// ---- blocks ----

/// What a rank does in a ring: its two lanes' last operations. Lane Wait::kNone: none.
struct RingEnd {
  OpRef sent, received;
};
/// A ring AllReduce among `order` on a part with order.size() · depth chunks. By position in `order`.
std::vector<RingEnd> add_ring(ScheduleBuilder& builder, const Ranks& order, uint16_t part, uint16_t group,
                              uint32_t depth);
/// Four-stage on a part with owners.size() chunks. Without leaves: a ring whose two halves have lanes of
/// their own.
void add_four_stage(ScheduleBuilder& builder, const Ranks& owners, const Ranks& leaves, uint16_t part,
                    uint16_t group);

/// A ring's order in which neighbours share as many rails as can be: `rails[i]`, bit r: rank i's NIC on rail
/// r works. Ranks that have lost different rails get a rank between them that has both (bridge). Starts with
/// rank 0.
Ranks bridge_order(std::span<const uint64_t> rails);

}  // namespace r2ccl::collective
