// SPDX-License-Identifier: Apache-2.0
// Completion queues that are walked with ibv_start_poll, ibv_next_poll and ibv_wc_read_*.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

// EOPNOTSUPP for what goes beyond the standard fields (timestamps, VLAN, flow tags, tag matching, ignored
// overruns).
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);

}  // namespace vhca
