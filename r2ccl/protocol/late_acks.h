// SPDX-License-Identifier: Apache-2.0
// When one of NCCL's progress threads writes the ACKs that it has put off. To post an ACK costs the thread
// time in which it could take messages in. So ACKs wait while something may come; mostly the next CTS entry
// says it before. Pure.
#pragma once

#include <atomic>
#include <cstdint>

namespace r2ccl {

class LateAcks {
 public:
  /// So many tests in vain, one after the other: then nothing comes. Some microseconds.
  static constexpr uint32_t kQuietTests = 32;

  /// After so many tests they are due in any case.
  static constexpr uint32_t kMostTests = 512;

  // --- requests that the thread has posted, and not seen to be done
  void opened(bool receive) { ++open_[receive]; }
  void ended(bool receive) { --open_[receive]; }
  /// In another thread: it has tested one to its end, or closed its channel.
  void ended_elsewhere(bool receive) { gone_[receive].fetch_add(1, std::memory_order_relaxed); }
  bool has_receives() const { return open(true) > 0; }
  /// It tests again soon.
  bool any() const { return open(false) > 0 || open(true) > 0; }

  // --- while ACKs are put off
  /// One is; `first`: no other was.
  void put_off(bool first) {
    vain_ = 0;
    if (first) tests_ = 0;
  }
  /// After a test: are they due? A thread that has nothing open any more may never test again. One that has
  /// sends open only may wait for ACKs itself, from a thread that waits for its own.
  bool due(bool done) {
    if (done) vain_ = 0;
    if (++tests_ >= kMostTests) return true;
    return done ? !any() : ++vain_ >= kQuietTests || !has_receives();
  }
  /// Another thread begins, of which nothing is known.
  void reset() {
    for (const bool receive : {false, true}) open_[receive] = gone_[receive] = 0;
  }

 private:
  int32_t open(bool receive) const {
    return int32_t(open_[receive] - gone_[receive].load(std::memory_order_relaxed));
  }
  uint32_t open_[2] = {}, vain_ = 0, tests_ = 0;
  std::atomic<uint32_t> gone_[2] = {};
};

}  // namespace r2ccl
