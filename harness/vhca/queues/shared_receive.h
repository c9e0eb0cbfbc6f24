// SPDX-License-Identifier: Apache-2.0
// Shared receive queues, as their owner makes and fills them. Their requests lie in the fabric; how
// initiators take them is in shared_request.h.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init);
// Only the limit can be changed.
int modify_srq(ibv_srq* srq, const ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);  // EBUSY while a QP uses it
void end_srq(Srq& srq);         // as end_qp
void release_slot(Srq& srq);    // likewise
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// The owner's engine: turns a reached limit into an event.
void deliver_limit_event(Srq& srq);

}  // namespace vhca
