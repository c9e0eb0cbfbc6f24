// SPDX-License-Identifier: Apache-2.0
// For how long the answer to a probe has been awaited. A queue pair has one probe under way at a time. So a
// probe whose stall has ended is still under way when the next stall is looked at: it counts as begun then,
// because its age says nothing of that stall. Pure; times in nanoseconds on any clock that the caller
// accrues.
#pragma once

#include <cstdint>
#include <utility>

namespace r2ccl {

class ProbeWait {
 public:
  void begin(uint64_t now) { *this = ProbeWait(now); }
  /// Nobody awaits the answer any more, although it is under way.
  void forget() { stale_ = forgotten_ = true; }
  /// The answer is here. True: it was asked for before, and says nothing of now.
  bool end() { return std::exchange(stale_, false); }

  /// Since the probe was posted.
  uint64_t age(uint64_t now) const { return now - posted_; }
  /// For so long somebody has awaited the answer, who asks now: where it had been forgotten, since somebody
  /// first asked again.
  uint64_t awaited(uint64_t now) {
    if (std::exchange(forgotten_, false)) awaited_since_ = now;
    return now - awaited_since_;
  }

  ProbeWait() = default;

 private:
  explicit ProbeWait(uint64_t now) : posted_(now), awaited_since_(now) {}

  uint64_t posted_ = 0, awaited_since_ = 0;
  bool stale_ = false;
  bool forgotten_ = false;  // and nobody has asked since
};

}  // namespace r2ccl
