// SPDX-License-Identifier: Apache-2.0
// What may go by either interface of verbs: with AGENT_EXTENDED in its environment the agent that is linked
// with libibverbs posts through ibv_qp_ex and polls through ibv_cq_ex.
#pragma once

#include "faultinject/testing/agent/verbs.h"

namespace agent {

ibv_cq* create_cq(int entries, ibv_comp_channel* channel);
ibv_qp* create_qp(ibv_qp_init_attr& attributes);
/// As ibv_poll_cq; of an extended queue only wr_id, status and qp_num.
int poll_cq(ibv_cq* cq, int entries, ibv_wc* wcs);
/// 0, or an errno.
int post_send(ibv_qp* qp, ibv_send_wr& wr);

}  // namespace agent
