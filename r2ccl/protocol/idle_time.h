// SPDX-License-Identifier: Apache-2.0
// How long a progress thread has polled in vain. It keeps the time itself, so that the service thread sleeps
// while all is well, and asks for the service thread's help once after so much silence. Pure.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace r2ccl {

class IdleTime {
 public:
  // --- the progress thread, owning the channel ---
  /// A test that found nothing. True: it is time for look().
  bool empty_test() { return ++empty_tests_ % kEmptyTestsPerLook == 0; }
  /// A request was opened where none was: the time before does not count.
  void begin() { since_ = kNever; }
  /// At `now` (ns) the channel's count of progress is `progress`. True: nothing has moved for `bound` ns of
  /// polling, and nobody has been asked to help since then; now somebody is. Between two looks the thread may
  /// have been off the CPU: steps are capped, as on the 'alive' clock.
  bool look(uint64_t now, uint64_t progress, uint64_t bound) {
    if (progress != since_) {
      since_ = progress;
      for_ns_ = 0;
    } else {
      for_ns_ += std::min(now - looked_, kLongestStepNs);
    }
    looked_ = now;
    if (for_ns_ < bound || asked_.load(std::memory_order_relaxed) == progress) return false;
    asked_.store(progress, std::memory_order_release);
    return true;
  }

  // --- the service thread ---
  /// It is asked for help, and nothing has moved since.
  bool asks_at(uint64_t progress) const { return asked_.load(std::memory_order_acquire) == progress; }
  bool asks() const { return asked_.load(std::memory_order_relaxed) != kNever; }
  void helped() { asked_.store(kNever, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kEmptyTestsPerLook = 8;
  static constexpr uint64_t kLongestStepNs = 1'000'000;
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint32_t empty_tests_ = 0;
  uint64_t since_ = kNever;  // the count of progress at which it fell silent
  uint64_t for_ns_ = 0, looked_ = 0;
  std::atomic<uint64_t> asked_{kNever};
};

}  // namespace r2ccl
