// SPDX-License-Identifier: Apache-2.0
// Moving a QP through its states. Which steps there are is in qp_transitions.
#include <cerrno>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/addresses.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/flows.h"
#include "harness/vhca/queues/pacing.h"
#include "harness/vhca/queues/qp_transitions.h"
#include "harness/vhca/queues/queue_pair.h"
#include "harness/vhca/queues/receive_queue.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/send_queue.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/responder_hold.h"

namespace vhca {
namespace {

void to_error(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  {
    const std::lock_guard guard(qp.send_lock);
    qp.shared->state.store(IBV_QPS_ERR);
    wait_until_unused(runtime.fabric(), *qp.shared, runtime.self());
    flush_send_queue(qp);
  }
  announce_receive(runtime.fabric(), *qp.shared, true, 0);
  if (qp.shared->srq != 0) push_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

// It is in ERR already: by itself, or by an initiator, neither of which waits for a holder.
void come_to_rest(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  const std::lock_guard guard(qp.send_lock);
  wait_until_unused(runtime.fabric(), *qp.shared, runtime.self());
}

int to_reset(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  Fabric& fabric = runtime.fabric();
  const std::lock_guard guard(qp.send_lock);
  QpSlot& slot = *qp.shared;
  slot.state.begin_life();
  wait_until_unused(fabric, slot, runtime.self());
  // An initiator that is stopped in the middle may write its completion into the ring when it goes on: that
  // one stays as it is until this process ends.
  const std::uint64_t ring = has_living_holder(fabric, slot)
                                 ? allocate_pages(fabric, runtime.self(), recv_ring_bytes(slot))
                                 : slot.recv_ring;
  if (ring == 0) return ENOMEM;
  qp.peer_life = 0;
  qp.send_head = qp.send_next = qp.send_ack = qp.drain_end = 0;
  qp.stalled_until_ns = 0;
  qp.waits_done = qp.rnr_done = 0;
  cancel_reservations(qp, now_ns());
  close_flows(qp);
  purge_completions(cq_of(qp.qp_base.send_cq), qp);
  purge_completions(cq_of(qp.qp_base.recv_cq), qp);
  qp.send_tail.store(0);
  restart_receive_queue(qp, ring);
  slot.peer_number.store(0);
  slot.events.begin_life(QpState::life_of(slot.state.word()));
  qp.attr = {};
  return 0;
}

int check_values(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && !has_port(qp.qp_base.context, attr.port_num)) return EINVAL;
  const Fabric& fabric = qp.owner->runtime->fabric();
  const Port& port = fabric.ports[qp.shared->port];
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index >= partition_keys(port).size()) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || 128u << attr.path_mtu > port.mtu))
    return EINVAL;
  if ((mask & IBV_QP_TIMEOUT) && attr.timeout > 31) return EINVAL;
  if ((mask & IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return EINVAL;
  if ((mask & IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xffffff) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxReadsOutstanding) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxReadsOutstanding) return EINVAL;
  if (mask & IBV_QP_AV) {
    if (attr.ah_attr.port_num > qp.owner->port_count) return EINVAL;
    Resolved there;
    if (const int error = resolve_address(fabric, port, attr.ah_attr, there)) return error;
  }
  return 0;
}

std::uint32_t usable_access(const Qp& qp) {
  const std::uint32_t none = qp.attr.max_dest_rd_atomic == 0 && qp.is_reliable()
                                 ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
                                 : 0;
  return qp.attr.qp_access_flags & ~none;
}

void take_values(Qp& qp, const ibv_qp_attr& attr, int mask) {
  QpSlot& slot = *qp.shared;
  if (mask & IBV_QP_PORT) {
    qp.attr.port_num = attr.port_num;
    slot.port = qp.owner->first_port + attr.port_num - 1;
  }
  if (mask & IBV_QP_QKEY) {
    qp.attr.qkey = attr.qkey;
    slot.qkey.store(attr.qkey);
  }
  if (mask & IBV_QP_PKEY_INDEX) {
    qp.attr.pkey_index = attr.pkey_index;
    slot.pkey_index.store(attr.pkey_index);
  }
  if (mask & IBV_QP_ACCESS_FLAGS) {
    qp.attr.qp_access_flags = attr.qp_access_flags;
    slot.access.store(usable_access(qp));
  }
  if (mask & IBV_QP_PATH_MTU) {
    qp.attr.path_mtu = attr.path_mtu;
    slot.path_mtu.store(attr.path_mtu);
  }
  if (mask & IBV_QP_RQ_PSN) {
    qp.attr.rq_psn = attr.rq_psn;
    slot.rq_psn.store(attr.rq_psn & kPsnMask);
  }
  if (mask & IBV_QP_SQ_PSN) qp.attr.sq_psn = attr.sq_psn;
  if (mask & IBV_QP_DEST_QPN) {
    qp.attr.dest_qp_num = attr.dest_qp_num;
    slot.peer_number.store(attr.dest_qp_num);
  }
  if (mask & IBV_QP_AV) {
    qp.attr.ah_attr = attr.ah_attr;
    const Fabric& fabric = qp.owner->runtime->fabric();
    Resolved there;
    resolve_address(fabric, fabric.ports[slot.port], attr.ah_attr, there);
    slot.peer_port.store(there.port);
  }
  if (mask & IBV_QP_TIMEOUT) qp.attr.timeout = attr.timeout;
  if (mask & IBV_QP_RETRY_CNT) qp.attr.retry_cnt = attr.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) qp.attr.rnr_retry = attr.rnr_retry;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) qp.attr.max_rd_atomic = attr.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
    qp.attr.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    slot.access.store(usable_access(qp));
  }
  if (mask & IBV_QP_MIN_RNR_TIMER) {
    qp.attr.min_rnr_timer = attr.min_rnr_timer;
    slot.min_rnr_timer.store(attr.min_rnr_timer);
  }
}

}  // namespace

int modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  if (runtime.is_forked_copy()) return ENODEV;
  if (qp.shared->number.load() != qp.qp_base.qp_num)
    return EINVAL;  // ended: a kernel has forgotten the handle
  const auto current = static_cast<ibv_qp_state>(qp.state());
  const ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : current;
  if (from != current) return EINVAL;
  const ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
  if (const int error = check_transition(qp.qp_base.qp_type, from, to, mask)) return error;
  if (const int error = check_values(qp, *attr, mask)) return error;
  if (to == IBV_QPS_ERR) {
    if (from != IBV_QPS_ERR)
      to_error(qp);
    else
      come_to_rest(qp);
  } else if (to == IBV_QPS_RESET) {
    return to_reset(qp);
  } else {
    const std::lock_guard guard(qp.send_lock);
    if ((mask & IBV_QP_AV) && from == IBV_QPS_SQD && qp.send_ack != qp.drain_end)
      return EBUSY;  // not drained yet
    take_values(qp, *attr, mask);
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) open_flows(qp);
    if ((mask & IBV_QP_AV) && from == IBV_QPS_SQD) open_flows(qp);
    if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) {
      qp.drain_end = qp.send_head;
      qp.drain_notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr->en_sqd_async_notify;
    }
    // An initiator may have moved it to ERR in between; that must not be undone.
    std::uint32_t expected = from;
    qp.shared->state.compare_exchange_strong(expected, to);
    if (from == IBV_QPS_SQD || to == IBV_QPS_SQD || from == IBV_QPS_SQE)
      runtime.schedule(qp, run_send_queue(qp, now_ns()));
  }
  return 0;
}

}  // namespace vhca
