// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/receive_queue.h"

#include <algorithm>
#include <cerrno>

#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/shared_request.h"

namespace vhca {
namespace {

// Requests of the SRQ that are in the QP's ring and that nobody will poll.
void give_up_taken(Qp& qp, Fabric& fabric) {
  QpSlot& slot = *qp.shared;
  if (slot.srq == 0) return;
  close_taking(fabric, slot);
  srq_of(qp.qp_base.srq).freed.fetch_add(slot.recv_posted.load() - qp.recv_tail.load());
}

// What is completed, up to that index, or flushed, and will not be polled.
void give_room_back(Qp& qp, Cq& cq, std::uint64_t completed) {
  leave_room_to_holder(cq, qp, completed);
  const std::uint64_t end = std::max(completed, qp.flush_end);
  cq.shared->outstanding.fetch_sub(static_cast<std::int64_t>(end - qp.recv_tail.load()));
}

}  // namespace

std::size_t recv_ring_bytes(const QpSlot& slot) {
  return static_cast<std::size_t>(slot.recv_depth) * slot.recv_stride;
}

void restart_receive_queue(Qp& qp, std::uint64_t ring) {
  QpSlot& slot = *qp.shared;
  Cq& cq = cq_of(qp.qp_base.recv_cq);
  const std::lock_guard cq_guard(cq.lock);  // against a poller in the middle of this ring
  const std::lock_guard recv_guard(qp.recv_lock);
  give_up_taken(qp, qp.owner->runtime->fabric());
  const std::uint64_t begin = slot.recv_posted.load() + 1;  // no index comes back
  slot.recv_posted.store(begin);
  give_room_back(qp, cq, slot.recv_completed.exchange(begin));
  qp.recv_tail.store(begin);
  qp.recv_head = qp.flush_begin = qp.flush_end = begin;
  slot.recv_ring = ring;
}

void end_receive_queue(Qp& qp) {
  give_room_back(qp, cq_of(qp.qp_base.recv_cq), qp.shared->recv_completed.load());
  give_up_taken(qp, qp.owner->runtime->fabric());
}

int post_recv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  QpSlot& slot = *qp.shared;
  if (runtime.is_forked_copy()) {  // before the lock, which a thread of the parent may have held
    if (bad_wr) *bad_wr = wr;
    return ENODEV;
  }
  int error = 0;
  const std::lock_guard guard(qp.recv_lock);
  if (qp.state() == IBV_QPS_RESET || slot.srq != 0) error = EINVAL;
  for (; wr && error == 0; wr = wr->next) {
    if (qp.recv_head - qp.recv_tail.load(std::memory_order_acquire) >= qp.init.cap.max_recv_wr) {
      error = ENOMEM;
      break;
    }
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > slot.max_recv_sge) {
      error = EINVAL;
      break;
    }
    RecvEntry& entry = qp.recv_entry(runtime.fabric(), qp.recv_head);
    entry.wr_id = wr->wr_id;
    entry.sge_count = static_cast<std::uint32_t>(wr->num_sge);
    for (int i = 0; i < wr->num_sge; ++i)
      entry.sge[i] = {wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    slot.recv_posted.store(++qp.recv_head, std::memory_order_release);
  }
  if (error != 0 && bad_wr) *bad_wr = wr;
  // Whoever moves it to ERR announces what is posted before; what is posted after is announced here.
  if (slot.state.load() == IBV_QPS_ERR) announce_receive(runtime.fabric(), slot, true, 0);
  return error;
}

}  // namespace vhca
