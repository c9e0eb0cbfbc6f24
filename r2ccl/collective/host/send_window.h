// SPDX-License-Identifier: Apache-2.0
// How much a rank has under way. What has been posted leaves in the NIC's order, not in that of the
// operations, and what a lane sends next waits behind all of it: the window is no larger than what keeps the
// NICs busy seems to take. It grows when it holds messages back although
// - much of it is done and a NIC has little left: this thread, which may share its core with others, learned
//   late of what was done. (A NIC with little left while the window stays full is only slower or more loaded
//   than others, which no window mends.) Or
// - messages take hardly longer than the fastest, which met an empty queue (the rule of TCP Vegas; Brakmo and
//   Peterson, 1995): then most of what is under way is not in a queue, but on its way. Or
// - messages are done soon (kSoon), however fast the fastest were.
// It shrinks when none holds, and messages take twice as long as the last two rules allow.
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
  static constexpr size_t kMost = 8 << 20;  ///< or what it begins with, if that is more: most()

  /// Ranks that send to the same degraded node wait for its port. Small windows are then full of messages for
  /// that node, and what a rank has for others stays behind although its own NICs are idle: between processes
  /// at 0.8 to 1 GB/s a node, AllReduces took 1.2 to 2.4 times as long without this rule. Windows in which
  /// messages take 8 ms were no better; on simulated ports larger ones are worse (executor_time_test).
  static constexpr Duration kSoon{3e-3};

  explicit SendWindow(size_t least) { set_least(least); }
  /// From now on, in bytes. What has been learned of the NICs is forgotten.
  void set_least(size_t least) {
    least_ = bytes_ = std::max<size_t>(1, least);
    delay_ = Duration(0);
    largest_ = 0;
    fastest_ = fastest_before_ = Duration::max();
    for (Rail& rail : rails_) rail.posted = 0;
    begin_round();
  }

  /// May a message of that size be posted? Two always may.
  bool room(size_t message) {
    if (messages_ < 2 || under_way_ + message <= bytes_) return true;
    full_ = true;
    return false;
  }
  void posted(size_t rail, size_t message) {
    if (messages_ == 0) forget_the_fastest();
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
    largest_ = std::max(largest_, message);
    if (message < largest_ / 2) return;  // it says little of those that fill the window
    delay_ += (took - delay_) / 8;
    fastest_ = std::min(fastest_, took);
  }

  /// Before messages are posted.
  void adapt() {
    const bool full = std::exchange(full_, false);
    held_back_ = held_back_ || full;
    if (full && under_way_ <= bytes_ - bytes_ / 4 && some_nic_is_low()) {
      grow();
      grew_ = true;
    }
    if (round_ < bytes_) return;
    const Duration short_delay = std::max(kQueued * std::min(fastest_, fastest_before_), kSoon);
    if (!grew_ && held_back_ && delay_ < short_delay) {
      grow();
    } else if (!grew_ && delay_ > 2 * short_delay) {
      bytes_ = std::max(least_, bytes_ - bytes_ / 8);
    }
    begin_round();
  }

  size_t bytes() const { return bytes_; }
  /// However it grows. (Two messages, which always may be posted, are less.)
  size_t most() const { return std::max(least_, kMost); }
  uint64_t under_way() const { return under_way_; }

 private:
  static constexpr double kQueued = 1.5;  ///< messages that take so many times as long as the fastest queue
  static constexpr size_t kLow = 2;       ///< a NIC is low with less than this part of its share under way

  struct Rail {
    uint64_t under_way = 0;
    uint64_t posted = 0;  // in this round
    bool in_use = false;  // got at least half as much as any other in the last round
  };
  bool some_nic_is_low() const {
    size_t used = 0;
    uint64_t least = UINT64_MAX;
    for (const Rail& rail : rails_) {
      if (!rail.in_use) continue;
      ++used;
      least = std::min(least, rail.under_way);
    }
    return used > 0 && least < bytes_ / used / kLow;
  }
  void grow() { bytes_ = std::min(bytes_ + bytes_ / 4, most()); }
  void begin_round() {
    round_ = 0;
    held_back_ = grew_ = false;
    uint64_t most = 0;
    for (const Rail& rail : rails_) most = std::max(most, rail.posted);
    for (Rail& rail : rails_) {
      rail.in_use = rail.posted > 0 && rail.posted >= most / 2;
      rail.posted = 0;
    }
  }
  /// Nothing is under way, so the next message meets empty queues. In a stream without a pause the fastest
  /// stays: what is measured there waits in a queue of this window's own making.
  void forget_the_fastest() {
    if (fastest_ < Duration::max()) fastest_before_ = std::exchange(fastest_, Duration::max());
  }

  size_t least_ = 0, bytes_ = 0;
  uint64_t under_way_ = 0;  // bytes
  uint32_t messages_ = 0;   // under way
  size_t round_ = 0;        // bytes done since the round began; as many as the window holds end it
  bool full_ = false;       // since adapt()
  bool held_back_ = false, grew_ = false;  // in this round
  std::array<Rail, kMostNics> rails_{};
  size_t largest_ = 0;  // message
  Duration delay_{0};   // of late
  Duration fastest_ = Duration::max(),
           fastest_before_ = Duration::max();  // since the last pause, and before it
};

}  // namespace r2ccl::collective
