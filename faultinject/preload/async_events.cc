// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/async_events.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "faultinject/plan/event_element.h"
#include "faultinject/preload/ended_descriptor.h"
#include "faultinject/preload/real.h"

namespace faultinject {

AsyncEvents::AsyncEvents(ibv_context* context) : context_(context) {
  if (context->async_fd < 0) return;
  event_fd_ = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
  shown_fd_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{};
  interest.events = EPOLLIN;
  if (event_fd_ < 0 || shown_fd_ < 0 || epoll_ctl(shown_fd_, EPOLL_CTL_ADD, event_fd_, &interest) != 0 ||
      epoll_ctl(shown_fd_, EPOLL_CTL_ADD, context->async_fd, &interest) != 0) {
    if (event_fd_ >= 0) ::close(event_fd_);
    if (shown_fd_ >= 0) ::close(shown_fd_);
    event_fd_ = shown_fd_ = -1;
    return;  // out of descriptors: real events only
  }
  // A descriptor that already is non-blocking stays so under its new number.
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) != 0) fcntl(shown_fd_, F_SETFL, O_NONBLOCK);
  // An event that poll() has told of is gone when its object is destroyed before the read. Whether the
  // program wants to wait for the next one, the descriptor that it sees says, and the next one may be an
  // injected one.
  if (flags >= 0) fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK);
  real_fd_ = context->async_fd;
  std::atomic_ref(context->async_fd).store(shown_fd_, std::memory_order_relaxed);
}

AsyncEvents::~AsyncEvents() { close(); }

void AsyncEvents::show_real(bool real) {
  const std::lock_guard lock(shown_mutex_);
  if (real_fd_ < 0 || event_fd_ < 0) return;
  real_shown_ += real ? 1 : -1;
  std::atomic_ref(context_->async_fd)
      .store(real_shown_ > 0 ? real_fd_ : shown_fd_, std::memory_order_relaxed);
}

AsyncEvents::RealFd::RealFd(AsyncEvents* events) : events_(events) {
  if (events_ != nullptr) events_->show_real(true);
}

AsyncEvents::RealFd::~RealFd() {
  if (events_ != nullptr) events_->show_real(false);
}

void AsyncEvents::close() {
  const std::lock_guard lock(mutex_);
  if (event_fd_ < 0) return;
  std::atomic_ref(context_->async_fd).store(real_fd_, std::memory_order_relaxed);
  ::close(event_fd_);
  ::close(shown_fd_);
  event_fd_ = -1;
  waiting_.clear();
}

void AsyncEvents::end() {
  const std::lock_guard lock(mutex_);
  if (event_fd_ < 0 || ending_) return;
  ending_ = true;
  if (waiting_.empty()) end_shown();
}

void AsyncEvents::end_shown() {
  if (!end_descriptor(shown_fd_)) return;
  ended_ = true;
  // Who sleeps in poll() on the old description is woken, and finds the new one when it comes again.
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

void AsyncEvents::push(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  if (event_fd_ < 0 || ending_) return;
  waiting_.push_back(event);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

int AsyncEvents::get(ibv_async_event* event) {
  const auto real_get = FAULTINJECT_REAL(kGetAsyncEvent, ibv_get_async_event);
  if (real_get == nullptr) return -1;
  if (real_fd_ < 0) return real_get(context_, event);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_.empty()) {
        uint64_t one = 0;
        [[maybe_unused]] const ssize_t taken = read(event_fd_, &one, sizeof one);
        *event = waiting_.front();
        waiting_.pop_front();
        unacknowledged_.push_back(*event);
        if (ending_ && waiting_.empty() && !ended_) end_shown();
        return 0;
      }
      if (ended_ || event_fd_ < 0) {
        errno = ended_ ? EIO : EBADF;
        return -1;
      }
    }
    if (readable(real_fd_)) {
      const std::lock_guard lock(real_mutex_);
      if (readable(real_fd_)) {  // another thread may have taken it; with the lock nobody else can
        const RealFd shown(this);
        const int rc = real_get(context_, event);
        if (rc == 0 || errno != EAGAIN) return rc;
      }
    }
    const int flags = fcntl(shown_fd_, F_GETFL);
    if (flags < 0) return -1;
    if ((flags & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    epoll_event ready{};
    if (epoll_wait(shown_fd_, &ready, 1, -1) < 0) return -1;
  }
}

bool AsyncEvents::acknowledge(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(unacknowledged_.begin(), unacknowledged_.end(),
                               [&](const ibv_async_event& known) { return same_event(known, event); });
  if (at == unacknowledged_.end()) return false;
  unacknowledged_.erase(at);
  return true;
}

template <typename Gone>
void AsyncEvents::forget_if(Gone gone) {
  const std::lock_guard lock(mutex_);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!gone(*it)) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    uint64_t one = 0;
    [[maybe_unused]] const ssize_t taken = read(event_fd_, &one, sizeof one);
  }
  if (ending_ && waiting_.empty() && !ended_) end_shown();
}

void AsyncEvents::forget(const ibv_qp* qp) {
  forget_if([&](const ibv_async_event& event) {
    return element_of(event.event_type) == EventElement::kQueuePair && event.element.qp == qp;
  });
}

void AsyncEvents::forget(const ibv_cq* cq) {
  forget_if([&](const ibv_async_event& event) {
    return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq;
  });
}

void AsyncEvents::forget(const ibv_srq* srq) {
  forget_if([&](const ibv_async_event& event) {
    return element_of(event.event_type) == EventElement::kSharedReceiveQueue && event.element.srq == srq;
  });
}

}  // namespace faultinject
