// SPDX-License-Identifier: Apache-2.0
// What the stand-in for NCCL computes: a thread takes a request of each rank of a communicator (TCP), does
// the arithmetic as NCCL does it, and sends back what each gets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/workload/nccl/gpu_data.h"

namespace r2bench::standin {

inline constexpr int kPremulSum = 5;  ///< the number of a reduction that the stand-in makes
inline constexpr int kAllReduce = 0, kReduceScatter = 1, kAllGather = 2, kBroadcast = 3, kPairs = 4;

/// NCCL's numbers to ours.
DataType type_of(int number);

/// False: the connection has ended.
bool send_all(int fd, const void* data, size_t bytes);
bool receive_all(int fd, void* data, size_t bytes);

/// A rank says how many ranks there are, and which it is (two ints), and gets a byte when all are there. Then
/// each of its requests begins with this.
struct Header {
  int what = 0, type = 0, operation = 0, root = 0;
  uint64_t count = 0, bytes = 0;
  int sends = 0, receives = 0;  // of kPairs: so many (peer, bytes) follow, then the data
};
struct Message {
  int peer = 0;
  uint64_t bytes = 0;
};

/// Of a communicator whose ranks connect to `listener`, and of those that it is shrunk to. Does not return.
void serve(int listener);

}  // namespace r2bench::standin
