// SPDX-License-Identifier: Apache-2.0
// The send side of a QP: pacing by the two ports' clocks, placing at the target, completing in
// order, the retry and RNR timers. Runs in whichever thread of the initiator comes by: the poster, a poller,
// the engine.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

// After send_head has moved: what was posted goes, now or when its time has come. The caller holds send_lock.
void start_posted(Qp& qp);

// Does what is due at `now`; returns when to come back (kNever: nothing is left to do). The caller holds
// send_lock.
std::uint64_t run_send_queue(Qp& qp, std::uint64_t now);

// All that is left is completed with WR_FLUSH_ERR, in order. The caller holds send_lock; the state is ERR.
void flush_send_queue(Qp& qp);

}  // namespace vhca
