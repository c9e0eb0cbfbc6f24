// SPDX-License-Identifier: Apache-2.0
// What each operation means: who sends to whom on which channel, in which steps, and what must come out. Pure
// but for the buffers it compares.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/scenario/scenario.h"
#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/cpu/steps.h"

namespace r2bench {

/// Messages of their own between pairs of ranks, instead of slices around the ring?
inline bool point_to_point(Operation op) { return op == Operation::kSendRecv || op == Operation::kAllToAll; }
/// Can NCCL do without its own slots when the user's buffers are registered? (It adds nothing up on the way.)
inline bool sends_from_user_buffers(Operation op) {
  return point_to_point(op) || op == Operation::kBroadcast;
}

/// One channel's part of an operation.
struct ChannelPlan {
  int shift =
      1;      ///< sends to the rank so many places on in the ring, receives from the one as many places back
  Part part;  ///< of the buffer, or of each rank's chunk where there are chunks
  std::vector<Lane> lanes;
};

/// The channels of the rank: `channels` of them towards each rank it sends to.
std::vector<ChannelPlan> plan_channels(const RankConfig& config, int channels);

/// Elements of one message of a point-to-point operation.
size_t message_elements(const RankConfig& config);

/// What never travels: copies the rank's own chunk to its output.
void copy_own_chunk(const RankConfig& config, const char* input, char* output);

/// What the message of a receiving step carries, on a channel of this shift: adds the job's ranks whose inputs are
/// summed to `ranks`, and returns the first element of the inputs.
size_t content_of(const RankConfig& config, int shift, const Step& step, std::vector<uint32_t>& ranks);

/// How many elements of `output` are not what `operation` (data_operation) gives; what it must leave alone counts
/// too, by byte.
uint64_t count_wrong(const RankConfig& config, const char* output, uint64_t operation);
/// Elements that it looks at and that came from other ranks: what never travels is compared too, but proves
/// nothing.
uint64_t elements_compared(const RankConfig& config);

}  // namespace r2bench
