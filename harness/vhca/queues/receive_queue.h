// SPDX-License-Identifier: Apache-2.0
// A QP's receive queue as its owner sees it: the ring in the fabric, which the owner fills and initiators
// complete in place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/vhca/process/objects.h"

namespace vhca {

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

std::size_t recv_ring_bytes(const QpSlot& slot);
// Nothing that lies in the ring is polled any more: the QP begins a new life, with the ring at that offset in
// the fabric (the old one, or another). Nobody holds its responder.
void restart_receive_queue(Qp& qp, std::uint64_t ring);
// The same at the end of the QP, whose completions are gone from its CQ.
void end_receive_queue(Qp& qp);

}  // namespace vhca
