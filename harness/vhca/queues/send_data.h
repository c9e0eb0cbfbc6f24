// SPDX-License-Identifier: Apache-2.0
// From a WR to the bytes that travel: its own buffers, looked up and handed to the far end, as a piece of one
// message or as several whole messages in one copy.
#pragma once

#include "harness/vhca/process/objects.h"
#include "harness/vhca/responder/responder.h"

namespace vhca {

// Places `bytes` of the WR at `index`, from what is placed already. The caller holds send_lock.
Answer place_piece(Qp& qp, SendEntry& entry, std::uint64_t index, std::uint64_t bytes, std::uint64_t now_ns);

// A call into the kernel costs as much as copying some 16 KiB: large messages that go the same way at the
// same time share one. The most that one copy takes, in messages, bytes and buffers:
inline constexpr std::size_t kTogetherMessages = 16;
inline constexpr std::uint64_t kTogetherBytes = 1 << 20;
inline constexpr std::size_t kTogetherPieces = 64;

// A WRITE without immediate data or a READ, which is large and nothing of which is placed yet.
bool may_share_a_copy(const SendEntry& entry);
// Places `count` such messages of one opcode from `first` on, which are within the limits above. False:
// something is wrong with one of them, or the target is busy. Nothing was reported then; placing them again
// one by one does no harm and finds out. The caller holds send_lock.
bool place_together(Qp& qp, std::uint64_t first, std::size_t count, std::uint64_t now_ns);

}  // namespace vhca
