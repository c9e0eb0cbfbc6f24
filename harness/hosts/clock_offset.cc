// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/clock_offset.h"

#include <cstdlib>

namespace r2bench {

uint64_t ClockOffset::bound_ns(uint64_t now_ns) const {
  const uint64_t age_ns = now_ns > at_ns_ ? now_ns - at_ns_ : 0;
  return half_ns_ + age_ns * kMostDriftPpm / 1'000'000;
}

void ClockOffset::add(const ClockSample& sample) {
  // The question arrived after it was sent, and the answer left before it arrived: one end each of the
  // interval in which the offset lies.
  const int64_t most = int64_t(sample.received_ns) - int64_t(sample.sent_ns);
  const int64_t least = int64_t(sample.answered_ns) - int64_t(sample.returned_ns);
  if (most < least) return;  // not from one question and its answer
  const uint64_t half_ns =
      uint64_t(most - least + 1) / 2 + (sample.returned_ns - sample.sent_ns) * kMostDriftPpm / 1'000'000;
  if (known_ && half_ns > bound_ns(sample.returned_ns)) return;
  known_ = true;
  offset_ns_ = least + (most - least) / 2;
  half_ns_ = half_ns;
  at_ns_ = sample.returned_ns;
}

}  // namespace r2bench
