// SPDX-License-Identifier: Apache-2.0
// How long an operation takes that is alone, from what its lanes wait for. Pure.
#pragma once

#include <span>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {

/// Seconds of one operation of `job` whose parts run at the same time with K = `segments`, as mix_allreduce()
/// and four_stage_allreduce() have them. Nodes of about the same capacity count as one kind.
double alone_seconds(const Job& job, std::span<const MixPart> parts, uint32_t segments);
/// The same of double_tree_allreduce(). Ranks of the same height in a tree count as one kind.
double alone_tree_seconds(const Job& job, uint32_t segments);
/// The same of direct_allreduce() with the best shares. Nodes of about the same capacity count as one kind,
/// of at most four. A node between two kinds counts as the weaker one; what the busiest port needs less
/// because it is stronger is subtracted.
double alone_direct_seconds(const Job& job, uint32_t segments);
/// The same of a ring of `fraction` of the data, as add_ring() has it, without its last latency: what waits
/// for what goes around the ring, or the slowest node is never idle. 0 of one rank.
double alone_ring_seconds(const Job& job, const Ranks& order, double fraction, uint32_t segments);

}  // namespace r2ccl::collective
