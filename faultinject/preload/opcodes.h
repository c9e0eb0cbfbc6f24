// SPDX-License-Identifier: Apache-2.0
// Operations that older versions of verbs.h have neither a number nor a function for.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace faultinject {

constexpr auto kWrAtomicWrite = ibv_wr_opcode(15);
constexpr uint32_t kAtomicWriteBytes = 8;

/// The members of ibv_qp_ex for such operations, where verbs.h has them: calls `use` with a reference to it.
template <typename Qp, typename Use>
void with_atomic_write(Qp& qp, Use use) {
  if constexpr (requires { qp.wr_atomic_write; }) use(qp.wr_atomic_write);
}
template <typename Qp, typename Use>
void with_flush(Qp& qp, Use use) {
  if constexpr (requires { qp.wr_flush; }) use(qp.wr_flush);
}

}  // namespace faultinject
