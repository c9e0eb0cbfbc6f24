// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/fabric/process_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/port_clock.h"

namespace vhca {
namespace {

struct ProcStat {
  char state;
  long threads;
  std::uint64_t start_time;
};

enum class StatResult { kRead, kNoProcess, kUnknown };

// kUnknown: there is a process, but its stat cannot be had (no file descriptor left, hidepid): it counts as
// alive.
StatResult read_stat(pid_t pid, ProcStat& stat) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const auto otherwise = [pid] {
    return ::kill(pid, 0) != 0 && errno == ESRCH ? StatResult::kNoProcess : StatResult::kUnknown;
  };
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return otherwise();
  char text[1024];
  const ssize_t got = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (got <= 0) return otherwise();
  text[got] = 0;
  const char* at = std::strrchr(text, ')');  // the name may hold spaces and brackets
  if (!at) return StatResult::kUnknown;
  // Fields 3 (state), 20 (num_threads) and 22 (starttime) of proc(5).
  unsigned long long start = 0;
  const int fields =
      std::sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                  &stat.state, &stat.threads, &start);
  if (fields != 3) return StatResult::kUnknown;
  stat.start_time = start;
  return StatResult::kRead;
}

constexpr unsigned kTagBits = 16;
constexpr unsigned kTagShift = 64 - kTagBits;

std::uint64_t tag_of(std::uint64_t claim) { return claim << kTagShift; }

// Start time of whoever made that claim, 0 if it has not written it yet.
std::uint64_t start_time_of(const ProcessSlot& slot, std::uint64_t claim) {
  const std::uint64_t word = slot.start_time.load();
  return (word >> kTagShift << kTagShift) == tag_of(claim) ? word << kTagBits >> kTagBits : 0;
}

// The process runs another program now: pid and start time are the same, its memory is gone, and with it
// every thread that could still be copying. False where its memory cannot be read.
bool has_executed_another_program(const ProcessSlot& slot, std::uint64_t claim) {
  const ProcessId id = slot.id.load();
  const std::uint64_t wanted = slot.beacon_value.load();
  std::uint64_t word = 0;
  iovec here{&word, sizeof word};
  iovec there{reinterpret_cast<void*>(slot.beacon_address.load()), sizeof word};
  if (id == 0) return false;  // not complete yet
  const ssize_t got = ::process_vm_readv(static_cast<pid_t>(claim >> 32), &here, 1, &there, 1, 0);
  const bool other = got == static_cast<ssize_t>(sizeof word) ? word != wanted : errno == EFAULT;
  return other && slot.id.load() == id && slot.claim.load() == claim;
}

Liveness liveness_of(const ProcessSlot& slot, std::uint64_t claim) {
  const Liveness life = process_liveness(static_cast<pid_t>(claim >> 32), start_time_of(slot, claim));
  return life != Liveness::kDead && has_executed_another_program(slot, claim) ? Liveness::kDead : life;
}

template <typename Slot, std::size_t n>
void release_owned(SlotTable<Slot, n>& table, ProcessId id) {
  for (Slot& slot : table.used()) {
    if (slot.owner.load(std::memory_order_relaxed) != id) continue;
    VHCA_PAUSE_POINT(owner_seen);
    ProcessId expected = id;
    slot.owner.compare_exchange_strong(expected, 0);
  }
}

// Key or number of the dead process's slot. It is read before the owner is: an id that has gone from a slot
// never comes back, so what was read is the dead process's. Others may have reclaimed the slot since, and a
// living process may have it, with another key: then the compare-and-swap does nothing.
template <typename Slot>
std::uint32_t owned_by(const Slot& slot, const std::atomic<std::uint32_t>& word, ProcessId id) {
  const std::uint32_t seen = word.load();
  VHCA_PAUSE_POINT(word_seen);
  return slot.owner.load() == id ? seen : 0;
}

// False: an initiator that lives still holds one of its QPs. Then nothing that it may be writing to is given
// away yet; the next look finds it gone. New holds are impossible: the QP's number is taken away first.
bool release_property(Fabric& fabric, ProcessId id) {
  bool unused = true;
  // Numbers and keys first: nobody must find a QP or MR whose memory is already someone else's.
  for (MrSlot& mr : fabric.memory_regions.used())
    if (std::uint32_t key = owned_by(mr, mr.key, id)) {
      VHCA_PAUSE_POINT(key_seen);
      mr.key.compare_exchange_strong(key, 0);
    }
  for (QpSlot& qp : fabric.queue_pairs.used()) {
    if (std::uint32_t number = owned_by(qp, qp.number, id)) {
      // Before the number goes: whoever ends this after we were killed has to find them.
      for (std::size_t p = 0; p < fabric.port_count; ++p) {
        release_flows_of(fabric.ports[p].tx, number);
        release_flows_of(fabric.ports[p].rx, number);
      }
      VHCA_PAUSE_POINT(number_seen);
      qp.number.compare_exchange_strong(number, 0);
      VHCA_PAUSE_POINT(number_gone);
    }
    if (qp.owner.load() != id) continue;
    if (has_living_holder(fabric, qp, id)) unused = false;
  }
  if (!unused) return false;
  release_owned(fabric.memory_regions, id);
  release_owned(fabric.completion_queues, id);
  release_owned(fabric.shared_receive_queues, id);
  release_owned(fabric.queue_pairs, id);
  release_all_pages(fabric, id);
  return true;
}

void reclaim_slot(Fabric& fabric, ProcessSlot& slot, std::uint64_t claim) {
  VHCA_PAUSE_POINT(found_dead);
  const ProcessId id = slot.id.load();
  // Another process may have been here first, and the slot may be a living one's by now: an id is written
  // after the claim.
  if (slot.claim.load() != claim) return;
  if (id != 0 && !release_property(fabric, id)) return;
  VHCA_PAUSE_POINT(property_released);
  // The id goes first: a slot that is free never shows an old id. Both steps may be repeated by another
  // process; ids and claims do not come back.
  ProcessId expected_id = id;
  slot.id.compare_exchange_strong(expected_id, 0);
  slot.claim.compare_exchange_strong(claim, 0);
}

}  // namespace

std::optional<std::uint64_t> process_start_time(pid_t pid) {
  ProcStat stat{};
  if (read_stat(pid, stat) != StatResult::kRead) return std::nullopt;
  return stat.start_time;
}

Liveness process_liveness(pid_t pid, std::uint64_t start_time) {
  ProcStat stat{};
  switch (read_stat(pid, stat)) {
    case StatResult::kNoProcess:
      return Liveness::kDead;
    case StatResult::kUnknown:
      return Liveness::kAlive;
    case StatResult::kRead:
      break;
  }
  if (start_time != 0 && stat.start_time != start_time) return Liveness::kDead;
  if ((stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1) return Liveness::kDead;
  return stat.state == 'T' || stat.state == 't' ? Liveness::kStopped : Liveness::kAlive;
}

Liveness process_liveness(const Fabric& fabric, ProcessId id) {
  const ProcessSlot& slot = fabric.processes[slot_of_process(id)];
  const std::uint64_t claim = slot.claim.load();
  if (id == 0 || claim == 0 || slot.id.load() != id) return Liveness::kDead;
  return liveness_of(slot, claim);
}

bool has_living_holder(const Fabric& fabric, const QpSlot& qp, ProcessId but) {
  const auto lives = [&](std::uint64_t word) {
    const auto holder = static_cast<ProcessId>(word & 0xffffffffu);
    return holder != 0 && holder != but && process_liveness(fabric, holder) != Liveness::kDead;
  };
  if (lives(qp.responder.load())) return true;
  for (const auto& revoked : qp.revoked.words)
    if (lives(revoked.load())) return true;
  return false;
}

ProcessId register_process(Fabric& fabric, std::uint32_t node, std::uint32_t memory_node,
                           const std::uint64_t* beacon) {
  reclaim_dead_processes(fabric);
  for (std::size_t i = 0; i < kMaxProcesses; ++i) {
    ProcessSlot& slot = fabric.processes[i];
    std::uint64_t expected = 0;
    if (slot.claim.load() != 0) continue;
    const std::uint32_t generation = slot.generation.fetch_add(1) + 1;
    const std::uint64_t claim = static_cast<std::uint64_t>(::getpid()) << 32 | (generation << 1 | 1);
    if (!slot.claim.compare_exchange_strong(expected, claim)) continue;
    slot.start_time.store(tag_of(claim) | process_start_time(::getpid()).value_or(0) << kTagBits >> kTagBits);
    slot.node = node;
    slot.memory_node = memory_node;
    slot.beacon_address.store(reinterpret_cast<std::uintptr_t>(beacon));
    slot.beacon_value.store(*beacon);
    slot.engine_sleeps.store(0);
    const ProcessId id = generation << kProcessSlotBits | static_cast<ProcessId>(i);
    slot.id.store(id);
    return id;
  }
  return 0;
}

void unregister_process(Fabric& fabric, ProcessId id) {
  ProcessSlot& slot = fabric.processes[slot_of_process(id)];
  if (slot.id.load() == id) reclaim_slot(fabric, slot, slot.claim.load());
}

void reclaim_dead_processes(Fabric& fabric) {
  for (ProcessSlot& slot : fabric.processes) {
    const std::uint64_t claim = slot.claim.load();
    if (claim != 0 && liveness_of(slot, claim) == Liveness::kDead) reclaim_slot(fabric, slot, claim);
  }
}

void wake_engine(Fabric& fabric, ProcessId id) {
  ProcessSlot& slot = fabric.processes[slot_of_process(id)];
  slot.doorbell.fetch_add(1);
  if (slot.engine_sleeps.load() != 0)
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&slot.doorbell), FUTEX_WAKE, 1, nullptr, nullptr,
              0);
}

void ring_doorbell(Fabric& fabric, ProcessId id) {
  fabric.processes[slot_of_process(id)].flags_raised.store(1);
  wake_engine(fabric, id);
}

std::uint32_t memory_node_of_owner(Fabric& fabric, std::uint32_t qp_number) {
  const QpSlot& qp = fabric.queue_pairs[qp_number & (kMaxQueuePairs - 1)];
  if (qp_number == 0 || qp.number.load(std::memory_order_acquire) != qp_number) return kNoMemoryNode;
  const ProcessSlot* owner = find_process(fabric, qp.owner.load(std::memory_order_relaxed));
  return owner ? owner->memory_node : kNoMemoryNode;
}

ProcessSlot* find_process(Fabric& fabric, ProcessId id) {
  if (id == 0) return nullptr;
  ProcessSlot& slot = fabric.processes[slot_of_process(id)];
  return slot.id.load(std::memory_order_acquire) == id ? &slot : nullptr;
}

}  // namespace vhca
