// SPDX-License-Identifier: Apache-2.0
// One completion channel of the program. While its device is well nothing of it is touched: ibv_get_cq_event
// is the real function, and the descriptor is the provider's. When the kernel tears the device down the
// channel ends as Linux ends it (uverbs_destroy_ufile_hw): its completion queues are gone with their events,
// its descriptor polls as POLLERR for ever, and ibv_get_cq_event fails with EIO.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <functional>
#include <memory>

#include "faultinject/preload/waker.h"

namespace faultinject {

struct Slot;

class CompletionChannel {
 public:
  explicit CompletionChannel(ibv_comp_channel* channel) : channel_(channel) {}
  CompletionChannel(const CompletionChannel&) = delete;

  // ibv_get_cq_event. 0, or -1 with errno. Needs no lock: it may sleep in here when the channel ends.
  int get(ibv_cq** cq, void** cq_context);

  // Wakes those who sleep on it, in get() or in poll(), by events of a queue of ours that `make_waker` makes
  // (nullptr: the device has no room for one), and ends it. With the Context's mutex. False: it had ended.
  bool end(const Slot& slot, const std::function<std::unique_ptr<ChannelWaker>()>& make_waker);

  ibv_comp_channel* channel() const { return channel_; }
  int descriptor() const { return channel_->fd; }
  // Before the real ibv_destroy_comp_channel: the waker's queue uses the channel.
  void drop_waker() { waker_.reset(); }
  // The program has destroyed it, and it is destroyed for real only when the device is closed: its number is
  // free from now on.
  void give_up_descriptor();

 private:
  void wake_sleepers(const Slot& slot, const std::function<std::unique_ptr<ChannelWaker>()>& make_waker);

  ibv_comp_channel* channel_;
  std::atomic<bool> ended_{false};
  std::atomic<int> inside_{0};  // calls of the real ibv_get_cq_event that have not returned
  std::atomic<const ibv_cq*> waker_cq_{nullptr};
  std::unique_ptr<ChannelWaker> waker_;
};

}  // namespace faultinject
