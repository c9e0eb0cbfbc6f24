// SPDX-License-Identifier: Apache-2.0
// When whole packets last passed on each rail to one peer, by the data of all channels to it. Where an MTU is
// too small, small packets pass and whole ones do not; a channel that stalls while another one's data passes
// on its rail does not have to ask. Of one direction. Pure; times in ns on any clock that the caller accrues.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "r2ccl/health/probe_times.h"

namespace r2ccl::health {

class WholePackets {
 public:
  /// A packet of the largest MTU that there is: what is as long takes a whole packet of any MTU.
  static constexpr uint32_t kBytes = 4096;

  /// Of a path, when it was last looked at: how many of its messages, or parts of one, were as long.
  struct Look {
    uint32_t count = 0;
    uint64_t at = 0;
  };
  /// A path on the rail has carried `count` of them so far. The new ones were taken in after `last`. They may
  /// have passed a little earlier: a completion may have waited in its queue.
  void look(int local, int remote, Look& last, uint32_t count, uint64_t now) {
    uint64_t& rail = passed_[index(local, remote)];
    if (count != last.count) rail = std::max(rail, last.at);
    last = {count, now};
  }
  /// One was taken in on the rail in the last `span` ns.
  bool passed_within(int local, int remote, uint64_t span, uint64_t now) const {
    const uint64_t at = passed_[index(local, remote)];
    return at != 0 && now - at < span;
  }

 private:
  static size_t index(int local, int remote) {
    return size_t(local) * ProbeTimes::kMostNics + size_t(remote);
  }
  std::array<uint64_t, size_t(ProbeTimes::kMostNics) * ProbeTimes::kMostNics> passed_{};  // 0: never
};

}  // namespace r2ccl::health
