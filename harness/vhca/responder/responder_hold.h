// SPDX-License-Identifier: Apache-2.0
// Who may place something through a queue pair: one initiator at a time holds its responder, and its owner
// waits until nobody does before it changes what a holder relies on. Holders may be stopped or killed at any
// moment; then the hold is revoked.
#pragma once

#include <cstdint>

#include "harness/vhca/process/objects.h"

namespace vhca {

inline constexpr std::uint64_t kHolderMask = 0xffffffffu;

inline ProcessId holder_of(std::uint64_t word) { return static_cast<ProcessId>(word & kHolderMask); }

inline bool receives(std::uint32_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

// The target QP, held for the length of one piece.
class Target {
 public:
  Target(Fabric& fabric, const Qp& initiator, const SendEntry& send, ProcessId self);

  // Of what is held: nothing is changed in another life.
  std::uint32_t life() const { return life_; }
  // False: we were stopped, and the owner has gone on without us. What we had found may be gone.
  bool still_held() const { return hold().is_valid(); }
  Hold hold() const { return {slot_.responder, hold_}; }

  ~Target() { release(); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  bool held() const { return held_; }
  bool busy() const { return busy_; }
  QpSlot& slot() { return slot_; }

  void release();

 private:
  static std::uint32_t number_of(const Qp& initiator, const SendEntry& send);
  bool is_in_sequence(const Qp& initiator) const;
  bool answers(const Fabric& fabric, const Qp& initiator, const SendEntry& send);

  QpSlot& slot_;
  std::uint64_t hold_ = 0;
  std::uint32_t life_ = 0;
  bool held_ = false;
  bool busy_ = false;
};

// The holder's half of the handshake: nobody is placing anything through this QP (a dead holder is thrown
// out).
bool responder_is_free(Fabric& fabric, QpSlot& qp);
// Waits until it is so. After 20 ms the hold of a stopped holder is revoked, after two seconds that of one
// that runs: it completes nothing any more, but may still write to the receive ring, and, if it was stopped
// right before the copy, to the memory of that piece. The owner only.
void wait_until_unused(Fabric& fabric, QpSlot& qp, ProcessId self);
// The same for a QP in ERR, without waiting: whether what is left may be flushed. The caller holds the lock
// of its receive CQ.
bool is_at_rest(Fabric& fabric, Qp& qp);
// Waits until whoever is at it now has let go once.
void wait_until_unused_once(Fabric& fabric, QpSlot& qp, ProcessId self);

}  // namespace vhca
