#include "harness/vhca/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/arena.h"
#include "harness/vhca/async.h"
#include "harness/vhca/completion.h"
#include "harness/vhca/device.h"
#include "harness/vhca/qp_transitions.h"
#include "harness/vhca/responder.h"
#include "harness/vhca/runtime.h"
#include "harness/vhca/send_queue.h"

namespace vhca {
namespace {

std::size_t recv_ring_bytes(const QpSlot& slot) {
  return static_cast<std::size_t>(slot.recv_depth) * slot.recv_stride;
}

int check_init(const ibv_qp_init_attr& init) {
  if (init.qp_type != IBV_QPT_RC || init.srq) return EOPNOTSUPP;
  const ibv_qp_cap& cap = init.cap;
  if (!init.send_cq || !init.recv_cq || cap.max_send_wr > kMaxQpWr || cap.max_recv_wr > kMaxQpWr || cap.max_send_sge > kMaxSge ||
      cap.max_recv_sge > kMaxSge || cap.max_inline_data > kMaxInline)
    return EINVAL;
  return 0;
}

std::uint32_t next_number(QpSlot& slot, std::size_t index) {
  constexpr std::uint32_t kGenerations = 1u << (24 - kQpSlotBits);
  std::uint32_t generation = (slot.generation.fetch_add(1) + 1) % kGenerations;
  if (generation == 0) generation = (slot.generation.fetch_add(1) + 1) % kGenerations;  // 0 and 1 are special numbers
  return generation << kQpSlotBits | static_cast<std::uint32_t>(index);
}

void close_flows(Qp& qp) {
  for (Flow* flows : {qp.write_flows, qp.read_flows})
    for (int side = 0; side < 2; ++side) {
      cancel_rest(flows[side], now_ns());
      close_flow(flows[side]);
    }
}

void open_flows(Qp& qp) {
  close_flows(qp);
  Fabric& fabric = qp.owner->runtime->fabric();
  Port& own = fabric.ports[qp.shared->port];
  Port& peer = fabric.ports[qp.shared->peer_port.load()];
  qp.write_flows[0] = open_flow(own.tx, qp.qp_num);
  qp.write_flows[1] = open_flow(peer.rx, qp.qp_num);
  qp.read_flows[0] = open_flow(peer.tx, qp.qp_num);
  qp.read_flows[1] = open_flow(own.rx, qp.qp_num);
  qp.own_latency_ns = own.latency_ns;
  qp.peer_latency_ns = peer.latency_ns;
}

void to_error(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  {
    const std::lock_guard guard(qp.send_lock);
    qp.shared->state.store(IBV_QPS_ERR);
    qp.abandoned |= !wait_until_unused(runtime.fabric(), *qp.shared, runtime.self());
    flush_send_queue(qp);
  }
  announce_receive(runtime.fabric(), *qp.shared, true, 0);
}

void to_reset(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  const std::lock_guard guard(qp.send_lock);
  QpSlot& slot = *qp.shared;
  slot.state.store(IBV_QPS_RESET);
  qp.abandoned |= !wait_until_unused(runtime.fabric(), slot, runtime.self());
  qp.send_head = qp.send_next = qp.send_timed = qp.send_ack = 0;
  qp.stalled_until_ns = 0;
  qp.waits_done = qp.rnr_done = 0;
  close_flows(qp);
  purge_completions(cq_of(qp.send_cq), qp);
  purge_completions(cq_of(qp.recv_cq), qp);
  qp.send_tail.store(0);
  {
    Cq& cq = cq_of(qp.recv_cq);
    const std::lock_guard cq_guard(cq.lock);  // against a poller in the middle of this ring
    const std::lock_guard recv_guard(qp.recv_lock);
    cq.shared->outstanding.fetch_sub(static_cast<std::int64_t>(slot.recv_completed.load() - qp.recv_tail.load()));
    slot.recv_posted.store(0);
    slot.recv_completed.store(0);
    qp.recv_tail.store(0);
    qp.recv_head = 0;
  }
  slot.peer_number.store(0);
  slot.async_flags.store(0);
  qp.attr = {};
}

// The port that a GID belongs to, -1 for none.
int port_of_gid(const Fabric& fabric, const ibv_gid& gid) {
  for (std::uint32_t p = 0; p < fabric.port_count; ++p)
    for (int index = 0; index < kGidCount; ++index) {
      const ibv_gid candidate = port_gid(fabric.ports[p], index);
      if (std::equal(std::begin(candidate.raw), std::end(candidate.raw), std::begin(gid.raw))) return static_cast<int>(p);
    }
  return -1;
}

int check_values(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) return EINVAL;
  if ((mask & IBV_QP_TIMEOUT) && attr.timeout > 31) return EINVAL;
  if ((mask & IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return EINVAL;
  if ((mask & IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xffffff) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxReadsOutstanding) return EINVAL;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxReadsOutstanding) return EINVAL;
  if (mask & IBV_QP_AV) {
    // Ethernet: without a GRH there is no address.
    if (!attr.ah_attr.is_global || attr.ah_attr.grh.sgid_index >= kGidCount || attr.ah_attr.port_num > 1) return EINVAL;
    if (port_of_gid(qp.owner->runtime->fabric(), attr.ah_attr.grh.dgid) < 0) return EHOSTUNREACH;
  }
  return 0;
}

void take_values(Qp& qp, const ibv_qp_attr& attr, int mask) {
  QpSlot& slot = *qp.shared;
  if (mask & IBV_QP_PORT) qp.attr.port_num = attr.port_num;
  if (mask & IBV_QP_PKEY_INDEX) qp.attr.pkey_index = attr.pkey_index;
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
    slot.peer_port.store(static_cast<std::uint32_t>(port_of_gid(qp.owner->runtime->fabric(), attr.ah_attr.grh.dgid)));
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
  // Granted as asked, at least one of each.
  init->cap.max_send_wr = std::max(1u, init->cap.max_send_wr);
  init->cap.max_recv_wr = std::max(1u, init->cap.max_recv_wr);
  init->cap.max_send_sge = std::max(1u, init->cap.max_send_sge);
  init->cap.max_recv_sge = std::max(1u, init->cap.max_recv_sge);

  slot.state.store(IBV_QPS_RESET);
  slot.responder.store(slot.responder.load() & ~0xffffffffull);
  slot.async_flags.store(0);
  slot.access.store(0);
  slot.peer_number.store(0);
  slot.peer_port.store(~0u);
  slot.min_rnr_timer.store(0);
  slot.port = context.port;
  slot.pd = pd.id;
  slot.max_recv_sge = init->cap.max_recv_sge;
  slot.recv_depth = std::bit_ceil(init->cap.max_recv_wr);
  slot.recv_stride = static_cast<std::uint32_t>((sizeof(RecvEntry) + slot.max_recv_sge * sizeof(RecvSge) + 63) & ~63ull);
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
  qp->context = pd.context;
  qp->qp_context = init->qp_context;
  qp->pd = ibpd;
  qp->send_cq = init->send_cq;
  qp->recv_cq = init->recv_cq;
  qp->srq = nullptr;
  qp->handle = static_cast<std::uint32_t>(index);
  ibv_qp& base = *qp;
  base.state = IBV_QPS_RESET;
  qp->qp_type = IBV_QPT_RC;
  qp->events_completed = 0;
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
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  qp->qp_num = next_number(slot, index);
  slot.number.store(qp->qp_num);
  pd.users.fetch_add(1);
  cq_of(init->send_cq).users.fetch_add(1);
  recv_cq.users.fetch_add(1);
  runtime.add_qp(*qp);
  return qp.release();
}

// Programs may look at ibv_qp::state, and several threads may change it.
static void show_state(ibv_qp& ibqp, ibv_qp_state state) { __atomic_store_n(&ibqp.state, state, __ATOMIC_RELAXED); }

int modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  if (runtime.is_forked_copy()) return ENODEV;
  const auto current = static_cast<ibv_qp_state>(qp.state());
  const ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : current;
  if (from != current) return EINVAL;
  const ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
  if (const int error = check_transition(from, to, mask)) return error;
  if (const int error = check_values(qp, *attr, mask)) return error;
  if (to == IBV_QPS_ERR) {
    if (from != IBV_QPS_ERR) to_error(qp);
  } else if (to == IBV_QPS_RESET) {
    to_reset(qp);
  } else {
    const std::lock_guard guard(qp.send_lock);
    take_values(qp, *attr, mask);
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) open_flows(qp);
    // An initiator may have moved it to ERR in between; that must not be undone.
    std::uint32_t expected = from;
    qp.shared->state.compare_exchange_strong(expected, to);
  }
  show_state(*ibqp, static_cast<ibv_qp_state>(qp.state()));
  return 0;
}

int query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  Qp& qp = qp_of(ibqp);
  *attr = qp.attr;
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(qp.state());
  attr->cap = qp.init.cap;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  show_state(*ibqp, attr->qp_state);
  *init = qp.init;
  init->send_cq = qp.send_cq;
  init->recv_cq = qp.recv_cq;
  init->qp_context = qp.qp_context;
  return 0;
}

int destroy_qp(ibv_qp* ibqp) {
  const std::unique_ptr<Qp> qp(&qp_of(ibqp));
  Runtime& runtime = *qp->owner->runtime;
  cq_of(qp->send_cq).users.fetch_sub(1);
  cq_of(qp->recv_cq).users.fetch_sub(1);
  pd_of(qp->pd).users.fetch_sub(1);
  if (runtime.is_forked_copy()) return 0;
  Fabric& fabric = runtime.fabric();
  QpSlot& slot = *qp->shared;
  slot.number.store(0);
  slot.state.store(IBV_QPS_RESET);
  runtime.remove_qp(*qp);
  {
    const std::lock_guard guard(qp->send_lock);
    qp->abandoned |= !wait_until_unused(fabric, slot, runtime.self());
    close_flows(*qp);
  }
  detach_receiver(cq_of(qp->recv_cq), *qp);
  purge_completions(cq_of(qp->send_cq), *qp);
  cq_of(qp->recv_cq)
      .shared->outstanding.fetch_sub(static_cast<std::int64_t>(slot.recv_completed.load() - qp->recv_tail.load()));
  forget_async_events(*qp);
  if (!qp->abandoned) {  // else its ring and slot stay taken until this process ends
    free_pages(fabric, runtime.self(), slot.recv_ring, recv_ring_bytes(slot));
    slot.owner.store(0);
  }
  pthread_cond_destroy(&qp->cond);
  pthread_mutex_destroy(&qp->mutex);
  return 0;
}

int post_recv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  QpSlot& slot = *qp.shared;
  int error = 0;
  const std::lock_guard guard(qp.recv_lock);
  if (runtime.is_forked_copy())
    error = ENODEV;
  else if (qp.state() == IBV_QPS_RESET)
    error = EINVAL;
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
  if (error != ENODEV && slot.state.load() == IBV_QPS_ERR) announce_receive(runtime.fabric(), slot, true, 0);
  return error;
}

}  // namespace vhca
