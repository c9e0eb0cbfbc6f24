// SPDX-License-Identifier: Apache-2.0
// How a completion queue, in whichever process, learns of a receive completion, and whether somebody is to be
// woken for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

inline void mark_ready(CqSlot& slot, std::size_t bit) {
  slot.ready[bit / 64].fetch_or(1ull << (bit % 64));
  slot.ready_summary.fetch_or(1ull << (bit / 64));
}

// So many more receive completions take their room, beside the send completions.
inline void count_receives(CqSlot& slot, std::uint64_t completions) {
  const auto more = static_cast<std::int64_t>(completions);
  if (slot.outstanding.fetch_add(more) + more + slot.sends.load() >
      static_cast<std::int64_t>(slot.capacity.load()))
    slot.overrun.store(1);
}

// Whether an armed CQ fires for this completion; disarms it then. `left`: kEventPending leaves the event to
// the owner's engine.
inline bool take_arm(CqSlot& slot, bool solicited, std::uint32_t left = 0) {
  std::uint32_t seen = slot.notify.load();
  for (;;) {
    const std::uint32_t armed = seen & kArmedMask;
    if (armed != kArmedForAny && !(armed == kArmedForSolicited && solicited)) return false;
    if (slot.notify.compare_exchange_weak(seen, (seen & ~kArmedMask) | left)) return true;
  }
}

// Tells a QP's receive CQ, in whichever process, that the ring has something for it. completions: how many
// were added.
void announce_receive(Fabric& fabric, const QpSlot& qp, bool solicited, unsigned completions);

}  // namespace vhca
