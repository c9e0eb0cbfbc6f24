// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/atomics.h"

#include "harness/vhca/fabric/process_table.h"

namespace vhca {
namespace {

constexpr int kSpins = 200;
constexpr std::uint64_t kLockerMask = 0xffffffffu;

ProcessId locker_of(std::uint64_t word) { return static_cast<ProcessId>(word & kLockerMask); }

// The one atomic operation that may be under way in a process's memory. If the holder is killed, the lock is
// taken over: its write either happened completely or not at all. A stopped one is waited for: it may still
// write.
class AtomicHold {
 public:
  AtomicHold(Fabric& fabric, std::atomic<std::uint64_t>& word, ProcessId self) : word_(word) {
    std::uint64_t seen = word.load();
    for (int i = 0; i < kSpins && locker_of(seen) != 0; ++i) seen = word.load();
    if (const ProcessId holder = locker_of(seen); holder != 0) {
      if (holder == self || process_liveness(fabric, holder) != Liveness::kDead) return;
      // Taken over in one step, as if from nobody.
    }
    hold_ = ((seen & ~kLockerMask) + (1ull << 32)) | self;
    held_ = word.compare_exchange_strong(seen, hold_);
  }
  ~AtomicHold() {
    std::uint64_t ours = hold_;
    if (held_) word_.compare_exchange_strong(ours, hold_ & ~kLockerMask);
  }
  AtomicHold(const AtomicHold&) = delete;
  AtomicHold& operator=(const AtomicHold&) = delete;
  bool held() const { return held_; }

 private:
  std::atomic<std::uint64_t>& word_;
  std::uint64_t hold_ = 0;
  bool held_ = false;
};

Answer answer_of(MoveStatus status) {
  switch (status) {
    case MoveStatus::kOk:
      return Answer::kPlaced;
    case MoveStatus::kRemoteFault:
    case MoveStatus::kLocalFault:
      return Answer::kRemoteAccess;
    default:
      return Answer::kNoAnswer;
  }
}

}  // namespace

Answer carry_out_atomic(Process& self, ProcessId owner, void* address, const Hold& target,
                        const SendEntry& send, std::uint64_t& result, std::uint64_t now_ns) {
  ProcessSlot* process = find_process(self.fabric(), owner);
  if (!process) return Answer::kNoAnswer;
  const AtomicHold hold(self.fabric(), process->atomic_holder, self.self());
  if (!hold.held()) return Answer::kBusy;
  std::uint64_t value = 0;
  iovec ours{&value, sizeof value};
  iovec theirs{address, sizeof value};
  MoveStatus status =
      self.mover().move(MoveDirection::kFromRemote, owner, &ours, 1, &theirs, 1, target, now_ns);
  if (status != MoveStatus::kOk) return answer_of(status);
  result = value;
  if (send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    value += send.atomic.compare_or_add;
  else if (value == send.atomic.compare_or_add)
    value = send.atomic.swap;
  else
    return Answer::kPlaced;
  status = self.mover().move(MoveDirection::kToRemote, owner, &ours, 1, &theirs, 1, target, now_ns);
  return answer_of(status);
}

}  // namespace vhca
