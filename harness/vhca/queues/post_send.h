// SPDX-License-Identifier: Apache-2.0
// Posting to the send queue: by ibv_post_send from WRs, or step by step, as ibv_wr_* do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/vhca/process/objects.h"

namespace vhca {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);

// 0 if the QP's state lets it post, else EINVAL; ENODEV in a forked child.
int may_post(const Qp& qp);

// Building one request in the entry at `index`, which is not posted before send_head has passed it. The
// caller holds send_lock. Each returns 0 or an errno: ENOMEM the queue is full, EINVAL not for this QP or
// beyond its limits, EOPNOTSUPP.
int begin_entry(Qp& qp, std::uint64_t index, ibv_wr_opcode opcode);
int set_datagram_target(Qp& qp, SendEntry& entry, const ibv_ah* ah, std::uint32_t number, std::uint32_t qkey);
int set_inline_data(Qp& qp, std::uint64_t index, const void* data, std::size_t bytes);  // appends
int set_pieces(Qp& qp, std::uint64_t index, const ibv_sge* list, std::size_t count);

}  // namespace vhca
