// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/flows.h"
#include "harness/vhca/queues/receive_queue.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/responder/responder_hold.h"

namespace vhca {
namespace {

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

// Granted as asked, at least one of each.
void grant(ibv_qp_cap& cap) {
  for (std::uint32_t* count : {&cap.max_send_wr, &cap.max_recv_wr, &cap.max_send_sge, &cap.max_recv_sge})
    *count = std::max(1u, *count);
}

// The slot in the fabric as of a QP in RESET, but for the ring and the number: nobody finds it yet.
void fill_slot(QpSlot& slot, const Pd& pd, const ibv_qp_init_attr& init) {
  const Srq* srq = init.srq ? &srq_of(init.srq) : nullptr;
  slot.state.begin_life();
  slot.responder.store(slot.responder.load() & ~0xffffffffull);
  for (auto& revoked : slot.revoked.words) revoked.store(0);
  slot.events.begin_life(QpState::life_of(slot.state.word()));
  slot.access.store(0);
  slot.peer_number.store(0);
  slot.peer_port.store(~0u);
  slot.min_rnr_timer.store(0);
  slot.qkey.store(0);
  slot.pkey_index.store(0);
  slot.rq_psn.store(0);
  slot.path_mtu.store(0);
  slot.srq_intent.store(0);
  slot.type = init.qp_type;
  slot.srq = srq ? static_cast<std::uint32_t>(srq->slot) + 1 : 0;
  slot.port = Context::of(pd.context).first_port;
  slot.pd = pd.id;
  slot.recv_pd = srq ? srq->shared->pd : pd.id;
  // Of an SRQ the QP may hold all requests at once.
  slot.max_recv_sge = srq ? srq->shared->max_sge : init.cap.max_recv_sge;
  slot.recv_depth = std::bit_ceil(srq ? srq->max_wr : init.cap.max_recv_wr);
  slot.recv_stride =
      static_cast<std::uint32_t>((sizeof(RecvEntry) + slot.max_recv_sge * sizeof(RecvSge) + 63) & ~63ull);
  slot.recv_posted.store(0);
  slot.recv_completed.store(0);
  slot.recv_cq = static_cast<std::uint32_t>(cq_of(init.recv_cq).slot);
}

// What stands behind the handle of the QP in that slot.
std::unique_ptr<Qp> make_object(Pd& pd, std::size_t index, const ibv_qp_init_attr& init) {
  auto qp = std::make_unique<Qp>();
  qp->qp_base.context = pd.context;
  qp->qp_base.qp_context = init.qp_context;
  qp->qp_base.pd = &pd;
  qp->qp_base.send_cq = init.send_cq;
  qp->qp_base.recv_cq = init.recv_cq;
  qp->qp_base.srq = init.srq;
  qp->qp_base.handle = static_cast<std::uint32_t>(index);
  qp->qp_base.state = IBV_QPS_RESET;
  qp->qp_base.qp_type = init.qp_type;
  qp->qp_base.events_completed = 0;
  qp->owner = &Context::of(pd.context);
  qp->slot = index;
  qp->shared = &Context::of(pd.context).runtime->fabric().queue_pairs[index];
  qp->init = init;
  const std::uint64_t ring = std::bit_ceil(static_cast<std::uint64_t>(init.cap.max_send_wr));
  qp->send_mask = ring - 1;
  qp->sends.resize(ring);
  qp->send_sges.resize(ring * init.cap.max_send_sge);
  qp->inline_data.resize(ring * init.cap.max_inline_data);
  pthread_mutex_init(&qp->qp_base.mutex, nullptr);
  pthread_cond_init(&qp->qp_base.cond, nullptr);
  return qp;
}

// Adds `by` to the users of everything that the QP stands on.
void count_as_user(Qp& qp, int by) {
  pd_of(qp.qp_base.pd).users.fetch_add(by);
  cq_of(qp.qp_base.send_cq).users.fetch_add(by);
  cq_of(qp.qp_base.recv_cq).users.fetch_add(by);
  if (qp.qp_base.srq) srq_of(qp.qp_base.srq).users.fetch_add(by);
}

ibv_qp* refuse_qp(int error) {
  errno = error;
  return nullptr;
}

bool is_draining(Qp& qp) {
  const std::lock_guard guard(qp.send_lock);
  return qp.send_ack != qp.drain_end;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* ibpd, ibv_qp_init_attr* init) {
  Pd& pd = pd_of(ibpd);
  Runtime& runtime = *Context::of(pd.context).runtime;
  if (runtime.is_forked_copy()) return refuse_qp(ENODEV);
  if (const int error = check_init(*init)) return refuse_qp(error);
  Fabric& fabric = runtime.fabric();
  const std::size_t index = fabric.queue_pairs.claim(runtime.self());
  if (index == kMaxQueuePairs) return refuse_qp(ENOMEM);
  QpSlot& slot = fabric.queue_pairs[index];
  grant(init->cap);
  fill_slot(slot, pd, *init);
  slot.recv_ring = allocate_pages(fabric, runtime.self(), recv_ring_bytes(slot));
  if (slot.recv_ring == 0) {
    slot.owner.store(0);
    return refuse_qp(ENOMEM);
  }
  std::unique_ptr<Qp> qp = make_object(pd, index, *init);
  // From here on pollers of the CQ may look at it.
  const std::size_t bit = attach_receiver(cq_of(init->recv_cq), *qp);
  if (bit == kReadyWords * 64) {
    free_pages(fabric, runtime.self(), slot.recv_ring, recv_ring_bytes(slot));
    slot.owner.store(0);
    return refuse_qp(ENOMEM);
  }
  slot.recv_cq_bit = static_cast<std::uint32_t>(bit);
  qp->qp_base.qp_num = next_number(slot, index);
  slot.number.store(qp->qp_base.qp_num);
  count_as_user(*qp, 1);
  runtime.add_qp(*qp);
  return &qp.release()->qp_base;
}

int query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  Qp& qp = qp_of(ibqp);
  if (qp.owner->runtime->is_forked_copy()) return ENODEV;
  *attr = qp.attr;
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(qp.state());
  attr->sq_draining = attr->qp_state == IBV_QPS_SQD && is_draining(qp);
  attr->cap = qp.init.cap;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  *init = qp.init;
  init->send_cq = qp.qp_base.send_cq;
  init->recv_cq = qp.qp_base.recv_cq;
  init->qp_context = qp.qp_base.qp_context;
  return 0;
}

void end_qp(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  count_as_user(qp, -1);
  if (runtime.is_forked_copy()) return;
  Fabric& fabric = runtime.fabric();
  QpSlot& slot = *qp.shared;
  slot.state.begin_life();
  {
    const std::lock_guard guard(qp.send_lock);
    close_flows(qp);  // before the number goes, by which they would be found if we were killed
  }
  slot.number.store(0);
  runtime.remove_qp(qp);
  wait_until_unused(fabric, slot, runtime.self());
  detach_receiver(cq_of(qp.qp_base.recv_cq), qp);
  purge_completions(cq_of(qp.qp_base.send_cq), qp);
  end_receive_queue(qp);
}

void release_slot(Qp& qp) {
  Runtime& runtime = *qp.owner->runtime;
  Fabric& fabric = runtime.fabric();
  QpSlot& slot = *qp.shared;
  if (has_living_holder(fabric, slot)) return;  // its ring and slot stay taken until this process ends
  free_pages(fabric, runtime.self(), slot.recv_ring, recv_ring_bytes(slot));
  slot.owner.store(0);
}

int destroy_qp(ibv_qp* ibqp) {
  const std::unique_ptr<Qp> qp(&qp_of(ibqp));
  end_qp(*qp);
  if (qp->owner->runtime->is_forked_copy()) return 0;
  forget_async_events(*qp);  // until then a handler of its events may use the handle
  release_slot(*qp);
  pthread_cond_destroy(&qp->qp_base.cond);
  pthread_mutex_destroy(&qp->qp_base.mutex);
  return 0;
}

}  // namespace vhca
