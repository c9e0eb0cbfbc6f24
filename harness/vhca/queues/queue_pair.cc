// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/addresses.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/pacing.h"
#include "harness/vhca/queues/qp_transitions.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/send_queue.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/responder_hold.h"
#include "harness/vhca/responder/shared_request.h"

namespace vhca {
namespace {

std::size_t recv_ring_bytes(const QpSlot& slot) {
  return static_cast<std::size_t>(slot.recv_depth) * slot.recv_stride;
}

int check_init(const ibv_qp_init_attr& init) {
  if (init.qp_type != IBV_QPT_RC && init.qp_type != IBV_QPT_UC && init.qp_type != IBV_QPT_UD)
    return EOPNOTSUPP;
  const ibv_qp_cap& cap = init.cap;
  if (!init.send_cq || !init.recv_cq || cap.max_send_wr > kMaxQpWr || cap.max_recv_wr > kMaxQpWr ||
      cap.max_send_sge > kMaxSge || cap.max_recv_sge > kMaxSge || cap.max_inline_data > kMaxInline)
    return EINVAL;
  return 0;
}

std::uint32_t next_number(QpSlot& slot, std::size_t index) {
  constexpr std::uint32_t kGenerations = 1u << (24 - kQpSlotBits);
  std::uint32_t generation = (slot.generation.fetch_add(1) + 1) % kGenerations;
  if (generation == 0)
    generation = (slot.generation.fetch_add(1) + 1) % kGenerations;  // 0 and 1 are special numbers
  return generation << kQpSlotBits | static_cast<std::uint32_t>(index);
}

void close_flows(Qp& qp) {
  for (Flow* flows : {qp.write_flows, qp.read_flows})
    for (int side = 0; side < 2; ++side) {
      cancel_rest(flows[side], now_ns());
      close_flow(flows[side]);
    }
  for (DatagramFlow& to : qp.datagram_flows) {
    cancel_rest(to.flow, now_ns());
    close_flow(to.flow);
  }
  qp.datagram_flows.clear();
}

void open_flows(Qp& qp) {
  close_flows(qp);
  Fabric& fabric = qp.owner->runtime->fabric();
  const std::uint32_t number = qp.qp_base.qp_num;
  Port& own = fabric.ports[qp.shared->port];
  const std::uint32_t own_percent = percent_of_rate(fabric, own, qp.owner->runtime->memory_node());
  qp.write_flows[0] = open_flow(own.tx, number, own_percent);
  qp.own_latency_ns = own.latency_ns;
  const std::uint32_t peer_port = qp.shared->peer_port.load();
  if (qp.shared->type == IBV_QPT_UD || peer_port == kNoPort) return;
  Port& peer = fabric.ports[peer_port];
  const std::uint32_t peer_percent =
      percent_of_rate(fabric, peer, memory_node_of_owner(fabric, qp.shared->peer_number.load()));
  qp.write_flows[1] = open_flow(peer.rx, number, peer_percent);
  qp.peer_latency_ns = peer.latency_ns;
  if (!qp.is_reliable()) return;
  qp.read_flows[0] = open_flow(peer.tx, number, peer_percent);
  qp.read_flows[1] = open_flow(own.rx, number, own_percent);
}

void connect_flows(Qp& qp) {
  open_flows(qp);
  set_window(qp);
}

// Requests of the SRQ that are in the QP's ring and that nobody will poll.
void give_up_taken(Qp& qp, Fabric& fabric) {
  QpSlot& slot = *qp.shared;
  if (slot.srq == 0) return;
  finish_taking(fabric, slot, true);
  srq_of(qp.qp_base.srq).freed.fetch_add(slot.recv_posted.load() - qp.recv_tail.load());
}

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

int to_reset(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  Fabric& fabric = runtime.fabric();
  const std::lock_guard guard(qp.send_lock);
  QpSlot& slot = *qp.shared;
  slot.state.begin_life();
  wait_until_unused(fabric, slot, runtime.self());
  // An initiator that is stopped in the middle may write its completion into the ring when it goes on: that
  // one stays as it is until this process ends.
  const std::uint64_t ring = is_still_written_to(fabric, slot)
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
  {
    Cq& cq = cq_of(qp.qp_base.recv_cq);
    const std::lock_guard cq_guard(cq.lock);  // against a poller in the middle of this ring
    const std::lock_guard recv_guard(qp.recv_lock);
    give_up_taken(qp, fabric);
    const std::uint64_t begin = slot.recv_posted.load() + 1;  // no index comes back
    slot.recv_posted.store(begin);
    cq.shared->outstanding.fetch_sub(
        static_cast<std::int64_t>(slot.recv_completed.exchange(begin) - qp.recv_tail.load()));
    qp.recv_tail.store(begin);
    qp.recv_head = begin;
    slot.recv_ring = ring;
  }
  slot.peer_number.store(0);
  slot.async_flags.store(0);
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
    slot.access.store(attr.qp_access_flags);
  }
  if (mask & IBV_QP_PATH_MTU) qp.attr.path_mtu = attr.path_mtu;
  if (mask & IBV_QP_RQ_PSN) qp.attr.rq_psn = attr.rq_psn;
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
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) qp.attr.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (mask & IBV_QP_MIN_RNR_TIMER) {
    qp.attr.min_rnr_timer = attr.min_rnr_timer;
    slot.min_rnr_timer.store(attr.min_rnr_timer);
  }
}

// Programs may look at ibv_qp::state, and several threads may change it.
void show_state(ibv_qp& ibqp, ibv_qp_state state) { __atomic_store_n(&ibqp.state, state, __ATOMIC_RELAXED); }

}  // namespace

ibv_qp* create_qp(ibv_pd* ibpd, ibv_qp_init_attr* init) {
  Pd& pd = pd_of(ibpd);
  Context& context = Context::of(pd.context);
  Runtime& runtime = *context.runtime;
  int error = runtime.is_forked_copy() ? ENODEV : check_init(*init);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Fabric& fabric = runtime.fabric();
  const std::size_t index = fabric.queue_pairs.claim(runtime.self());
  if (index == kMaxQueuePairs) {
    errno = ENOMEM;
    return nullptr;
  }
  QpSlot& slot = fabric.queue_pairs[index];
  Srq* srq = init->srq ? &srq_of(init->srq) : nullptr;
  // Granted as asked, at least one of each.
  init->cap.max_send_wr = std::max(1u, init->cap.max_send_wr);
  init->cap.max_recv_wr = std::max(1u, init->cap.max_recv_wr);
  init->cap.max_send_sge = std::max(1u, init->cap.max_send_sge);
  init->cap.max_recv_sge = std::max(1u, init->cap.max_recv_sge);

  slot.state.begin_life();
  slot.responder.store(slot.responder.load() & ~0xffffffffull);
  slot.revoked.store(0);
  slot.async_flags.store(0);
  slot.access.store(0);
  slot.peer_number.store(0);
  slot.peer_port.store(~0u);
  slot.min_rnr_timer.store(0);
  slot.qkey.store(0);
  slot.pkey_index.store(0);
  slot.srq_intent.store(0);
  slot.type = init->qp_type;
  slot.srq = srq ? static_cast<std::uint32_t>(srq->slot) + 1 : 0;
  slot.port = context.first_port;
  slot.pd = pd.id;
  slot.recv_pd = srq ? srq->shared->pd : pd.id;
  // Of an SRQ the QP may hold all requests at once.
  slot.max_recv_sge = srq ? srq->shared->max_sge : init->cap.max_recv_sge;
  slot.recv_depth = std::bit_ceil(srq ? srq->max_wr : init->cap.max_recv_wr);
  slot.recv_stride =
      static_cast<std::uint32_t>((sizeof(RecvEntry) + slot.max_recv_sge * sizeof(RecvSge) + 63) & ~63ull);
  slot.recv_posted.store(0);
  slot.recv_completed.store(0);
  slot.recv_ring = allocate_pages(fabric, runtime.self(), recv_ring_bytes(slot));
  if (slot.recv_ring == 0) {
    slot.owner.store(0);
    errno = ENOMEM;
    return nullptr;
  }

  auto qp = std::make_unique<Qp>();
  Cq& recv_cq = cq_of(init->recv_cq);
  slot.recv_cq = static_cast<std::uint32_t>(recv_cq.slot);
  qp->qp_base.context = pd.context;
  qp->qp_base.qp_context = init->qp_context;
  qp->qp_base.pd = ibpd;
  qp->qp_base.send_cq = init->send_cq;
  qp->qp_base.recv_cq = init->recv_cq;
  qp->qp_base.srq = init->srq;
  qp->qp_base.handle = static_cast<std::uint32_t>(index);
  qp->qp_base.state = IBV_QPS_RESET;
  qp->qp_base.qp_type = init->qp_type;
  qp->qp_base.events_completed = 0;
  qp->owner = &context;
  qp->slot = index;
  qp->shared = &slot;
  qp->init = *init;
  const std::uint64_t ring = std::bit_ceil(static_cast<std::uint64_t>(init->cap.max_send_wr));
  qp->send_mask = ring - 1;
  qp->sends.resize(ring);
  qp->send_sges.resize(ring * init->cap.max_send_sge);
  qp->inline_data.resize(ring * init->cap.max_inline_data);
  // From here on pollers of the CQ may look at it.
  const std::size_t bit = attach_receiver(recv_cq, *qp);
  if (bit == kReadyWords * 64) {
    free_pages(fabric, runtime.self(), slot.recv_ring, recv_ring_bytes(slot));
    slot.owner.store(0);
    errno = ENOMEM;
    return nullptr;
  }
  slot.recv_cq_bit = static_cast<std::uint32_t>(bit);
  pthread_mutex_init(&qp->qp_base.mutex, nullptr);
  pthread_cond_init(&qp->qp_base.cond, nullptr);
  qp->qp_base.qp_num = next_number(slot, index);
  slot.number.store(qp->qp_base.qp_num);
  pd.users.fetch_add(1);
  cq_of(init->send_cq).users.fetch_add(1);
  recv_cq.users.fetch_add(1);
  if (srq) srq->users.fetch_add(1);
  runtime.add_qp(*qp);
  return &qp.release()->qp_base;
}

int modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  if (runtime.is_forked_copy()) return ENODEV;
  const auto current = static_cast<ibv_qp_state>(qp.state());
  const ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : current;
  if (from != current) return EINVAL;
  const ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
  if (const int error = check_transition(qp.qp_base.qp_type, from, to, mask)) return error;
  if (const int error = check_values(qp, *attr, mask)) return error;
  if (to == IBV_QPS_ERR) {
    if (from != IBV_QPS_ERR) to_error(qp);
  } else if (to == IBV_QPS_RESET) {
    const int error = to_reset(qp);
    show_state(*ibqp, static_cast<ibv_qp_state>(qp.state()));
    return error;
  } else {
    const std::lock_guard guard(qp.send_lock);
    if ((mask & IBV_QP_AV) && from == IBV_QPS_SQD && qp.send_ack != qp.drain_end)
      return EBUSY;  // not drained yet
    take_values(qp, *attr, mask);
    if (to == IBV_QPS_RTR) qp.shared->established.store(0);
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) connect_flows(qp);
    if ((mask & IBV_QP_AV) && from == IBV_QPS_SQD) connect_flows(qp);
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
  show_state(*ibqp, static_cast<ibv_qp_state>(qp.state()));
  return 0;
}

static bool is_draining(Qp& qp) {
  const std::lock_guard guard(qp.send_lock);
  return qp.send_ack != qp.drain_end;
}

int query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  Qp& qp = qp_of(ibqp);
  *attr = qp.attr;
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(qp.state());
  attr->sq_draining = attr->qp_state == IBV_QPS_SQD && is_draining(qp);
  attr->cap = qp.init.cap;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  show_state(*ibqp, attr->qp_state);
  *init = qp.init;
  init->send_cq = qp.qp_base.send_cq;
  init->recv_cq = qp.qp_base.recv_cq;
  init->qp_context = qp.qp_base.qp_context;
  return 0;
}

int destroy_qp(ibv_qp* ibqp) {
  const std::unique_ptr<Qp> qp(&qp_of(ibqp));
  Runtime& runtime = *qp->owner->runtime;
  cq_of(qp->qp_base.send_cq).users.fetch_sub(1);
  cq_of(qp->qp_base.recv_cq).users.fetch_sub(1);
  pd_of(qp->qp_base.pd).users.fetch_sub(1);
  if (qp->qp_base.srq) srq_of(qp->qp_base.srq).users.fetch_sub(1);
  if (runtime.is_forked_copy()) return 0;
  Fabric& fabric = runtime.fabric();
  QpSlot& slot = *qp->shared;
  slot.number.store(0);
  slot.state.begin_life();
  runtime.remove_qp(*qp);
  {
    const std::lock_guard guard(qp->send_lock);
    wait_until_unused(fabric, slot, runtime.self());
    close_flows(*qp);
  }
  detach_receiver(cq_of(qp->qp_base.recv_cq), *qp);
  purge_completions(cq_of(qp->qp_base.send_cq), *qp);
  cq_of(qp->qp_base.recv_cq)
      .shared->outstanding.fetch_sub(
          static_cast<std::int64_t>(slot.recv_completed.load() - qp->recv_tail.load()));
  give_up_taken(*qp, fabric);
  forget_async_events(*qp);
  if (!is_still_written_to(fabric, slot)) {  // else its ring and slot stay taken until this process ends
    free_pages(fabric, runtime.self(), slot.recv_ring, recv_ring_bytes(slot));
    slot.owner.store(0);
  }
  pthread_cond_destroy(&qp->qp_base.cond);
  pthread_mutex_destroy(&qp->qp_base.mutex);
  return 0;
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
