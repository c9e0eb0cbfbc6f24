// The send side of a QP: posting, pacing by the two ports' clocks, placing at the target, completing in order, the retry and RNR
// timers. Runs in whichever thread of the initiator comes by: the poster, a poller, the engine.
#pragma once

#include "harness/vhca/objects.h"

namespace vhca {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);

// Does what is due at `now`; returns when to come back (kNever: nothing is left to do). The caller holds send_lock.
std::uint64_t run_send_queue(Qp& qp, std::uint64_t now);

// All that is left is completed with WR_FLUSH_ERR, in order. The caller holds send_lock; the state is ERR.
void flush_send_queue(Qp& qp);

// What one QP may have outstanding without pacing: pieces of this size are placed under one hold of the target, so that its owner
// never waits longer than one such copy.
inline constexpr std::uint64_t kPieceBytes = 256 * 1024;

}  // namespace vhca
