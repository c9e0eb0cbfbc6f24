// SPDX-License-Identifier: Apache-2.0
// What the executor needs of the channels beneath it: ends of connections, numbered densely, on each of which
// messages are sent or received in order. In production they are channels of the core (channel_transport.h),
// in tests queues within one process.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/rails.h"
#include "r2ccl/service/net.h"

namespace r2ccl::collective {

/// Memory that messages may be received into.
struct StagingMemory {
  std::byte* data = nullptr;
  Registration* registration = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// A token for the message under way; nullptr: not now (no room, no receiver yet, not connected yet). The
  /// n-th message sent on an end is the n-th received at the other one.
  virtual Result<void*> isend(uint32_t end, const void* data, size_t bytes, Registration* registration) = 0;
  virtual Result<void*> irecv(uint32_t end, void* data, size_t bytes, Registration* registration) = 0;
  /// Messages posted on the end from now on are spread over rails like this; nullptr: alike. Both sides say
  /// so before the same message.
  virtual void route(uint32_t /*end*/, const RailShares* /*rails*/) {}
  /// The end's next message: how much of a chunk, of which `posted` bytes have been, it is to hold, `most` at
  /// most, and the rail that it takes. Both sides get the same answer.
  virtual RailTurns::Message next(uint32_t /*end*/, size_t chunk, size_t posted, size_t most) {
    return {0, std::min(chunk - posted, most)};
  }
  /// The token is gone once `done` is reported.
  virtual Result<TestOutcome> test(void* message) = 0;
  using Clock = std::chrono::steady_clock;
  /// Tests have a time of their own.
  virtual Clock::time_point now() const { return Clock::now(); }
  /// Stays until the transport goes.
  virtual Result<StagingMemory> staging(size_t bytes) = 0;
};

/// Messages under way on an end, at most.
inline constexpr uint32_t kMostMessages = kMaxRequests;

}  // namespace r2ccl::collective
