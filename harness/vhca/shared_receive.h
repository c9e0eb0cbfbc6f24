// SPDX-License-Identifier: Apache-2.0
// Shared receive queues. Their requests lie in the fabric; the initiator that needs one claims it with one
// compare-and-swap and moves it into the receive ring of the QP that it holds, from where on it is like any
// other. Must never lose a request or use one twice, whichever initiator is killed at whichever instruction.
#pragma once

#include "harness/vhca/objects.h"

namespace vhca {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init);
// Only the limit can be changed.
int modify_srq(ibv_srq* srq, const ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);  // EBUSY while a QP uses it
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// The caller holds the QP, which has an SRQ and no request of its own: moves one there. False: the SRQ is
// empty.
bool take_shared_receive(Fabric& fabric, QpSlot& qp);
// Ends what a killed holder began. The caller holds the QP, or owns it while nobody can hold it any more
// (`for_owner`): then a holder whose hold was revoked may still be about to take the request, so it is taken
// for it.
void finish_taking(Fabric& fabric, QpSlot& qp, bool for_owner = false);

// The owner's engine: turns a reached limit into an event.
void deliver_limit_event(Srq& srq);

}  // namespace vhca
