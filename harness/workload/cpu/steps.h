// SPDX-License-Identifier: Apache-2.0
// What the GPU kernel of NCCL would do for one channel of one operation, as a list of steps: which slice is
// received, reduced, sent, copied out, in NCCL's order. Pure; the proxy carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace r2bench {

/// One slice: at most one receive and at most one send. Elements are counted in the user's buffer.
struct Step {
  bool receives = false;
  bool sends = false;
  bool reduces = false;  ///< what was received is added to the own input; else it is taken as it is
  bool stores = false;   ///< the result goes to the output buffer
  size_t first = 0;
  size_t count = 0;  ///< may be 0: NCCL sends empty slices too
  /// Of what is received, in a ring: the sum of the inputs of so many ranks, from the one at place `origin` on.
  int addends = 0, origin = 0;
};

/// Steps that must be done in this order. Steps of different lanes are independent.
using Lane = std::vector<Step>;

/// Elements [first, first + count) of the buffer that channel `channel` of `channels` works on.
struct Part {
  size_t first = 0;
  size_t count = 0;
};
Part channel_part(size_t count, int channel, int channels, size_t align);

/// Ring AllReduce (reduce-scatter, then all-gather) of one part. Chunks of two slices of `slice` elements;
/// the i-th send of a rank is the i-th receive of the next one.
Lane ring_all_reduce(int rank, int ranks, Part part, size_t slice);

/// The other ring operations, in the same chunks and slices. Rank i owns elements [i·share, (i + 1)·share) of
/// the buffer, of which this channel works on `part` (counted from the chunk's first element).
Lane ring_all_gather(int rank, int ranks, size_t share, Part part, size_t slice);
Lane ring_reduce_scatter(int rank, int ranks, size_t share, Part part, size_t slice);
/// Of one part, from rank 0, which only sends.
Lane ring_broadcast(int rank, int ranks, Part part, size_t slice);

/// Messages of `message` elements from `from` of the input, and into `to` of the output, equally long (nothing is said
/// of addends): one lane sends, the other receives. An empty part is one empty message.
std::vector<Lane> send_recv(Part from, Part to, size_t message);

}  // namespace r2bench
