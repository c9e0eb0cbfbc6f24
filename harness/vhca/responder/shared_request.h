// SPDX-License-Identifier: Apache-2.0
// A request of a shared receive queue on its way: the initiator that needs one claims it with one
// compare-and-swap and moves it into the receive ring of the QP that it holds, from where on it is like any
// other. Must never lose a request or use one twice, whichever initiator is killed at whichever instruction.
#pragma once

#include <cstdint>

#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/process/limits.h"

namespace vhca {

// The low bits of SrqEntry::claim: who has taken it.
inline constexpr unsigned kTakerBits = 16;
inline constexpr std::uint64_t kTakerMask = (1u << kTakerBits) - 1;
static_assert(kMaxQueuePairs < kTakerMask);

// The low half of QpSlot::srq_intent: a holder is taking the request whose index ends with these 30 bits; or
// the owner has closed the word to the holders up to that one; or neither. It is changed by compare-and-swap
// only, from what was read under a valid hold: a holder that was revoked meanwhile then says nothing.
inline constexpr std::uint64_t kTaking = 1u << 31;
inline constexpr std::uint64_t kClosedToHolder = 1u << 30;
inline constexpr std::uint64_t kIntentIndexMask = kClosedToHolder - 1;
static_assert(kMaxSrqWr < kIntentIndexMask / 2);

inline SrqEntry& entry_of(Fabric& fabric, const SrqSlot& srq, std::uint64_t index) {
  return *at_offset<SrqEntry>(fabric, srq.ring + (index & (srq.depth - 1)) * srq.stride);
}

// An entry may be given out and written anew while somebody who came too late still reads it; that reader's
// claim then fails.
template <typename T>
T read_word(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <typename T>
void write_word(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

// The caller holds the QP, which has an SRQ and no request of its own: moves one there. False: the SRQ is
// empty, or the hold has been revoked.
bool take_shared_receive(Fabric& fabric, QpSlot& qp, const Hold& hold);
// Ends what a killed holder began. The caller holds the QP.
void finish_taking(Fabric& fabric, QpSlot& qp);
// The same by the QP's owner, while nobody can hold it any more. A holder whose hold was revoked may still be
// about to take a request: it is taken for it, and no later one by it.
void close_taking(Fabric& fabric, QpSlot& qp);
// By the SRQ's owner, before it gives that entry out again: whoever claimed its last request may have been
// stopped or killed before it moved it.
void finish_taking_of(Fabric& fabric, SrqSlot& srq, const SrqEntry& entry);

// Once when fewer requests are left than the queue is armed for: its owner's engine is told.
void look_at_limit(Fabric& fabric, SrqSlot& srq);

}  // namespace vhca
