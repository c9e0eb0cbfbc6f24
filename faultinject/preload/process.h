// SPDX-License-Identifier: Apache-2.0
// The injected process: the board it watches, the contexts it has opened, and the one thread that applies
// what the board says. Made at the first ibv_open_device; a forked child starts anew at its own first one.
#pragma once

#include <infiniband/verbs.h>

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "faultinject/control/board.h"
#include "faultinject/preload/context.h"

namespace faultinject {

class Process {
 public:
  static Process* current();         // nullptr before the first open, or without a usable board
  static Process* current_or_new();  // called at ibv_open_device

  // The program has opened a device: learn its place and its addresses, patch it. Never fails: what cannot be
  // injected is passed through, with one line on stderr.
  void opened(ibv_context* device);
  // Before the real ibv_close_device. What is still to be destroyed (removal.h).
  std::vector<Undestroyed> closing(ibv_context* device);

  bool acknowledge(const ibv_async_event& event);  // true: it was a synthetic one

  // Faults that have fired or healed take effect in this process before this returns.
  void sync_all();
  void event(const char* name, uint64_t value);
  // The same in a process that is none of the board's, because it has opened no device.
  static void event_without_device(const char* name, uint64_t value);

  // A fault that strikes in each process has struck in this one, by a context that has begun `round`.
  void has_struck(FaultEntry& fault, uint32_t round);

  // The injector's thread must be awake at `time_ns` or earlier.
  void wake_by(uint64_t time_ns);
  void wake_everybody() { ring_all(board_); }
  // False when the program is leaving: then its own calls do what the thread would do.
  bool has_thread() const { return running_.load(std::memory_order_relaxed); }

  Board& board() const { return board_; }
  const char* rank() const;
  int32_t pid() const { return pid_; }
  uint32_t next_qp_index(uint32_t nic, bool reliable) {
    return (reliable ? qp_indices_ : other_qp_indices_)[nic % kMaxNics].fetch_add(1);
  }

 private:
  Process(Board& board, ProcessEntry& entry, uint32_t node, int32_t pid);
  static Process* make();
  void start_thread();
  void stop_thread();
  void run();

  Board& board_;
  ProcessEntry& entry_;
  const uint32_t node_;
  const int32_t pid_;
  std::array<std::atomic<uint32_t>, kMaxNics> qp_indices_{}, other_qp_indices_{};

  std::array<std::atomic<uint32_t>, kMaxNics> open_{};  // contexts of each NIC

  std::mutex mutex_;  // of the lists; taken before any Context's
  std::vector<std::unique_ptr<Context>> contexts_;

  std::atomic<uint64_t> asleep_until_ns_{UINT64_MAX};  // UINT64_MAX also while it is awake: then always ring
  std::atomic<bool> stop_{false};
  pthread_t thread_{};
  std::atomic<bool> running_{false};
};

}  // namespace faultinject
