// SPDX-License-Identifier: Apache-2.0
// What the engine runs for an operation, and whether it should run it at all. Pure: all ranks that ask with the
// same numbers get the same answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "r2ccl/collective/planner.h"
#include "r2ccl/trace/event.h"

namespace r2ccl::collective {

/// What the ranks of a group have agreed on when they connected: the least of what each has.
struct Speeds {
  double bytes_per_second = 0;         ///< of the group's NIC, nominal
  double reduce_bytes_per_second = 0;  ///< additions of one group, measured; 0: not known, no limit
  /// What the engine is taken to need, in parts of what is predicted (R2CC_COLLNET_MARGIN); 0: margin_of().
  double margin = 1;
  uint32_t rails = 1;  ///< NICs of each node in the group
};

/// NCCL gives the engine an operation in pieces of at most this size, so many at a time.
inline constexpr uint64_t kLargestPiece = 4 << 20;
inline constexpr uint32_t kPiecesInFlight = 8;
/// Bytes of each piece of an operation, its padding included: NCCL's rule for CollNet. One piece is a chunk of each of
/// up to 8 channels; chunks are as small as gives each channel 64 of them, but no smaller than 128 KiB, and smaller for
/// small operations. `step_bytes`: an eighth of NCCL_BUFFSIZE.
uint64_t piece_of_operation(uint64_t bytes, uint64_t step_bytes = 512 << 10);
/// Operations of like sizes share a plan: that of the next quarter of a power of two.
uint64_t planned_bytes(uint64_t bytes);
/// Operations that stand beside each other, each on channels of its own, in turn: where one waits for a
/// message the ports carry those of another one. As many as leave a rank no more than kMostChannels, or all
/// if that takes no more than twice as many (beside_within()); `lanes`: of the rank that has most of them.
inline constexpr uint32_t kMostSlots = 4;
inline constexpr uint32_t kMostChannels = 256;
uint32_t slots_for(size_t lanes, size_t rails);
/// Bytes that a rank has under way: enough that no NIC waits for the next message, and no more, because what has been
/// posted leaves in the NIC's order, not in that of the operations.
size_t window_for(const Speeds& speeds, size_t rails);
/// Below this a ring of one segment does: every other schedule costs more messages than it saves time.
inline constexpr uint64_t kSmallOperation = 256 << 10;

/// The job of one engine operation of `bytes`; capacities as agreed (View), by rank. `outstanding`: like ones
/// in flight. `nics`: View::nics; not of this group's nodes and NICs: not known.
Job job_of(std::span<const double> capacities, uint64_t bytes, uint32_t outstanding, const Speeds& speeds,
           std::span<const double> nics = {});
/// `job` is one of so many operations in flight: as many stand beside each other as a group of that many NICs
/// per node has channels for.
void set_stream(Job& job, uint32_t outstanding, size_t rails);
/// How many are taken to be in flight with one of this size: operations of this size and of the sizes into
/// which NCCL cuts larger ones.
uint32_t outstanding_for(uint64_t bytes);

/// The margin by default. One where predictions are exact, as simulated ports and NCCL on a GPU show: one node is
/// degraded, and the latency of a step is small beside the time in which the ports send a piece. Else 1.08.
double margin_of(std::span<const double> capacities, uint64_t piece, const Speeds& speeds);

/// Some node counts as degraded: advise() compares the engine with the ring only then.
bool any_degraded(std::span<const double> capacities);
/// What NCCL's ring, whose messages Balance spreads, is taken to need for an AllReduce of `bytes`: additions
/// on the GPUs, pieces enough to hide what a step costs.
double ring_seconds(std::span<const double> capacities, uint64_t bytes, const Speeds& speeds);

struct EngineAdvice {
  bool engine = false;       ///< the engine is faster than NCCL's ring, whose messages Balance spreads
  /// Of NCCL's ring; of the engine as the planner predicts it; and as it is taken to need: with the margin,
  /// with what predictions for such nodes are known to be too low by, and at the engine's pace.
  double ring_seconds = 0, predicted_seconds = 0, engine_seconds = 0;
  std::string why;           ///< a sentence
};
/// For a collective of `bytes` on a group's NIC, which runs as pieces, each after the plan that a group makes
/// for it. Capacities: by rank, 0 … 1. `nics`: View::nics; empty: not known, or all alike. `engine_pace`:
/// View::engine_pace.
EngineAdvice advise(std::span<const double> capacities, uint64_t bytes, const Speeds& speeds,
                    std::span<const double> nics = {}, double engine_pace = 1);

/// As the trace calls it.
constexpr trace::PlannedAlgorithm traced_as(Algorithm algorithm) {
  return static_cast<trace::PlannedAlgorithm>(1 + static_cast<uint8_t>(algorithm));
}

}  // namespace r2ccl::collective
