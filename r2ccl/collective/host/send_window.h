// SPDX-License-Identifier: Apache-2.0
// How much a rank has under way. What has been posted leaves in the NIC's order, not in that of the
// operations, and what a lane sends next waits behind all of it, so the window is the least that keeps the
// ports busy. It grows when it holds messages back although
// - a port has little under way: this thread, which may share its core with others, learns late of what is
// done; or
// - a message takes little longer than the fastest ones of late, which met an empty queue (the rule of TCP
// Vegas;
//   Brakmo and Peterson, 1995): then most of what is under way is not in a queue, but on its way.
// It shrinks when neither holds and messages wait for twice as long as in the second rule.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "r2ccl/collective/agreement.h"

namespace r2ccl::collective {

class SendWindow {
 public:
  using Duration = std::chrono::duration<double>;
  static constexpr size_t kMost = 8 << 20;

  explicit SendWindow(size_t least) { set_least(least); }
  /// From now on, in bytes.
  void set_least(size_t least) { least_ = bytes_ = std::max<size_t>(1, least); }

  /// May a message of that size be posted? Two always may.
  bool room(size_t message) {
    if (messages_ < 2 || under_way_ + message <= bytes_) return true;
    full_ = true;
    return false;
  }
  void posted(size_t rail, size_t message) {
    under_way_ += message;
    ++messages_;
    rails_[rail].under_way += message;
    rails_[rail].posted += message;
  }
  /// `took`: since it was posted.
  void done(size_t rail, size_t message, Duration took) {
    under_way_ -= message;
    --messages_;
    rails_[rail].under_way -= message;
    round_ += message;
    delay_ += (took - delay_) / 8;
    fastest_ = std::min(fastest_, took);
  }

  /// Before messages are posted.
  void adapt() {
    bool low = false;
    if (std::exchange(full_, false)) {
      held_back_ = true;
      low = some_port_is_low();
    }
    if (!low && round_ < bytes_) return;
    const Duration unqueued = std::min(fastest_, fastest_before_);
    if (low || (held_back_ && delay_ < kQueued * unqueued)) {
      bytes_ = std::min(bytes_ + bytes_ / 4, std::max(least_, kMost));
    } else if (held_back_ && delay_ > 2 * kQueued * unqueued) {
      bytes_ = std::max(least_, bytes_ - bytes_ / 8);
    }
    begin_round();
  }

  size_t bytes() const { return bytes_; }
  uint64_t under_way() const { return under_way_; }

 private:
  /// Messages that take so many times as long as the fastest wait in a queue.
  static constexpr double kQueued = 1.5;
  static constexpr unsigned kEpoch = 64;  ///< rounds; the fastest of the last one to two epochs counts
  static constexpr size_t kLow = 2;       ///< a port is low with less than this part of its share under way

  struct Rail {
    uint64_t under_way = 0;
    uint64_t posted = 0;  // in this round
    bool in_use = false;  // got more than half as much as any other in the last round
  };
  bool some_port_is_low() const {
    size_t used = 0;
    uint64_t least = UINT64_MAX;
    for (const Rail& rail : rails_) {
      if (!rail.in_use) continue;
      ++used;
      least = std::min(least, rail.under_way);
    }
    return used > 0 && least < bytes_ / used / kLow;
  }
  void begin_round() {
    round_ = 0;
    held_back_ = false;
    uint64_t most = 0;
    for (const Rail& rail : rails_) most = std::max(most, rail.posted);
    for (Rail& rail : rails_) {
      rail.in_use = rail.posted > most / 2;
      rail.posted = 0;
    }
    if (++rounds_ % kEpoch == 0) fastest_before_ = std::exchange(fastest_, Duration::max());
  }

  size_t least_ = 0, bytes_ = 0;
  uint64_t under_way_ = 0;  // bytes
  uint32_t messages_ = 0;   // under way
  size_t round_ = 0;        // bytes done since the round began
  unsigned rounds_ = 0;
  bool full_ = false, held_back_ = false;  // since adapt(), in this round
  std::array<Rail, kMostNics> rails_{};
  Duration delay_{0};  // of late
  Duration fastest_ = Duration::max(),
           fastest_before_ = Duration::max();  // message of this epoch, and of the last
};

}  // namespace r2ccl::collective
