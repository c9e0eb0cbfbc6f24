// SPDX-License-Identifier: Apache-2.0
// For how long an ACK waits for a CTS entry to piggyback on, while other receives of its channel are open.
// Pure. To post an ACK costs the thread time, and in an operation of few messages no CTS entry may follow. So
// an ACK that waits until the last message is there costs least. But a sender with few buffers may wait for
// it: then nothing comes until it is written. Which is so only a long wait shows.
#pragma once

#include <algorithm>
#include <cstdint>

namespace r2ccl {

class AckPatience {
 public:
  /// Tests in vain while an ACK waits, since the last message: after so many it is due, and after so many if a
  /// long wait is trusted.
  static constexpr uint32_t kShort = 16;
  static constexpr uint32_t kLong = 1024;
  /// After so many short waits that were over before a message came, a long one is tried. It is trusted as
  /// long as at least as many messages come during long waits as are needed between two that are over. Else
  /// twice as many are needed, up to kMostNeeded, and otherwise half as many.
  static constexpr uint32_t kNeeded = 16;
  static constexpr uint32_t kMostNeeded = 4096;

  /// A test was in vain while an ACK waits: is it due now?
  bool test_in_vain() { return ++tests_ >= limit(); }
  /// A message has come.
  void arrived() {
    if (long_ && tests_ >= kShort && right_ < kMostNeeded) ++right_;
    tests_ = 0;
  }
  /// An ACK has been written, with a CTS entry or without.
  void told() {
    if (tests_ >= limit()) over();
    tests_ = 0;
  }

 private:
  uint32_t limit() const { return long_ ? kLong : kShort; }
  void over() {
    if (!long_) {
      long_ = ++short_ >= needed_;
    } else if (right_ >= needed_) {
      needed_ = std::max(needed_ / 2, kNeeded);
    } else {
      needed_ = std::min(2 * needed_, kMostNeeded);
      long_ = false;
    }
    right_ = 0;
    if (long_) short_ = 0;
  }

  uint32_t tests_ = 0;         // in vain, since an ACK began to wait or the last message came
  uint32_t short_ = 0;         // waits that were over, since the last long one
  uint32_t right_ = 0;         // messages that came during long waits, since one was over
  uint32_t needed_ = kNeeded;  // of either
  bool long_ = false;          // a long wait is trusted, or tried
};

}  // namespace r2ccl
