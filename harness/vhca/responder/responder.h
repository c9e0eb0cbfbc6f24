// SPDX-License-Identifier: Apache-2.0
// The far end of a transfer, carried out by the initiator: checks what the target's HCA would check, places
// the data, completes the target's receive work request. Must never touch a QP after its owner has moved it
// to ERR and been told that it is so.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "harness/vhca/process/objects.h"
#include "harness/vhca/process/process.h"

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

struct Piece {
  const SendEntry& send;
  std::uint64_t offset;  // within the message
  std::uint64_t bytes;
  bool first;
  bool last;  // completes the message at the target
  iovec* local;
  std::size_t local_count;
};

// `self`: the initiator's process.
Answer place(Process& self, Qp& initiator, const Piece& piece, std::uint64_t now_ns);

// Several whole messages of one QP in one copy: WRITEs without immediate data only, or READs only. `local`
// has the buffers of all of them, in order. Anything but kPlaced says only that it did not work: the target
// knows nothing of it, and the initiator has to place them one by one.
Answer place_whole(Process& self, Qp& initiator, const SendEntry* const* sends, std::size_t count,
                   iovec* local, std::size_t local_count, std::uint64_t now_ns);

// For an RNR: the timer that the target asks for.
std::uint64_t rnr_timer_ns(std::uint32_t code);

}  // namespace vhca
