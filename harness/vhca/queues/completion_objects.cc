// SPDX-License-Identifier: Apache-2.0
// Making and removing completion queues and channels; what happens on the data path is in completion.cc.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>

#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {
namespace {

// What lies in the ring of a CQ, in order, moved to a ring that holds `cqe`.
void resize_ring(Cq& cq, int cqe) {
  std::vector<SendCompletion> ring(std::bit_ceil(static_cast<std::size_t>(cqe)));
  std::uint64_t count = 0;
  for (std::uint64_t i = cq.sent_tail; i != cq.sent_head; ++i)
    ring[count++] = cq.sent[i & (cq.sent.size() - 1)];
  cq.sent = std::move(ring);
  cq.sent_tail = 0;
  cq.sent_head = count;
  cq.cqe = cqe;
  cq.shared->capacity.store(static_cast<std::uint32_t>(cqe));
}

void append_to_channel(Channel& channel, Cq& cq) {
  cq.next_with_events = nullptr;
  (channel.last_with_events ? channel.last_with_events->next_with_events : channel.first_with_events) = &cq;
  channel.last_with_events = &cq;
}

void unlink_from_channel(Channel& channel, Cq& cq) {
  Cq* before = nullptr;
  for (Cq* each = channel.first_with_events; each != &cq; each = each->next_with_events) before = each;
  (before ? before->next_with_events : channel.first_with_events) = cq.next_with_events;
  if (channel.last_with_events == &cq) channel.last_with_events = before;
}

}  // namespace

void add_channel_event(Channel& channel, Cq& cq) {
  if (cq.unread_events++ == 0) append_to_channel(channel, cq);
}

ibv_cq* create_cq(ibv_context* handle, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int comp_vector) {
  Context& context = Context::of(handle);
  Runtime& runtime = *context.runtime;
  if (runtime.is_forked_copy()) {
    errno = ENODEV;
    return nullptr;
  }
  if (cqe < 1 || cqe > kMaxCqe || comp_vector < 0 || comp_vector >= handle->num_comp_vectors) {
    errno = EINVAL;
    return nullptr;
  }
  const std::size_t index = runtime.fabric().completion_queues.claim(runtime.self());
  if (index == kMaxCompletionQueues) {
    errno = ENOMEM;
    return nullptr;
  }
  auto cq = std::make_unique<Cq>();
  static_cast<ibv_cq_ex&>(*cq) = {};
  cq->context = handle;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = static_cast<std::uint32_t>(index);
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  cq->owner = &context;
  cq->slot = index;
  cq->shared = &runtime.fabric().completion_queues[index];
  CqSlot& slot = *cq->shared;
  slot.notify.store(0);
  slot.overrun.store(0);
  slot.outstanding.store(0);
  slot.sends.store(0);
  slot.ready_summary.store(0);
  for (auto& word : slot.ready) word.store(0);
  resize_ring(*cq, cqe);
  if (channel) {
    auto& owner = *static_cast<Channel*>(channel);
    const std::lock_guard guard(owner.lock);
    ++owner.refcnt;
  }
  runtime.add_cq(*cq);
  return cq.release()->handle_as_cq();
}

int resize_cq(ibv_cq* ibcq, int cqe) {
  Cq& cq = cq_of(ibcq);
  if (cq.owner->runtime->is_forked_copy()) return ENODEV;
  const std::lock_guard guard(cq.lock);
  if (cqe < 1 || cqe > kMaxCqe || cqe < unread_completions(cq)) return EINVAL;
  resize_ring(cq, cqe);
  return 0;
}

void end_cq(Cq& cq) {
  Runtime& runtime = *cq.owner->runtime;
  runtime.remove_cq(cq);
  if (cq.channel) {
    auto& channel = *static_cast<Channel*>(cq.channel);
    const std::lock_guard guard(channel.lock);
    if (cq.unread_events != 0) unlink_from_channel(channel, cq);
    for (; cq.unread_events != 0; --cq.unread_events) lower_eventfd_if_raised(channel.fd);
    --channel.refcnt;
  }
}

void release_slot(Cq& cq) {
  Runtime& runtime = *cq.owner->runtime;
  // A holder of one of its QPs may have been stopped right before it tells this queue of a receive: then its
  // slot stays taken until this process ends.
  const auto of_it = [&](const QpSlot& qp) { return qp.recv_cq == cq.slot; };
  if (!some_holder_may_come_late(runtime.fabric(), runtime.self(), of_it)) cq.shared->owner.store(0);
}

int destroy_cq(ibv_cq* ibcq) {
  Cq& cq = cq_of(ibcq);
  if (cq.users.load() != 0) return EBUSY;
  if (cq.owner->runtime->is_forked_copy()) return 0;
  end_cq(cq);
  pthread_mutex_lock(&cq.mutex);
  while (cq.comp_events_completed != cq.events_reported) pthread_cond_wait(&cq.cond, &cq.mutex);
  pthread_mutex_unlock(&cq.mutex);
  forget_async_events(cq);
  release_slot(cq);
  pthread_cond_destroy(&cq.cond);
  pthread_mutex_destroy(&cq.mutex);
  const std::unique_ptr<Cq> gone(&cq);
  return 0;
}

ibv_comp_channel* create_channel(ibv_context* context) {
  auto channel = std::make_unique<Channel>();
  channel->context = context;
  channel->refcnt = 0;
  channel->fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (channel->fd < 0) return nullptr;
  return channel.release();
}

int destroy_channel(ibv_comp_channel* handle) {
  auto& channel = *static_cast<Channel*>(handle);
  {
    const std::lock_guard guard(channel.lock);
    if (channel.refcnt != 0) return EBUSY;
  }
  ::close(channel.fd);
  const std::unique_ptr<Channel> gone(&channel);
  return 0;
}

int get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
  auto& channel = *static_cast<Channel*>(handle);
  for (;;) {
    std::uint64_t one;
    if (::read(channel.fd, &one, sizeof one) != sizeof one) return -1;
    const std::lock_guard guard(channel.lock);
    if (!channel.first_with_events) continue;  // its CQ was destroyed in between
    Cq& first = *channel.first_with_events;
    unlink_from_channel(channel, first);
    if (--first.unread_events != 0) append_to_channel(channel, first);
    pthread_mutex_lock(&first.mutex);
    ++first.events_reported;
    pthread_mutex_unlock(&first.mutex);
    *cq = first.handle_as_cq();
    *cq_context = first.cq_context;
    return 0;
  }
}

void ack_cq_events(ibv_cq* cq, unsigned count) {
  if (count == 0) return;
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

}  // namespace vhca
