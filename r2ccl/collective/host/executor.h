// SPDX-License-Identifier: Apache-2.0
// Runs operations of a rank after their programs, over a transport. No thread: everything moves in poll().
//
// An operation's lanes are put behind those of the operations before it, on each end of the transport: the
// n-th operation's messages on a channel are posted, here and at the peer, when all of the (n − 1)-th's have
// been, whatever schedules the two follow. So messages of two plans never meet, and no operation waits for
// another one as a whole: while the last chunks of one are still on their way, the next one fills the pipeline.
//
// Only waits order the lanes of an operation. recv and recvCopy go straight into the result; what is to be
// added goes into staging memory of its end, in the order of arrival. Sends share the home NIC by weighted
// fair queueing: of the lanes that have something to send, the one that is furthest behind its weight is next,
// and a bounded number of bytes is under way at a time (send_window.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "r2ccl/collective/host/program.h"
#include "r2ccl/collective/host/send_window.h"
#include "r2ccl/collective/host/staging_ring.h"
#include "r2ccl/collective/host/transport.h"

namespace r2ccl::collective {

/// dst[i] = a[i] op b[i]; dst may be a or b.
using ReduceFunction = void (*)(void* dst, const void* a, const void* b, size_t elements);

/// An operation's memory. Offsets are those of the schedule's data: all of it.
struct Work {
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Ranges> ranges;
  size_t element_bytes = 0;
  ReduceFunction reduce = nullptr;  ///< nullptr: a collective that adds nothing
  /// Memory whose byte `offset` of the data is at base + offset; of what is never looked at there need not be
  /// any.
  struct Memory {
    uintptr_t base = 0;
    Registration* registration = nullptr;
    std::byte* at(uint64_t offset) const { return reinterpret_cast<std::byte*>(base + offset); }
  };
  Memory own;     ///< this rank's contribution
  Memory result;  ///< sums and what is received, within [result_from, result_to)
  Memory others;  ///< … and everywhere else
  uint64_t result_from = 0, result_to = UINT64_MAX;
  /// Copied besides (AllGather: this rank's own block).
  const std::byte* copy_from = nullptr;
  std::byte* copy_to = nullptr;
  size_t copy_bytes = 0;
};

struct ExecutorLimits {
  /// A chunk that is larger is cut into messages of at most this size.
  size_t message_bytes = 128 << 10;
  /// Bytes under way that were sent, of all lanes together, at least: send_window.h.
  size_t window_bytes = 4 << 20;
  /// Staging memory of a receiving end, of all slots together.
  size_t staging_bytes = 4 << 20;
  /// Bytes added in one poll(), at least one piece of kPieceBytes.
  size_t reduced_per_poll = 256 << 10;
  /// Chunks of a connection that may be under way besides what its credits say, as far as they are together
  /// no more than this.
  size_t credit_bytes = 1 << 20;
};

class Executor {
 public:
  class Run;  ///< an operation
  static constexpr size_t kPieceBytes = 256 << 10;

  explicit Executor(Transport& transport, ExecutorLimits limits = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// ExecutorLimits::window_bytes from now on.
  void set_window(size_t bytes) { window_.set_least(bytes); }
  /// ExecutorLimits::message_bytes from now on: all ranks say the same, and before the same operation.
  void set_message(size_t bytes) { limits_.message_bytes = bytes; }
  /// Bytes that may be under way now.
  size_t window() const { return window_.bytes(); }
  /// … and so large it may become.
  size_t largest_window() const { return window_.most(); }
  /// Queues an operation behind those before. The pointer stays valid until release().
  Run* begin(Work work);
  /// Moves whatever can be moved now. True: something was. An error is the transport's, and final.
  Result<bool> poll();
  bool finished(const Run* run) const;
  void release(Run* run);

  /// Since the beginning.
  struct Counters {
    uint64_t messages_sent = 0, messages_received = 0, bytes_sent = 0, bytes_reduced = 0;
    std::chrono::nanoseconds reducing{0};  ///< in additions
  };
  const Counters& counters() const { return counters_; }

 private:
  struct End;
  struct Task;
  struct Message;
  struct Cursor;

  End& end(uint32_t number, bool sends);
  bool waits_over(const Run& run, const Op& op, uint32_t segment) const;
  void complete(Run& run, uint16_t lane);
  Cursor front(const End& end) const;
  void advance(End& end, const Cursor& at, uint64_t posted);
  bool pass_empty(End& end);
  bool may_post(const End& end, const Cursor& at) const;
  Result<bool> test(End& end);
  Result<bool> post_receives(End& end);
  Result<bool> post_sends();
  Result<bool> take(End& end, size_t& budget);
  bool copy(size_t& budget);
  double progress_of(const End& end) const;

  Transport& transport_;
  ExecutorLimits limits_;
  std::vector<std::unique_ptr<End>> ends_;  // by the transport's number; nullptr: not used so far
  std::vector<End*> senders_, receivers_;
  std::vector<std::unique_ptr<Run>> runs_, free_runs_;
  size_t first_taken_ = 0;
  SendWindow window_;
  uint64_t begun_ = 0;
  Counters counters_;
  std::optional<Error> error_;
};

}  // namespace r2ccl::collective
