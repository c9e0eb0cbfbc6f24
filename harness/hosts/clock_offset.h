// SPDX-License-Identifier: Apache-2.0
// How far another machine's CLOCK_MONOTONIC is from the runner's, with a bound that always holds: from
// messages there and back, as NTP does it (RFC 5905, section 8). Pure: it has no clock of its own.
#pragma once

#include <cstdint>

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
  /// Clocks of two machines drift apart no faster than this: the kernel slews a clock by no more.
  static constexpr uint64_t kMostDriftPpm = 500;

  /// Samples that tell less than what is known already are passed over.
  void add(const ClockSample& sample);
  bool known() const { return known_; }
  /// The host's clock minus the runner's, in the middle of what is possible.
  int64_t offset_ns() const { return offset_ns_; }
  /// A time of the host on the runner's clock. 0, which means never, stays 0.
  uint64_t to_runner(uint64_t host_ns) const { return host_ns == 0 ? 0 : host_ns - uint64_t(offset_ns_); }
  /// How far to_runner() may be off at this moment of the runner's clock.
  uint64_t bound_ns(uint64_t now_ns) const;

 private:
  bool known_ = false;
  int64_t offset_ns_ = 0;
  uint64_t half_ns_ = 0;  ///< of the interval in which the offset was, at at_ns_
  uint64_t at_ns_ = 0;
};

}  // namespace r2bench
