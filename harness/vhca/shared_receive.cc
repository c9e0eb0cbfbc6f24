// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/shared_receive.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/arena.h"
#include "harness/vhca/async.h"
#include "harness/vhca/device.h"
#include "harness/vhca/pause_point.h"
#include "harness/vhca/process_table.h"
#include "harness/vhca/runtime.h"

namespace vhca {
namespace {

constexpr unsigned kTakerBits = 16;
constexpr std::uint64_t kTakerMask = (1u << kTakerBits) - 1;
static_assert(kMaxQueuePairs < kTakerMask);

SrqEntry& entry_of(Fabric& fabric, const SrqSlot& srq, std::uint64_t index) {
  return *at_offset<SrqEntry>(fabric, srq.ring + (index & (srq.depth - 1)) * srq.stride);
}

std::uint64_t taker_id(const Fabric& fabric, const QpSlot& qp) {
  return static_cast<std::uint64_t>(&qp - fabric.queue_pairs.slots) + 1;
}

// An entry may be given out and written anew while somebody who came too late still reads it; that reader's
// claim then fails.
template <typename T>
T read_word(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}
template <typename T>
void write_word(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

void copy_request(const SrqEntry& from, std::uint32_t max_sge, RecvEntry& to) {
  to.wr_id = read_word(from.wr_id);
  to.sge_count = std::min(static_cast<std::uint32_t>(read_word(from.sge_count)), max_sge);
  for (std::uint32_t i = 0; i < to.sge_count; ++i)
    to.sge[i] = {read_word(from.sge[i].address), read_word(from.sge[i].length), read_word(from.sge[i].lkey)};
}

void look_at_limit(Fabric& fabric, SrqSlot& srq) {
  std::uint32_t limit = srq.limit.load();
  if (limit == 0 || srq.posted.load() - srq.taken.load() >= limit) return;
  if (!srq.limit.compare_exchange_strong(limit, 0)) return;
  srq.limit_reached.store(1);
  ring_doorbell(fabric, srq.owner.load());
}

void move_on(SrqSlot& srq, std::uint64_t index) { srq.taken.compare_exchange_strong(index, index + 1); }

std::size_t ring_bytes(const SrqSlot& slot) { return static_cast<std::size_t>(slot.depth) * slot.stride; }

}  // namespace

void finish_taking(Fabric& fabric, QpSlot& qp, bool for_owner) {
  const std::uint64_t intent = qp.srq_intent.load();
  if (intent == 0) return;
  SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
  const std::uint64_t index = intent - 1;
  const std::uint64_t mine = index << kTakerBits | taker_id(fabric, qp);
  std::atomic<std::uint64_t>& claim = entry_of(fabric, srq, index).claim;
  std::uint64_t seen = claim.load();
  if (for_owner && qp.revoked.load() != 0 && seen == index << kTakerBits &&
      claim.compare_exchange_strong(seen, mine))
    seen = mine;
  if (seen == mine) {
    std::uint64_t completed = qp.recv_completed.load();
    qp.recv_posted.compare_exchange_strong(completed, completed + 1);
    move_on(srq, index);
  }
  qp.srq_intent.store(0);
}

bool take_shared_receive(Fabric& fabric, QpSlot& qp) {
  SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
  for (;;) {
    const std::uint64_t index = srq.taken.load(std::memory_order_acquire);
    if (index == srq.posted.load(std::memory_order_acquire)) return false;
    SrqEntry& entry = entry_of(fabric, srq, index);
    std::uint64_t claim = entry.claim.load(std::memory_order_acquire);
    if (claim >> kTakerBits != index) {
      // It was taken, given back, and posted anew. Whoever took it has gone on, or was killed before that.
      move_on(srq, index);
      continue;
    }
    if ((claim & kTakerMask) == 0) {
      std::uint64_t completed = qp.recv_completed.load(std::memory_order_relaxed);
      copy_request(entry, srq.max_sge, recv_entry_of(fabric, qp, completed));
      qp.srq_intent.store(index + 1);
      if (entry.claim.compare_exchange_strong(claim, claim | taker_id(fabric, qp))) {
        VHCA_PAUSE_POINT(claimed);
        // Fails if our hold was revoked: then the owner has done it, or has gone on to another life.
        qp.recv_posted.compare_exchange_strong(completed, completed + 1);
        qp.srq_intent.store(0);
        VHCA_PAUSE_POINT(taken);
        move_on(srq, index);
        look_at_limit(fabric, srq);
        return true;
      }
      qp.srq_intent.store(0);
    }
    move_on(srq, index);
  }
}

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
  slot.limit_reached.store(0);
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
  srq.shared->limit.store(attr->srq_limit);
  look_at_limit(runtime.fabric(), *srq.shared);
  return 0;
}

int query_srq(ibv_srq* ibsrq, ibv_srq_attr* attr) {
  const Srq& srq = srq_of(ibsrq);
  *attr = {srq.max_wr, srq.shared->max_sge, srq.shared->limit.load()};
  return 0;
}

int destroy_srq(ibv_srq* ibsrq) {
  if (srq_of(ibsrq).users.load() != 0) return EBUSY;
  const std::unique_ptr<Srq> srq(&srq_of(ibsrq));
  Runtime& runtime = *srq->owner->runtime;
  pd_of(srq->pd).users.fetch_sub(1);
  if (runtime.is_forked_copy()) return 0;
  runtime.remove_srq(*srq);
  forget_async_events(*srq);
  free_pages(runtime.fabric(), runtime.self(), srq->shared->ring, ring_bytes(*srq->shared));
  srq->shared->owner.store(0);
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
  if (srq.shared->limit_reached.load() == 0 || srq.shared->limit_reached.exchange(0) == 0) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &srq;
  push_async_event(*srq.owner, event);
}

}  // namespace vhca
