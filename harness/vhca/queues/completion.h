// SPDX-License-Identifier: Apache-2.0
// Completion queues. Send completions are made and polled in one process and lie in its own memory. Receive
// completions lie in the receive rings of the QPs, where the initiator has written them; a CQ's slot only
// tells which rings to look into.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int comp_vector);
int resize_cq(ibv_cq* cq, int cqe);
int destroy_cq(ibv_cq* cq);
void end_cq(Cq& cq);        // as end_qp
void release_slot(Cq& cq);  // likewise

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// Receives up to `completed` that were given room as flushed ones, but which a holder that was revoked has
// completed: it counts them itself. Caller holds the CQ's lock, or nobody polls the QP any more.
void leave_room_to_holder(Cq& cq, Qp& qp, std::uint64_t completed);
void push_send_completion(Cq& cq, const ibv_wc& wc, Qp& qp, std::uint64_t send_index);
// Sends and receives that are completed and not polled. Caller holds the CQ's lock.
std::int64_t unread_completions(const Cq& cq);
// Takes a bit of the CQ for a QP's receive completions, gives it back. kReadyWords * 64 when none is left.
std::size_t attach_receiver(Cq& cq, Qp& qp);
void detach_receiver(Cq& cq, Qp& qp);
// Removes what the QP left in the CQ (destroyed and reset QPs show no completions any more).
void purge_completions(Cq& cq, const Qp& qp);

// The owner's engine: turns a pending mark into a channel event.
void deliver_pending_cq_event(Cq& cq);
// Makes good for a signal that was lost with a killed process. Caller: the engine's heartbeat.
void recover_lost_signals(Cq& cq);
// Once after the queue ran over: the event, and all its QPs to ERR. True if it did. The caller wakes the QPs.
bool report_overrun(Cq& cq);

// One more event of that CQ for whoever reads the channel. The caller holds the channel's lock.
void add_channel_event(Channel& channel, Cq& cq);

ibv_comp_channel* create_channel(ibv_context* context);
int destroy_channel(ibv_comp_channel* channel);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(ibv_cq* cq, unsigned count);

}  // namespace vhca
