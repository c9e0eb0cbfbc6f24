// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/progress_thread.h"

#include <utility>

#include "r2ccl/channel/channel.h"

namespace r2ccl {

void ProgressThread::put_off_ack(Channel& channel) {
  late_acks_.put_off();
  channels_[acks_++] = channel.weak_from_this();
}

void ProgressThread::write_acks() {
  size_t kept = 0;
  for (size_t i = 0; i < acks_; ++i) {
    const std::shared_ptr<Channel> channel = channels_[i].lock();
    if (channel && !channel->acknowledge())
      std::swap(channels_[kept++], channels_[i]);
    else
      channels_[i].reset();
  }
  acks_ = kept;
}

}  // namespace r2ccl
