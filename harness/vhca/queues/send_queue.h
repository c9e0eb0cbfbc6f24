// SPDX-License-Identifier: Apache-2.0
// The send side of a QP: posting, pacing by the two ports' clocks, placing at the target, completing in
// order, the retry and RNR timers. Runs in whichever thread of the initiator comes by: the poster, a poller,
// the engine.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);

// Building one request in the entry at `index`, which is not posted before send_head has passed it. The
// caller holds send_lock. Each returns 0 or an errno: ENOMEM the queue is full, EINVAL not for this QP or
// beyond its limits, EOPNOTSUPP.
int begin_entry(Qp& qp, std::uint64_t index, ibv_wr_opcode opcode);
int set_datagram_target(Qp& qp, SendEntry& entry, const ibv_ah* ah, std::uint32_t number, std::uint32_t qkey);
int set_inline_data(Qp& qp, std::uint64_t index, const void* data, std::size_t bytes);  // appends
int set_pieces(Qp& qp, std::uint64_t index, const ibv_sge* list, std::size_t count);
// 0 if the QP's state lets it post, else EINVAL; ENODEV in a forked child.
int may_post(const Qp& qp);
// After send_head has moved.
void start_posted(Qp& qp);

// Does what is due at `now`; returns when to come back (kNever: nothing is left to do). The caller holds
// send_lock.
std::uint64_t run_send_queue(Qp& qp, std::uint64_t now);

// All that is left is completed with WR_FLUSH_ERR, in order. The caller holds send_lock; the state is ERR.
void flush_send_queue(Qp& qp);

}  // namespace vhca
