// SPDX-License-Identifier: Apache-2.0
// Moves bytes between this process and the process that owns the other end of a transfer, without that
// process's help. Must never write into a process that merely has the number of a dead one.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

enum class MoveStatus {
  kOk,
  kGone,         // the other process is dead
  kRemoteFault,  // its memory is not there (any more)
  kLocalFault,   // ours is not
  kRefused,      // not that way
  kBusy,         // not now; try again
};

enum class MoveDirection { kToRemote, kFromRemote };

// Both lists cover the same number of bytes, and may name GPU memory (gpu_memory.h). See README.md for what
// is promised on order and torn words.
class MemoryMover {
 public:
  // VHCA_MOVE=attach|proc|staging says where to begin; the default is attach. Each way falls back to the next
  // when it is refused.
  MemoryMover(Fabric& fabric, ProcessId self);
  MemoryMover(const MemoryMover&) = delete;
  MemoryMover& operator=(const MemoryMover&) = delete;

  // kGone as well when `hold`, under which the caller may do it, was revoked before the copy began.
  MoveStatus move(MoveDirection direction, ProcessId other, iovec* local, std::size_t local_count,
                  iovec* remote, std::size_t remote_count, const Hold& hold, std::uint64_t now_ns);

  // For transfers without data: is there still somebody at the other end?
  MoveStatus touch(ProcessId other);

 private:
  struct Peer {
    std::atomic<ProcessId> id{0};
    std::atomic<std::uint64_t> checked_ns{0};
  };

  // Where some of the pieces are references to GPU memory (gpu_memory.h).
  MoveStatus move_gpu(MoveDirection direction, ProcessId other, const iovec* local, const iovec* remote,
                      std::size_t remote_count, const Hold& hold);
  MoveStatus move_gpu_piece(MoveDirection direction, ProcessId other, pid_t pid, char* local, char* remote,
                            std::size_t bytes, const Hold& hold);
  MoveStatus through_bounce(MoveDirection direction, ProcessId other, pid_t pid, char* local, char* remote,
                            std::size_t bytes, const Hold& hold);
  MoveStatus check_beacon(ProcessId other, pid_t pid, const ProcessSlot& slot);
  // By the first way that is not refused. kGone when `hold` (nullptr: none is needed) was revoked.
  MoveStatus move_somehow(MoveDirection direction, ProcessId other, pid_t pid, iovec* local,
                          std::size_t local_count, iovec* remote, std::size_t remote_count, const Hold* hold);
  MoveStatus attach(MoveDirection direction, pid_t pid, const iovec* local, std::size_t local_count,
                    const iovec* remote, std::size_t remote_count, const Hold* hold);
  MoveStatus through_proc(MoveDirection direction, ProcessId other, pid_t pid, const iovec* local,
                          std::size_t local_count, const iovec* remote, std::size_t remote_count,
                          const Hold* hold);

  Fabric& fabric_;
  ProcessId self_;
  std::atomic<bool> attach_refused_{false};
  std::atomic<bool> proc_refused_{false};
  std::mutex staging_lock_;
  std::mutex bounce_lock_;
  std::unique_ptr<char[]> bounce_;  // made when GPU memory first meets another process's host memory
  std::array<Peer, kMaxProcesses> peers_;
};

// Copies in ascending order; 8-byte words that are aligned at the destination are written whole (short copies
// only; long ones are left to memcpy, which moves aligned words whole on every CPU with 64-bit registers).
void copy_whole_words(void* to, const void* from, std::size_t bytes);

}  // namespace vhca
