// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/staging.h"

#include <sched.h>

#include <bit>
#include <cstring>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/fabric/process_table.h"

namespace vhca {
namespace {

enum StagingState : std::uint32_t { kIdle, kPosted, kRunning, kDone, kRevoked };

constexpr std::uint64_t kStagingPatienceNs = 1'000'000'000;
constexpr std::uint64_t kLookAtPeerNs = 10'000'000;

void copy_in(char* data, const iovec* list, std::size_t count) {
  for (std::size_t i = 0; i < count; data += list[i].iov_len, ++i)
    copy_whole_words(data, list[i].iov_base, list[i].iov_len);
}
void copy_out(const iovec* list, std::size_t count, const char* data) {
  for (std::size_t i = 0; i < count; data += list[i].iov_len, ++i)
    copy_whole_words(list[i].iov_base, data, list[i].iov_len);
}

std::uint64_t offset_of(const Fabric& fabric, const std::atomic<std::uint64_t>& word) {
  return reinterpret_cast<std::uintptr_t>(&word) - reinterpret_cast<std::uintptr_t>(&fabric);
}
Hold hold_at(Fabric& fabric, const StagingSlot& slot) {
  return {*reinterpret_cast<std::atomic<std::uint64_t>*>(reinterpret_cast<char*>(&fabric) + slot.hold_offset),
          slot.hold_word};
}

}  // namespace

MoveStatus move_staged(Fabric& fabric, ProcessId self, ProcessId other, MoveDirection direction,
                       const iovec* local, std::size_t local_count, const iovec* remote,
                       std::size_t remote_count, const Hold* hold) {
  StagingSlot& slot = fabric.staging[slot_of_process(self)];
  if (remote_count > kStagingPieces) return MoveStatus::kRefused;
  slot.state.store(kIdle);
  slot.owner.store(self);
  slot.target.store(other);
  slot.to_target = direction == MoveDirection::kToRemote;
  slot.pieces = static_cast<std::uint32_t>(remote_count);
  slot.hold_offset = hold ? offset_of(fabric, hold->responder) : 0;
  slot.hold_word = hold ? hold->word : 0;
  for (std::size_t i = 0; i < remote_count; ++i)
    slot.piece[i] = {reinterpret_cast<std::uintptr_t>(remote[i].iov_base), remote[i].iov_len};
  if (slot.to_target) copy_in(slot.data, local, local_count);
  slot.state.store(kPosted);
  ProcessSlot* process = find_process(fabric, other);
  if (!process) return MoveStatus::kGone;
  const std::size_t bit = slot_of_process(self);
  process->staged_requests[bit / 64].fetch_or(1ull << (bit % 64));
  ring_doorbell(fabric, other);
  const std::uint64_t start = now_ns();
  std::uint64_t looked = start;
  std::uint32_t state;
  while ((state = slot.state.load()) != kDone && state != kRevoked) {
    serve_staged(fabric, self);  // the other engine may be waiting for us in the same way
    ::sched_yield();
    const std::uint64_t now = now_ns();
    if (now - looked < kLookAtPeerNs) continue;
    looked = now;
    const bool dead = process_liveness(fabric, other) == Liveness::kDead;
    if (dead) return MoveStatus::kGone;
    std::uint32_t expected = kPosted;
    if (now - start > kStagingPatienceNs && slot.state.compare_exchange_strong(expected, kIdle))
      return MoveStatus::kGone;
  }
  if (state == kRevoked) {
    slot.state.store(kIdle);
    return MoveStatus::kGone;
  }
  if (!slot.to_target) copy_out(local, local_count, slot.data);
  slot.state.store(kIdle);
  return MoveStatus::kOk;
}

void serve_staged(Fabric& fabric, ProcessId self) {
  ProcessSlot& own = fabric.processes[slot_of_process(self)];
  for (std::size_t word = 0; word < kMaxProcesses / 64; ++word) {
    if (own.staged_requests[word].load(std::memory_order_relaxed) == 0) continue;
    for (std::uint64_t bits = own.staged_requests[word].exchange(0); bits != 0; bits &= bits - 1) {
      StagingSlot& slot = fabric.staging[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
      if (slot.target.load() != self || process_liveness(fabric, slot.owner.load()) == Liveness::kDead)
        continue;
      std::uint32_t expected = kPosted;
      if (!slot.state.compare_exchange_strong(expected, kRunning)) continue;
      if (slot.hold_offset != 0 && !hold_at(fabric, slot).is_valid()) {
        slot.state.store(kRevoked);
        continue;
      }
      char* data = slot.data;
      for (std::uint32_t i = 0; i < slot.pieces && i < kStagingPieces; data += slot.piece[i].bytes, ++i) {
        auto* ours = reinterpret_cast<void*>(slot.piece[i].address);
        if (slot.to_target)
          copy_whole_words(ours, data, slot.piece[i].bytes);
        else
          copy_whole_words(data, ours, slot.piece[i].bytes);
      }
      slot.state.store(kDone);
    }
  }
}

}  // namespace vhca
