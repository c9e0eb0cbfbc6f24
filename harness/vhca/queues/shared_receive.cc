// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/shared_receive.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/responder/shared_request.h"

namespace vhca {
namespace {

std::size_t ring_bytes(const SrqSlot& slot) { return static_cast<std::size_t>(slot.depth) * slot.stride; }

}  // namespace

ibv_srq* create_srq(ibv_pd* ibpd, ibv_srq_init_attr* init) {
  Pd& pd = pd_of(ibpd);
  Context& context = Context::of(pd.context);
  Runtime& runtime = *context.runtime;
  Fabric& fabric = runtime.fabric();
  ibv_srq_attr& attr = init->attr;
  int error = 0;
  if (runtime.is_forked_copy())
    error = ENODEV;
  else if (attr.max_wr == 0 || attr.max_wr > kMaxSrqWr || attr.max_sge > kMaxSge)
    error = EINVAL;
  std::size_t index = kMaxSharedReceiveQueues;
  if (error == 0) {
    index = fabric.shared_receive_queues.claim(runtime.self());
    if (index == kMaxSharedReceiveQueues) error = ENOMEM;
  }
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  attr.max_sge = std::max(1u, attr.max_sge);
  SrqSlot& slot = fabric.shared_receive_queues[index];
  slot.pd = pd.id;
  slot.max_sge = attr.max_sge;
  slot.depth = std::bit_ceil(attr.max_wr);
  slot.stride = static_cast<std::uint32_t>((sizeof(SrqEntry) + attr.max_sge * sizeof(RecvSge) + 63) & ~63ull);
  slot.limit.store(0);
  slot.posted.store(0);
  slot.taken.store(0);
  slot.ring = allocate_pages(fabric, runtime.self(), ring_bytes(slot));
  if (slot.ring == 0) {
    slot.owner.store(0);
    errno = ENOMEM;
    return nullptr;
  }
  // A ring of zeroes says of entry 0 that it is there to be taken; `posted` says that it is not.
  auto srq = std::make_unique<Srq>();
  srq->context = pd.context;
  srq->srq_context = init->srq_context;
  srq->pd = ibpd;
  srq->handle = static_cast<std::uint32_t>(index);
  srq->events_completed = 0;
  srq->owner = &context;
  srq->slot = index;
  srq->shared = &slot;
  srq->max_wr = attr.max_wr;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  pd.users.fetch_add(1);
  runtime.add_srq(*srq);
  return srq.release();
}

int modify_srq(ibv_srq* ibsrq, const ibv_srq_attr* attr, int mask) {
  Srq& srq = srq_of(ibsrq);
  Runtime& runtime = *srq.owner->runtime;
  if (runtime.is_forked_copy()) return ENODEV;
  if (mask & IBV_SRQ_MAX_WR) return EOPNOTSUPP;
  if (!(mask & IBV_SRQ_LIMIT) || attr->srq_limit > srq.max_wr) return EINVAL;
  std::atomic<std::uint64_t>& limit = srq.shared->limit;
  for (std::uint64_t seen = limit.load();
       !limit.compare_exchange_weak(seen, ((seen & ~kLimitMask) + kOneArming) | attr->srq_limit);) {
  }
  look_at_limit(runtime.fabric(), *srq.shared);
  return 0;
}

int query_srq(ibv_srq* ibsrq, ibv_srq_attr* attr) {
  const Srq& srq = srq_of(ibsrq);
  *attr = {srq.max_wr, srq.shared->max_sge,
           static_cast<std::uint32_t>(srq.shared->limit.load() & kLimitMask)};
  return 0;
}

void end_srq(Srq& srq) {
  Runtime& runtime = *srq.owner->runtime;
  pd_of(srq.pd).users.fetch_sub(1);
  if (runtime.is_forked_copy()) return;
  runtime.remove_srq(srq);
}

void release_slot(Srq& srq) {
  Runtime& runtime = *srq.owner->runtime;
  // A holder of one of its QPs may have been stopped right before it claims a request: then its ring and slot
  // stay taken until this process ends.
  const auto of_it = [&](const QpSlot& qp) { return qp.srq == srq.slot + 1; };
  if (some_holder_may_come_late(runtime.fabric(), runtime.self(), of_it)) return;
  free_pages(runtime.fabric(), runtime.self(), srq.shared->ring, ring_bytes(*srq.shared));
  srq.shared->owner.store(0);
}

int destroy_srq(ibv_srq* ibsrq) {
  if (srq_of(ibsrq).users.load() != 0) return EBUSY;
  const std::unique_ptr<Srq> srq(&srq_of(ibsrq));
  end_srq(*srq);
  if (srq->owner->runtime->is_forked_copy()) return 0;
  forget_async_events(*srq);
  release_slot(*srq);
  pthread_cond_destroy(&srq->cond);
  pthread_mutex_destroy(&srq->mutex);
  return 0;
}

int post_srq_recv(ibv_srq* ibsrq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Srq& srq = srq_of(ibsrq);
  Runtime& runtime = *srq.owner->runtime;
  SrqSlot& slot = *srq.shared;
  if (runtime.is_forked_copy()) {  // before the lock, which a thread of the parent may have held
    if (bad_wr) *bad_wr = wr;
    return ENODEV;
  }
  int error = 0;
  const std::lock_guard guard(srq.post_lock);
  for (; wr && error == 0; wr = wr->next) {
    if (srq.posted - srq.freed.load(std::memory_order_acquire) >= srq.max_wr) {
      error = ENOMEM;
      break;
    }
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > slot.max_sge) {
      error = EINVAL;
      break;
    }
    SrqEntry& entry = entry_of(runtime.fabric(), slot, srq.posted);
    finish_taking_of(runtime.fabric(), slot, entry);
    write_word(entry.wr_id, wr->wr_id);
    write_word(entry.sge_count, static_cast<std::uint64_t>(wr->num_sge));
    for (int i = 0; i < wr->num_sge; ++i) {
      write_word(entry.sge[i].address, wr->sg_list[i].addr);
      write_word(entry.sge[i].length, wr->sg_list[i].length);
      write_word(entry.sge[i].lkey, wr->sg_list[i].lkey);
    }
    entry.claim.store(srq.posted << kTakerBits, std::memory_order_release);
    slot.posted.store(++srq.posted, std::memory_order_release);
  }
  if (error != 0 && bad_wr) *bad_wr = wr;
  return error;
}

void deliver_limit_event(Srq& srq) {
  std::atomic<std::uint64_t>& limit = srq.shared->limit;
  if ((limit.load() & kLimitReached) == 0 || (limit.fetch_and(~kLimitReached) & kLimitReached) == 0) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &srq;
  push_async_event(*srq.owner, event);
}

}  // namespace vhca
