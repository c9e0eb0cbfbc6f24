// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/process/async.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "faultinject/plan/event_element.h"

namespace vhca {
namespace {

using faultinject::EventElement;

bool concerns(EventElement element, const ibv_async_event& event) {
  return faultinject::element_of(event.event_type) == element;
}

void count_under(pthread_mutex_t& mutex, std::uint32_t& counter) {
  pthread_mutex_lock(&mutex);
  ++counter;
  pthread_mutex_unlock(&mutex);
}

template <typename Object>
void note_acknowledged(Object& object, std::uint32_t& completed) {
  pthread_mutex_lock(&object.mutex);
  ++completed;
  pthread_cond_signal(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

template <typename Object>
void wait_for_acknowledgements(Object& object, const std::uint32_t& completed,
                               const std::uint32_t& reported) {
  pthread_mutex_lock(&object.mutex);
  while (completed != reported) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
}

template <typename Matches>
void drop_events(Context& context, Matches&& matches) {
  const std::lock_guard guard(context.async_lock);
  const std::size_t dropped = std::erase_if(context.async_events, matches);
  for (std::size_t i = 0; i < dropped; ++i) lower_eventfd_if_raised(context.async_eventfd);
}

}  // namespace

void raise_eventfd(int fd) {
  const std::uint64_t one = 1;
  while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void lower_eventfd_if_raised(int fd) {
  pollfd state{fd, POLLIN, 0};
  std::uint64_t one;
  if (::poll(&state, 1, 0) == 1 && ::read(fd, &one, sizeof one) < 0)
    return;  // a reader was faster: it will find nothing
}

void push_async_event(Context& context, const ibv_async_event& event) {
  const std::lock_guard guard(context.async_lock);
  context.async_events.push_back(event);
  raise_eventfd(context.async_eventfd);
}

void push_qp_event(Qp& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &qp.qp_base;
  push_async_event(*qp.owner, event);
}

bool deliver_pending_async_events(Qp& qp) {
  std::uint32_t flags = qp.shared->events.take();
  if (flags == 0) return false;
  // What happened first is told first: a QP that broke was established before.
  if (flags >> IBV_EVENT_COMM_EST & 1) push_qp_event(qp, IBV_EVENT_COMM_EST);
  flags &= ~(1u << IBV_EVENT_COMM_EST);
  for (unsigned type = 0; type < 32; ++type) {
    if (!(flags >> type & 1)) continue;
    push_qp_event(qp, static_cast<ibv_event_type>(type));
  }
  return true;
}

int get_async_event(ibv_context* handle, ibv_async_event* event) {
  Context& context = Context::of(handle);
  for (;;) {
    std::uint64_t one;
    if (::read(handle->async_fd, &one, sizeof one) != sizeof one)
      return -1;  // EAGAIN, EINTR, as the program set the descriptor
    const std::lock_guard guard(context.async_lock);
    if (context.async_events.empty()) continue;  // its object was destroyed in between
    *event = context.async_events.front();
    context.async_events.pop_front();
    if (concerns(EventElement::kQueuePair, *event))
      count_under(event->element.qp->mutex, qp_of(event->element.qp).async_events_reported);
    else if (concerns(EventElement::kCompletionQueue, *event))
      count_under(event->element.cq->mutex, cq_of(event->element.cq).async_events_reported);
    else if (concerns(EventElement::kSharedReceiveQueue, *event))
      count_under(event->element.srq->mutex, srq_of(event->element.srq).async_events_reported);
    return 0;
  }
}

void ack_async_event(ibv_async_event* event) {
  if (concerns(EventElement::kQueuePair, *event))
    note_acknowledged(*event->element.qp, event->element.qp->events_completed);
  else if (concerns(EventElement::kCompletionQueue, *event))
    note_acknowledged(*event->element.cq, event->element.cq->async_events_completed);
  else if (concerns(EventElement::kSharedReceiveQueue, *event))
    note_acknowledged(*event->element.srq, event->element.srq->events_completed);
}

void forget_async_events(Qp& qp) {
  drop_events(*qp.owner, [&](const ibv_async_event& e) {
    return concerns(EventElement::kQueuePair, e) && e.element.qp == &qp.qp_base;
  });
  wait_for_acknowledgements(qp.qp_base, qp.qp_base.events_completed, qp.async_events_reported);
}

void forget_async_events(Cq& cq) {
  drop_events(*cq.owner, [&](const ibv_async_event& e) {
    return concerns(EventElement::kCompletionQueue, e) && e.element.cq == cq.handle_as_cq();
  });
  wait_for_acknowledgements(cq, cq.async_events_completed, cq.async_events_reported);
}

void forget_async_events(Srq& srq) {
  drop_events(*srq.owner, [&](const ibv_async_event& e) {
    return concerns(EventElement::kSharedReceiveQueue, e) && e.element.srq == &srq;
  });
  wait_for_acknowledgements(srq, srq.events_completed, srq.async_events_reported);
}

}  // namespace vhca
