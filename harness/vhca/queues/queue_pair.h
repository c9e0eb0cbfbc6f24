// SPDX-License-Identifier: Apache-2.0
// Queue pairs: making them, moving them through their states.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

// RC, UC and UD, with a receive queue of its own or an SRQ.
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init);
// Moving to ERR or RESET is synchronous: when it returns nothing is placed through this QP any more, in
// either direction. (One exception, bounded: an initiator that was stopped by a signal between its check and
// its copy; see README.md.)
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
int destroy_qp(ibv_qp* qp);
// Nobody reaches it any more, and nothing of it is left in its CQs. The object and its slot in the fabric
// stay: modify_qp refuses it from then on.
void end_qp(Qp& qp);
// After end_qp, once: others may have its slot and its ring in the fabric.
void release_slot(Qp& qp);

}  // namespace vhca
