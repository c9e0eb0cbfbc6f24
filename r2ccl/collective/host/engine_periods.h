// SPDX-License-Identifier: Apache-2.0
// Cuts the time in which a group runs AllReduces into the periods that engine_pace.h judges. Pure: a Look
// says what the thread's clocks show, as std::optional<EnginePeriods::Sight>; it is asked at both ends of a
// period only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace r2ccl::collective {

/// A time without a break in which AllReduces of the engine were under way, on the thread that runs them.
struct EnginePeriod {
  uint64_t bytes = 0;  ///< of those that ended in it
  uint64_t took_ns = 0;
  uint64_t host_ns = 0;  ///< of took_ns: the thread waited for a CPU, or added
};

class EnginePeriods {
 public:
  /// All in ns, since whenever.
  struct Sight {
    uint64_t now = 0;
    uint64_t waited = 0;  ///< for a CPU
    uint64_t added = 0;   ///< in additions
  };
  /// In a stream without a break one ends with the first operation after so long.
  static constexpr uint64_t kLongNs = 2'000'000'000;

  /// An operation is about to begin, beside `open` others. Periods with one that does not count do not count.
  template <typename Look>
  void begins(size_t open, bool counts, Look look) {
    if (open == 0) start(false, counts ? look() : std::nullopt);
    if (!counts) from_.reset();
  }
  /// One of `bytes` has ended, and `open` others are under way. The period that is over now, if one is: not
  /// the last part of a long stream, as most of what ends in it was done before.
  template <typename Look>
  std::optional<EnginePeriod> ended(uint64_t bytes, size_t open, uint64_t now, Look look) {
    if (!from_) return std::nullopt;
    bytes_ += bytes;
    if (open == 0 ? goes_on_ : now - from_->now < kLongNs) return std::nullopt;
    const std::optional<Sight> sight = look();
    if (!sight) return std::nullopt;
    const EnginePeriod period{bytes_, sight->now - from_->now,
                              sight->waited - from_->waited + sight->added - from_->added};
    start(open > 0, sight);
    return period;
  }

 private:
  void start(bool goes_on, const std::optional<Sight>& sight) {
    from_ = sight;
    bytes_ = 0;
    goes_on_ = goes_on;
  }
  std::optional<Sight> from_;  // nothing: the period does not count
  uint64_t bytes_ = 0;
  bool goes_on_ = false;  // it began with operations under way
};

}  // namespace r2ccl::collective
