// SPDX-License-Identifier: Apache-2.0
// Posting through ibv_wr_* on a QP made with send_ops_flags.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

// 0, or EOPNOTSUPP when the flags name what this type of QP cannot do. Fills the QP's functions for what they
// name.
int serve_operations(ibv_qp_type type, std::uint64_t send_ops_flags, ibv_qp_ex& qp);

}  // namespace vhca
