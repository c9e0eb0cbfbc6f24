// SPDX-License-Identifier: Apache-2.0
// How far another machine's CLOCK_MONOTONIC is from the runner's, with a bound that always holds: from
// messages there and back, as NTP does it (RFC 5905, section 8). Pure: it has no clock of its own.
#pragma once

#include <cstdint>
#include <vector>

namespace r2bench {

/// One question and its answer.
struct ClockSample {
  uint64_t sent_ns = 0;      ///< by the runner, its clock
  uint64_t received_ns = 0;  ///< by the host, its clock
  uint64_t answered_ns = 0;  ///< by the host, its clock
  uint64_t returned_ns = 0;  ///< to the runner, its clock
};

class ClockOffset {
 public:
  /// Two clocks drift apart no faster than this: a kernel corrects the rate of each by 500 ppm at most,
  /// unless NTP removes a large error (README.md).
  static constexpr uint64_t kMostDriftPpm = 1000;

  /// A host's time on the runner's clock, and how far it may be off.
  struct RunnerTime {
    uint64_t time_ns = 0, bound_ns = 0;
  };

  /// Samples that tell less than what is known already are passed over.
  void add(const ClockSample& sample);
  bool known() const { return !answers_.empty(); }
  /// The host's clock minus the runner's, in the middle of what is possible.
  int64_t offset_ns() const { return known() ? answers_.back().offset_ns : 0; }
  /// 0, which means never, stays 0. The last answer is used, except for a time of more than a second before
  /// it: that one is converted by the answer with the smallest bound at that time.
  RunnerTime convert(uint64_t host_ns) const;
  uint64_t to_runner(uint64_t host_ns) const { return convert(host_ns).time_ns; }
  /// How far a time that the last answer converts may be off: what is known of it at its time, plus the drift
  /// in between. `event_ns`: on the runner's clock.
  uint64_t bound_ns(uint64_t event_ns) const;
  /// The sum of the distances of answers that contradict the one before them: the clocks ran apart faster
  /// than kMostDriftPpm, or one of them stood still. Every bound has this on top. 0: there were none.
  uint64_t beyond_ns() const { return beyond_ns_; }

 private:
  /// Times of one rank that arrive together keep their order if one answer converts them.
  static constexpr uint64_t kRecentNs = 1'000'000'000;
  struct Answer {
    uint64_t at_ns = 0;  ///< when it came, on the runner's clock
    int64_t offset_ns = 0;
    uint64_t half_ns = 0;  ///< of the interval in which the offset was, at at_ns
    uint64_t bound_ns(uint64_t event_ns) const;
  };
  /// In their order. One each 100 ms at most: less than 1 MB in an hour.
  std::vector<Answer> answers_;
  uint64_t beyond_ns_ = 0;
};

}  // namespace r2bench
