// Which attributes ibv_modify_qp needs and takes for each step of an RC QP's life (IBTA vol. 1, 11.2.5.2). Pure.
#pragma once

#include <infiniband/verbs.h>

namespace vhca {

// 0, EINVAL (no such step, an attribute missing or out of place) or EOPNOTSUPP (a step of hardware that is not served).
int check_transition(ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace vhca
