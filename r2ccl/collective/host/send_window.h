// SPDX-License-Identifier: Apache-2.0
// How much a rank has under way. What has been posted leaves in the NIC's order, not in that of the operations, so as
// little as keeps the ports busy: the window grows while it is what holds messages back and these are soon done, and
// shrinks while they wait long before a port.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace r2ccl::collective {

class SendWindow {
 public:
  using Duration = std::chrono::duration<double>;
  /// Measured with 4 nodes of 4 ports at 0.12 to 1 GB/s a node: with the window of 1 MiB the ports idle for a third of
  /// the time at 0.5 GB/s; at 0.03 GB/s twice that window, messages of 70 ms, made operations a third slower.
  static constexpr Duration kShort{12e-3}, kLong{24e-3};
  static constexpr size_t kMost = 8 << 20;

  explicit SendWindow(size_t least) { set_least(least); }
  /// From now on, in bytes.
  void set_least(size_t least) { least_ = bytes_ = std::max<size_t>(1, least); }

  /// May a message of that size be posted? Two always may.
  bool room(size_t message) {
    if (messages_ < 2 || under_way_ + message <= bytes_) return true;
    full_ = full_in_round_ = true;
    return false;
  }
  void posted(size_t message) {
    under_way_ += message;
    ++messages_;
  }
  /// `took`: since it was posted.
  void done(size_t message, Duration took) {
    under_way_ -= message;
    --messages_;
    round_ += message;
    delay_ += (took - delay_) / 8;
  }

  /// Before messages are posted.
  void adapt() {
    // Where this thread shares its core with others, the NICs may have sent all that was under way before it runs again.
    if (std::exchange(full_, false) && under_way_ < bytes_ / 3) grow();
    if (round_ < bytes_) return;
    round_ = 0;
    const bool held_back = std::exchange(full_in_round_, false);
    if (delay_ > kLong) {
      bytes_ = std::max(least_, bytes_ - bytes_ / 8);
    } else if (held_back && delay_ < kShort) {
      grow();
    }
  }

  size_t bytes() const { return bytes_; }
  uint64_t under_way() const { return under_way_; }

 private:
  void grow() { bytes_ = std::min(bytes_ + bytes_ / 4, std::max(least_, kMost)); }

  size_t least_ = 0, bytes_ = 0;
  uint64_t under_way_ = 0;     // bytes
  uint32_t messages_ = 0;      // under way
  size_t round_ = 0;           // bytes done since bytes_ was looked at
  bool full_ = false, full_in_round_ = false;
  Duration delay_{0};          // of late
};

}  // namespace r2ccl::collective
