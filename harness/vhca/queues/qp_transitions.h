// SPDX-License-Identifier: Apache-2.0
// Which attributes ibv_modify_qp needs and takes for each step of a QP's life (IBTA vol. 1, 11.2.5.2). Pure.
#pragma once

#include <infiniband/verbs.h>

namespace vhca {

// 0 or EINVAL: no such step, an attribute missing or out of place. Types: RC, UC, UD.
int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace vhca
