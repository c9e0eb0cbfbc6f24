// SPDX-License-Identifier: Apache-2.0
// Cuts the time in which a group runs AllReduces into the periods that engine_pace.h judges, and counts how
// long something waited for the thread that runs the engine. Pure; all times in ns, by one clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace r2ccl::collective {

/// A time without a break in which AllReduces of the engine were under way.
struct EnginePeriod {
  uint64_t bytes = 0;  ///< of those that ended in it
  uint64_t took_ns = 0;
  uint64_t late_ns = 0;   ///< of took_ns: nobody polled although there was something to do
  uint64_t added_ns = 0;  ///< of took_ns: in additions
};

class EnginePeriods {
 public:
  /// In a stream without a break one ends with the first operation after so long.
  static constexpr uint64_t kLongNs = 2'000'000'000;
  /// A thread that has a CPU polls again sooner than this.
  static constexpr uint64_t kGapNs = 250'000;

  bool counts() const { return counts_; }
  /// An operation is about to begin, beside `open` others. Periods with one that does not count do not count.
  /// `added`: in additions since whenever.
  void begins(size_t open, bool counts, uint64_t now, uint64_t added) {
    if (open == 0) start(false, now, added);
    counts_ = counts && (open == 0 || counts_);
  }
  /// What has passed of a period says nothing any more: another one begins, with `open` operations under way.
  void cut(size_t open, uint64_t now, uint64_t added) { start(open > 0, now, added); }
  /// The engine was polled. `moved`: it found something to do. What moved nothing came in time: a thread that
  /// has nothing to do may yield its CPU.
  void polled(uint64_t from, uint64_t to, bool moved) {
    if (moved && from > polled_ + kGapNs) late_ += from - polled_;
    polled_ = to;
  }
  /// One of `bytes` has ended, and `open` others are under way. The period that is over now, if one is: not
  /// the last part of a long stream, as most of what ends in it was done before.
  std::optional<EnginePeriod> ended(uint64_t bytes, size_t open, uint64_t now, uint64_t added) {
    bytes_ += bytes;
    if (!counts_ || (open == 0 ? goes_on_ : now - from_ < kLongNs)) return std::nullopt;
    const EnginePeriod period{bytes_, now - from_, std::min(late_, now - from_), added - added_};
    start(open > 0, now, added);
    return period;
  }

 private:
  void start(bool goes_on, uint64_t now, uint64_t added) {
    from_ = polled_ = now;
    added_ = added;
    bytes_ = late_ = 0;
    goes_on_ = goes_on;
  }
  bool counts_ = false;
  bool goes_on_ = false;  // it began with operations under way
  uint64_t from_ = 0, polled_ = 0, added_ = 0;
  uint64_t bytes_ = 0, late_ = 0;
};

}  // namespace r2ccl::collective
