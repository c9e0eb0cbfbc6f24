// SPDX-License-Identifier: Apache-2.0
// The far end of a transfer, carried out by the initiator: checks what the target's HCA would check, places
// the data, completes the target's receive work request. Must never touch a QP after its owner has moved it
// to ERR and been told that it is so.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "harness/vhca/objects.h"

namespace vhca {

enum class Answer {
  kPlaced,
  kNoAnswer,  // no such QP, not ready to receive, other peer, wrong Q_Key, process dead: a packet into the
              // void
  kBusy,      // the last holder has not let go yet: ask again at once
  kNotReady,  // RNR: no receive work request
  kRemoteAccess,     // NAK remote access error; the target QP is in ERR now
  kRemoteInvalid,    // NAK invalid request; likewise
  kRemoteOperation,  // NAK remote operational error; likewise
  kLocalFault,       // our own memory is not there
};

// Whether the bytes of the message travel from the initiator to the target.
inline bool carries_data_to_peer(ibv_wr_opcode opcode) {
  return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
         opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

struct Piece {
  const SendEntry& send;
  std::uint64_t offset;  // within the message
  std::uint64_t bytes;
  bool first;
  bool last;  // completes the message at the target
  iovec* local;
  std::size_t local_count;
};

Answer place(Qp& initiator, const Piece& piece, std::uint64_t now_ns);

// Several whole messages of one QP in one copy: WRITEs without immediate data only, or READs only. `local`
// has the buffers of all of them, in order. Anything but kPlaced says only that it did not work: the target
// knows nothing of it, and the initiator has to place them one by one.
Answer place_whole(Qp& initiator, const SendEntry* const* sends, std::size_t count, iovec* local,
                   std::size_t local_count, std::uint64_t now_ns);

// For an RNR: the timer that the target asks for.
std::uint64_t rnr_timer_ns(std::uint32_t code);

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
// Whether somebody alive holds it or has not found out yet that it does not any more: its receive ring and
// its slot must not be given to others.
bool is_still_written_to(const Fabric& fabric, const QpSlot& qp);
// Waits until whoever is at it now has let go once.
void wait_until_unused_once(Fabric& fabric, QpSlot& qp, ProcessId self);

}  // namespace vhca
