// SPDX-License-Identifier: Apache-2.0
// Fetch-and-add and compare-and-swap in another process's memory. They are atomic among all initiators of the
// fabric (what verbs call IBV_ATOMIC_HCA, for all NICs of a process together), not with respect to the
// target's own CPU.
#pragma once

#include "harness/vhca/process/process.h"
#include "harness/vhca/responder/responder.h"

namespace vhca {

// Carries `send` out on the aligned 8 bytes at `address` of process `owner`; `result` gets what was there
// before. kPlaced, kBusy (another initiator is at it), kNoAnswer or kRemoteAccess.
// Nothing is written once the hold of the target QP has been revoked.
Answer carry_out_atomic(Process& self, ProcessId owner, void* address, const Hold& target,
                        const SendEntry& send, std::uint64_t& result, std::uint64_t now_ns);

}  // namespace vhca
