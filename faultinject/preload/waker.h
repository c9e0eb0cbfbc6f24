// SPDX-License-Identifier: Apache-2.0
// Wakes a program that sleeps on a completion channel, where there is something to show and the real
// completion queue has raised no event for it. It touches nothing of the program: a queue pair of our own, in
// ERR, is made on the completion queue, and work posted to that one is flushed at once, which raises the
// provider's own event. The flush is taken out again before the program sees it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace faultinject {

struct Slot;

// A completion queue on a channel is made with one entry more than the program asks for, if its device has
// such queues: for the flush of the waker. The program may fill all that it asked for.
inline bool wants_spare_entry(const ibv_comp_channel* channel, int64_t cqe) {
  return channel != nullptr && cqe > 0 && cqe < INT32_MAX;
}

class Waker {
 public:
  // Both must outlive it. nullptr: the device has no room for one more queue pair.
  static std::unique_ptr<Waker> make(ibv_pd* pd, ibv_cq* cq);
  Waker(const Waker&) = delete;
  ~Waker();

  using Post = int (*)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  bool wake(Post post_send);  // the provider's own function
  uint32_t qp_num() const { return qp_->qp_num; }

 private:
  explicit Waker(ibv_qp* qp) : qp_(qp) {}
  ibv_qp* qp_;
};

// Raises events on a completion channel of the program, by a completion queue of our own.
class ChannelWaker {
 public:
  // Both must outlive it. nullptr: the device has no room for one more queue, or queue pair.
  static std::unique_ptr<ChannelWaker> make(ibv_pd* pd, ibv_comp_channel* channel);
  ChannelWaker(const ChannelWaker&) = delete;
  ~ChannelWaker();  // waits until the events are acknowledged that ibv_get_cq_event has returned

  void wake(const Slot& slot);  // does nothing while an event is still to come
  const ibv_cq* cq() const { return cq_; }

 private:
  explicit ChannelWaker(ibv_cq* cq) : cq_(cq) {}
  ibv_cq* cq_;
  std::unique_ptr<Waker> waker_;
};

}  // namespace faultinject
