// SPDX-License-Identifier: Apache-2.0
// Real and synthetic async events of one context, seen by the program through one descriptor.
//
// ibv_context::async_fd becomes an epoll descriptor of ours that is readable while either a real or a
// synthetic event waits, so that poll, epoll and O_NONBLOCK (set on the descriptor that the program sees)
// work as before. The real descriptor itself never blocks. The field holds the real descriptor again only
// while the real ibv_get_async_event reads an event that is known to wait, while an object is created (the
// kernel is handed the field as the place for the object's events, and refuses any other descriptor), and
// when the device is closed.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <mutex>
#include <vector>

namespace faultinject {

class AsyncEvents {
 public:
  explicit AsyncEvents(ibv_context* context);  // no-op when the context has no async_fd
  AsyncEvents(const AsyncEvents&) = delete;
  ~AsyncEvents();

  // Puts an event before the program. Never blocks.
  void push(const ibv_async_event& event);

  // ibv_get_async_event. 0, or -1 with errno: EBADF once the device is closed. A thread that sleeps here then
  // sleeps on, as in the read() of a closed descriptor.
  int get(ibv_async_event* event);

  // True when the event was one of ours: the real acknowledgement must not count it.
  bool acknowledge(const ibv_async_event& event);

  // Events of an object that is gone are not delivered any more.
  void forget(const ibv_qp* qp);
  void forget(const ibv_cq* cq);
  void forget(const ibv_srq* srq);

  // The device is gone: once the events that wait are taken, the descriptor polls as POLLERR for ever and
  // get() fails with EIO (ended_descriptor.h). A thread that sleeps on it wakes.
  void end();

  // While one lives, the field holds the real descriptor. Several may live at once, in several threads.
  class RealFd {
   public:
    explicit RealFd(AsyncEvents* events);  // nullptr: does nothing
    RealFd(const RealFd&) = delete;
    ~RealFd();

   private:
    AsyncEvents* events_;
  };

  // Before the real ibv_close_device, which closes the descriptor that it finds in the context.
  void close();

 private:
  template <typename Gone>
  void forget_if(Gone gone);
  void end_shown();  // with mutex_
  void show_real(bool real);

  ibv_context* context_;
  int real_fd_ = -1, shown_fd_ = -1, event_fd_ = -1;
  std::mutex mutex_, real_mutex_, shown_mutex_;
  bool ending_ = false, ended_ = false;  // under mutex_
  int real_shown_ = 0;                   // RealFds that live; under shown_mutex_
  std::deque<ibv_async_event> waiting_;
  std::vector<ibv_async_event> unacknowledged_;
};

}  // namespace faultinject
