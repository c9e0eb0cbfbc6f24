// SPDX-License-Identifier: Apache-2.0
// When one of NCCL's progress threads writes the ACKs that it has put off. Posting an ACK takes the thread a
// doorbell, for which messages wait that it would take in otherwise. So ACKs wait while it may have something
// to take in; mostly the next CTS entry says it before. Pure.
#pragma once

#include <cstdint>

namespace r2ccl {

class LateAcks {
 public:
  /// So many tests in vain, one after the other: then nothing comes. Some microseconds.
  static constexpr uint32_t kQuietTests = 32;

  // --- requests that the thread has posted, and not seen to be done
  void opened(bool receive) { ++open_[receive]; }
  void ended(bool receive) { open_[receive] -= open_[receive] > 0; }
  /// It tests again soon.
  bool any() const { return open_[false] > 0 || open_[true] > 0; }

  // --- while ACKs are put off
  /// One is.
  void put_off() { vain_ = 0; }
  /// After a test: are they due? A thread that has nothing open any more may never test again. One that has
  /// sends open only may wait for ACKs itself, from a thread that waits for its own.
  bool due(bool done) {
    if (done) vain_ = 0;
    return done ? !any() : ++vain_ >= kQuietTests || open_[true] == 0;
  }

 private:
  uint32_t open_[2] = {}, vain_ = 0;
};

}  // namespace r2ccl
