// SPDX-License-Identifier: Apache-2.0
// What the executor holds of an operation, and of an end of the transport: which messages are under way,
// which come next. For executor.cc alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "r2ccl/collective/host/executor.h"

namespace r2ccl::collective {

/// An operation that has begun.
class Executor::Run {
 public:
  Work work;
  std::vector<uint32_t> done;    // operations completed, by lane
  std::vector<uint8_t> written;  // by chunk: the result holds it; else it is this rank's own contribution
  size_t open_lanes = 0;
  size_t copied = 0;
  uint64_t number = 0;  // of the operation
  bool finished() const { return open_lanes == 0 && copied == work.copy_bytes; }

  uint32_t operations(size_t lane) const {
    const Lane& of = work.program->lanes()[lane];
    return static_cast<uint32_t>(of.ops.size() * work.program->schedule().iterations(of));
  }
  Work::Memory result(uint64_t offset) const {
    return offset >= work.result_from && offset < work.result_to ? work.result : work.others;
  }
};

/// A run's lane on an end, of which not everything has been posted.
struct Executor::Task {
  Run* run = nullptr;
  uint16_t lane = 0;
  uint32_t segment = 0, op = 0;  // of the next message
  uint64_t offset = 0;           // … and what of the chunk has been posted, in bytes
};

/// What an end is to post next.
struct Executor::Cursor {
  const Op* op = nullptr;
  uint32_t chunk = 0;
  uint64_t from = 0, bytes = 0;  // of the whole chunk, within the data
};

/// One that has been posted, and has not been taken.
struct Executor::Message {
  void* request = nullptr;  // nullptr: a chunk without bytes
  Run* run = nullptr;
  const Op* op = nullptr;
  uint32_t segment = 0, chunk = 0;
  uint16_t lane = 0;
  bool last = false;  // of its chunk
  bool arrived = false;
  uint64_t from = 0, bytes = 0;
  size_t rail = 0;
  Transport::Clock::time_point posted_at{};  // of one that is sent
  uint64_t taken = 0;                        // bytes of it that have been added
  std::byte* staged = nullptr;
  StagingRing::Piece piece;
};

/// One direction of a channel, on which the operations of a slot follow each other.
struct Executor::End {
  uint32_t number = 0;
  bool sends = false;
  std::deque<Task> tasks;
  // Ring of messages under way, or arrived and not taken.
  std::array<Message, kMostMessages> messages;
  uint64_t posted = 0, completed = 0;  // messages
  uint32_t chunks_open = 0;            // chunks of which something is among `messages`
  bool refused = false;                // within post_sends(): not now
  StagingRing staging;
  StagingMemory memory;

  Message& at(uint64_t number_of) { return messages[number_of % kMostMessages]; }
  bool full() const { return posted - completed == kMostMessages; }
};

}  // namespace r2ccl::collective
