// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/memory_move.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/vhca/base/log.h"
#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/memory/gpu_copy.h"
#include "harness/vhca/memory/gpu_delay.h"
#include "harness/vhca/memory/gpu_memory.h"
#include "harness/vhca/memory/staging.h"

namespace vhca {
namespace {

constexpr std::uint64_t kCheckIntervalNs = 10'000'000;  // far shorter than any reuse of a pid
constexpr std::size_t kShortCopy = 1024;
constexpr std::size_t kBounceBytes = 256 * 1024;

// Walks two lists of pieces side by side: f(local, remote, bytes) for each stretch that is contiguous in
// both.
template <typename F>
bool for_each_stretch(const iovec* local, const iovec* remote, std::size_t remote_count, F&& f) {
  std::size_t local_offset = 0;
  for (std::size_t r = 0; r < remote_count; ++r) {
    for (std::size_t remote_offset = 0; remote_offset < remote[r].iov_len;) {
      while (local_offset == local->iov_len) {
        ++local;
        local_offset = 0;
      }
      const std::size_t bytes = std::min(remote[r].iov_len - remote_offset, local->iov_len - local_offset);
      if (!f(static_cast<char*>(local->iov_base) + local_offset,
             static_cast<char*>(remote[r].iov_base) + remote_offset, bytes))
        return false;
      local_offset += bytes;
      remote_offset += bytes;
    }
  }
  return true;
}

std::size_t total(const iovec* list, std::size_t count) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += list[i].iov_len;
  return bytes;
}

// Whether our own pieces can be read (and, if they are the destination, written): tells whose fault an EFAULT
// was.
bool local_pieces_are_mapped(const iovec* local, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t offset = 0; offset < local[i].iov_len;) {
      char byte;
      iovec here{&byte, 1};
      iovec there{static_cast<char*>(local[i].iov_base) + offset, 1};
      if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != 1) return false;
      offset += kArenaPageBytes - (reinterpret_cast<std::uintptr_t>(there.iov_base) & (kArenaPageBytes - 1));
    }
  }
  return true;
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread")))  // a NIC's writes are no data race: the program synchronises with the
                                        // completion
#endif
                                        void
                                        copy_whole_words(void* to, const void* from, std::size_t bytes) {
  auto* d = static_cast<char*>(to);
  auto* s = static_cast<const char*>(from);
#if !defined(__SANITIZE_THREAD__)
  if (bytes > kShortCopy) {
    std::memmove(d, s, bytes);
    return;
  }
#endif
  while (bytes != 0 && (reinterpret_cast<std::uintptr_t>(d) & 7) != 0) {
    *reinterpret_cast<volatile char*>(d++) = *s++;
    --bytes;
  }
  for (; bytes >= 8; bytes -= 8, d += 8, s += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, s, 8);
    *reinterpret_cast<volatile std::uint64_t*>(d) = word;
  }
  while (bytes-- != 0) *reinterpret_cast<volatile char*>(d++) = *s++;
}

MemoryMover::MemoryMover(Fabric& fabric, ProcessId self) : fabric_(fabric), self_(self) {
  const char* way = std::getenv("VHCA_MOVE");
  if (!way || std::strcmp(way, "attach") == 0) return;
  attach_refused_ = true;
  proc_refused_ = std::strcmp(way, "staging") == 0;
  if (!proc_refused_ && std::strcmp(way, "proc") != 0) {
    log_line("VHCA_MOVE=%s is ignored: it must be attach, proc or staging", way);
    attach_refused_ = false;
  }
}

MoveStatus MemoryMover::move_somehow(MoveDirection direction, ProcessId other, pid_t pid, iovec* local,
                                     std::size_t local_count, iovec* remote, std::size_t remote_count,
                                     const Hold* hold) {
  if (!attach_refused_.load(std::memory_order_relaxed)) {
    const MoveStatus status = attach(direction, pid, local, local_count, remote, remote_count, hold);
    if (status != MoveStatus::kRefused) return status;
  }
  if (!proc_refused_.load(std::memory_order_relaxed)) {
    const MoveStatus status =
        through_proc(direction, other, pid, local, local_count, remote, remote_count, hold);
    if (status != MoveStatus::kRefused) return status;
  }
  const std::lock_guard guard(staging_lock_);
  if (remote_count <= kStagingPieces && total(remote, remote_count) <= kStagingBytes)
    return move_staged(fabric_, self_, other, direction, local, local_count, remote, remote_count, hold);
  MoveStatus status = MoveStatus::kOk;
  for_each_stretch(local, remote, remote_count, [&](char* ours, char* theirs, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes && status == MoveStatus::kOk; done += kStagingBytes) {
      const std::size_t some = std::min(bytes - done, kStagingBytes);
      const iovec here{ours + done, some}, there{theirs + done, some};
      status = move_staged(fabric_, self_, other, direction, &here, 1, &there, 1, hold);
    }
    return status == MoveStatus::kOk;
  });
  return status;
}

MoveStatus MemoryMover::check_beacon(ProcessId other, pid_t pid, const ProcessSlot& slot) {
  if (attach_refused_.load(std::memory_order_relaxed) && proc_refused_.load(std::memory_order_relaxed))
    // The other engine answers for itself, so a reused pid cannot be written to.
    return process_liveness(fabric_, other) == Liveness::kDead ? MoveStatus::kGone : MoveStatus::kOk;
  std::uint64_t word = 0;
  iovec here{&word, sizeof word};
  iovec there{reinterpret_cast<void*>(slot.beacon_address.load()), sizeof word};
  const std::uint64_t wanted = slot.beacon_value.load();
  const MoveStatus status =
      move_somehow(MoveDirection::kFromRemote, other, pid, &here, 1, &there, 1, nullptr);
  return status == MoveStatus::kOk && word == wanted ? status : MoveStatus::kGone;
}

MoveStatus MemoryMover::touch(ProcessId other) {
  if (other == self_) return MoveStatus::kOk;
  const ProcessSlot* slot = find_process(fabric_, other);
  if (!slot) return MoveStatus::kGone;
  return check_beacon(other, static_cast<pid_t>(slot->claim.load() >> 32), *slot);
}

MoveStatus MemoryMover::move(MoveDirection direction, ProcessId other, iovec* local, std::size_t local_count,
                             iovec* remote, std::size_t remote_count, const Hold& hold,
                             std::uint64_t now_ns) {
  if (any_gpu(local, local_count) || any_gpu(remote, remote_count)) [[unlikely]]
    return move_gpu(direction, other, local, remote, remote_count, hold);
  if (other == self_) {
    for_each_stretch(local, remote, remote_count, [&](char* ours, char* theirs, std::size_t bytes) {
      if (direction == MoveDirection::kToRemote)
        copy_whole_words(theirs, ours, bytes);
      else
        copy_whole_words(ours, theirs, bytes);
      return true;
    });
    return MoveStatus::kOk;
  }
  const ProcessSlot* slot = find_process(fabric_, other);
  if (!slot) return MoveStatus::kGone;
  const auto pid = static_cast<pid_t>(slot->claim.load(std::memory_order_relaxed) >> 32);
  Peer& peer = peers_[slot_of_process(other)];
  if (peer.id.load(std::memory_order_relaxed) != other ||
      now_ns - peer.checked_ns.load(std::memory_order_relaxed) > kCheckIntervalNs) {
    if (const MoveStatus status = check_beacon(other, pid, *slot); status != MoveStatus::kOk) return status;
    peer.checked_ns.store(now_ns, std::memory_order_relaxed);
    peer.id.store(other, std::memory_order_relaxed);
  }
  VHCA_PAUSE_POINT(peer_found);
  const MoveStatus status =
      move_somehow(direction, other, pid, local, local_count, remote, remote_count, &hold);
  // Or the process runs another program by now, whose memory is elsewhere.
  return status == MoveStatus::kRemoteFault && check_beacon(other, pid, *slot) == MoveStatus::kGone
             ? MoveStatus::kGone
             : status;
}

// This process's GPU memory and another's host memory: no one call moves between the two.
MoveStatus MemoryMover::through_bounce(MoveDirection direction, ProcessId other, pid_t pid, char* local,
                                       char* remote, std::size_t bytes, const Hold& hold) {
  const std::lock_guard guard(bounce_lock_);
  if (!bounce_) bounce_ = std::make_unique<char[]>(kBounceBytes + 64);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, kBounceBytes);
    // Lies like the host memory, so that aligned words are moved whole.
    char* const at =
        bounce_.get() +
        ((reinterpret_cast<std::uintptr_t>(remote + done) - reinterpret_cast<std::uintptr_t>(bounce_.get())) &
         63);
    iovec here{at, some}, there{remote + done, some};
    MoveStatus status;
    if (direction == MoveDirection::kToRemote) {
      status = copy_gpu(fabric_, self_, {at, self_}, {local + done, self_}, some, &hold);
      if (status == MoveStatus::kOk) status = move_somehow(direction, other, pid, &here, 1, &there, 1, &hold);
    } else {
      status = move_somehow(direction, other, pid, &here, 1, &there, 1, &hold);
      if (status == MoveStatus::kOk)
        status = copy_gpu(fabric_, self_, {local + done, self_}, {at, self_}, some, &hold);
    }
    if (status != MoveStatus::kOk) return status;
    done += some;
  }
  return MoveStatus::kOk;
}

MoveStatus MemoryMover::move_gpu_piece(MoveDirection direction, ProcessId other, pid_t pid, char* ours,
                                       char* theirs, std::size_t bytes, const Hold& hold) {
  const bool to_remote = direction == MoveDirection::kToRemote;
  const GpuSide here{ours, self_}, there{theirs, other};
  if (is_gpu(theirs) || (other == self_ && is_gpu(ours)))
    return copy_gpu(fabric_, self_, to_remote ? there : here, to_remote ? here : there, bytes, &hold);
  if (is_gpu(ours)) return through_bounce(direction, other, pid, ours, theirs, bytes, hold);
  if (other == self_) {
    copy_whole_words(to_remote ? theirs : ours, to_remote ? ours : theirs, bytes);
    return MoveStatus::kOk;
  }
  iovec one{ours, bytes}, another{theirs, bytes};
  return move_somehow(direction, other, pid, &one, 1, &another, 1, &hold);
}

MoveStatus MemoryMover::move_gpu(MoveDirection direction, ProcessId other, const iovec* local,
                                 const iovec* remote, std::size_t remote_count, const Hold& hold) {
  pid_t pid = 0;
  if (other != self_) {
    const ProcessSlot* const slot = find_process(fabric_, other);
    if (!slot) return MoveStatus::kGone;
    pid = static_cast<pid_t>(slot->claim.load() >> 32);
    if (const MoveStatus status = check_beacon(other, pid, *slot); status != MoveStatus::kOk) return status;
  }
  VHCA_PAUSE_POINT(peer_found);
  MoveStatus status = MoveStatus::kOk;
  for_each_stretch(local, remote, remote_count, [&](char* ours, char* theirs, std::size_t bytes) {
    const bool to_remote = direction == MoveDirection::kToRemote;
    char*& to = to_remote ? theirs : ours;
    if (is_gpu(theirs) && !to_remote)
      if (const GpuRegion& from = fabric_.gpu_regions[gpu_slot(theirs)]; from.shadow != 0)
        status = flush_delayed(fabric_, from, self_, other);
    const GpuRegion* const into = is_gpu(to) ? &fabric_.gpu_regions[gpu_slot(to)] : nullptr;
    if (status != MoveStatus::kOk || !into || into->shadow == 0) {
      if (status == MoveStatus::kOk)
        status = move_gpu_piece(direction, other, pid, ours, theirs, bytes, hold);
      return status == MoveStatus::kOk;
    }
    DelayedWrite write(fabric_, *into, self_, gpu_offset(to), bytes);
    if (!write.claimed()) {
      status = MoveStatus::kBusy;
      return false;
    }
    to = reinterpret_cast<char*>(into->shadow + gpu_offset(to));
    status = move_gpu_piece(direction, other, pid, ours, theirs, bytes, hold);
    if (status == MoveStatus::kOk) write.publish();
    return status == MoveStatus::kOk;
  });
  return status == MoveStatus::kRemoteFault && touch(other) == MoveStatus::kGone ? MoveStatus::kGone : status;
}

MoveStatus MemoryMover::attach(MoveDirection direction, pid_t pid, const iovec* local,
                               std::size_t local_count, const iovec* remote, std::size_t remote_count,
                               const Hold* hold) {
  const std::size_t wanted = total(remote, remote_count);
  // Directly before the copy: from each system call before it a stopped process may have come back late.
  if (hold && !hold->is_valid()) return MoveStatus::kGone;
#if defined(__SANITIZE_THREAD__)
  // Past the sanitizer's eyes: a NIC's access is no data race, the program synchronises with the completion.
  const long call = direction == MoveDirection::kToRemote ? SYS_process_vm_writev : SYS_process_vm_readv;
  const ssize_t moved = ::syscall(call, pid, local, local_count, remote, remote_count, 0);
#else
  const ssize_t moved = direction == MoveDirection::kToRemote
                            ? ::process_vm_writev(pid, local, local_count, remote, remote_count, 0)
                            : ::process_vm_readv(pid, local, local_count, remote, remote_count, 0);
#endif
  if (moved == static_cast<ssize_t>(wanted)) return MoveStatus::kOk;
  if (moved >= 0 || errno == EFAULT)
    return local_pieces_are_mapped(local, local_count) ? MoveStatus::kRemoteFault : MoveStatus::kLocalFault;
  if (errno == ESRCH) return MoveStatus::kGone;
  // A process on its way out may refuse for a moment before it is gone: that is no verdict on cross-memory
  // attach.
  const int error = errno;
  if (process_liveness(pid, 0) == Liveness::kDead) return MoveStatus::kGone;
  if (!attach_refused_.exchange(true))
    log_line("process_vm_%sv(pid %d) is refused (%s): going through /proc/PID/mem, at about half the speed",
             direction == MoveDirection::kToRemote ? "write" : "read", static_cast<int>(pid),
             std::strerror(error));
  return MoveStatus::kRefused;
}

MoveStatus MemoryMover::through_proc(MoveDirection direction, ProcessId other, pid_t pid, const iovec* local,
                                     std::size_t local_count, const iovec* remote, std::size_t remote_count,
                                     const Hold* hold) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/mem", static_cast<int>(pid));
  // Opened for each transfer: a kept descriptor would have to be tied to the process's life, and this way is
  // slow as it is.
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ESRCH) return MoveStatus::kGone;
    if (process_liveness(fabric_, other) == Liveness::kDead) return MoveStatus::kGone;
    if (!proc_refused_.exchange(true))
      log_line(
          "%s: %s. Data between processes goes through shared memory and the target's engine: slower, and a "
          "stopped process cannot be written to. (Wanted: the same user, no seccomp filter against "
          "process_vm_writev, Yama ptrace_scope 0 or 1.)",
          path, std::strerror(errno));
    return MoveStatus::kRefused;
  }
  (void)local_count;
  MoveStatus status = MoveStatus::kOk;
  for_each_stretch(local, remote, remote_count, [&](char* ours, char* theirs, std::size_t bytes) {
    const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(theirs));
    for (std::size_t done = 0; done < bytes;) {
      if (hold && !hold->is_valid()) {
        status = MoveStatus::kGone;
        return false;
      }
      const ssize_t moved = direction == MoveDirection::kToRemote
                                ? ::pwrite(fd, ours + done, bytes - done, at + static_cast<off_t>(done))
                                : ::pread(fd, ours + done, bytes - done, at + static_cast<off_t>(done));
      if (moved <= 0) {
        status = moved == 0 ? MoveStatus::kGone : MoveStatus::kRemoteFault;
        return false;
      }
      done += static_cast<std::size_t>(moved);
    }
    return true;
  });
  ::close(fd);
  return status;
}

}  // namespace vhca
