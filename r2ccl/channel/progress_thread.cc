// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/progress_thread.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

// So often the thread gives way to the service thread, which owns a channel for microseconds.
constexpr int kMostTries = 100;

}  // namespace

void ProgressThread::put_off_ack(Channel& channel) {
  late_acks_.put_off(acks_ == 0);
  const std::weak_ptr<Channel> owing = channel.weak_from_this();
  const auto same = [&](const auto& one) { return !one.owner_before(owing) && !owing.owner_before(one); };
  if (std::none_of(channels_.begin(), channels_.begin() + ptrdiff_t(acks_), same)) channels_[acks_++] = owing;
}

void ProgressThread::write_acks() {
  size_t kept = 0;
  for (size_t i = 0; i < acks_; ++i) {
    const std::shared_ptr<Channel> channel = channels_[i].lock();
    bool over = !channel || channel->acknowledge();
    // With nothing open it may never come back.
    for (int tries = 0; !over && !late_acks_.any() && tries < kMostTries; ++tries) {
      std::this_thread::yield();
      over = channel->acknowledge();
    }
    if (over)
      channels_[i].reset();
    else
      std::swap(channels_[kept++], channels_[i]);
  }
  acks_ = kept;
  if (acks_ > 0) late_acks_.put_off(true);
}

void ProgressThread::begin() {
  late_acks_.reset();
  for (auto& channel : channels_) channel.reset();
  acks_ = 0;
}

}  // namespace r2ccl
