// SPDX-License-Identifier: Apache-2.0
// How long probes of each rail to one peer take, so that a rail whose answers wait behind traffic (a deep
// queue in a switch, a throttled port) is not taken for a dead one. Pure; times in ns on any clock that the
// caller accrues.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "r2ccl/health/adaptive_bound.h"

namespace r2ccl::health {

class ProbeTimes {
 public:
  static constexpr int kMostNics = 8;
  static constexpr uint64_t kHalfLifeNs = 10'000'000'000;

  /// No deadline is shorter than `least`, nor longer than `most` (at least `least`).
  ProbeTimes(uint64_t least, uint64_t most)
      : most_(std::max(least, most)),
        rails_(size_t(kMostNics) * kMostNics, Rail{AdaptiveBound(kQuarters, least, most)}) {}

  static constexpr uint64_t kNotPushed = ~uint64_t{0};
  /// A probe of the rail came back `now`, after `took`, however late: also when its path had been left by
  /// then. `since_push`: the time since something was posted behind it, so that it would be repeated if a
  /// packet of it was lost. An answer that comes after that as soon as others come may be the answer to the
  /// repeated one. It says nothing of the rail, or else each lost packet would double the deadline.
  void answered(int local, int remote, uint64_t took, uint64_t now, uint64_t since_push = kNotPushed) {
    Rail& rail = rails_[index(local, remote)];
    if (since_push <= faded(rail, now).usual()) return;
    rail = {faded(rail, now), now};
    rail.bound.ended_after(took);
  }
  /// The longest answer of late; 0 before the first. It fades: by quick answers, and by half in ten seconds.
  uint64_t slowest(int local, int remote, uint64_t now) const {
    return faded(rails_[index(local, remote)], now).usual();
  }
  /// How old an unanswered probe must be to mean that the rail is dead: four times the longest answer of
  /// late, at least the least (twice that for each of `silent_leaves`, the paths that the channel has left
  /// for silence since it last got anything anywhere: then it is the deadline that is wrong), at most the
  /// most. `queue`: how long it may take until what stands before the probe in the rail's queues is done, if
  /// that is known.
  uint64_t deadline(int local, int remote, unsigned silent_leaves, uint64_t now, uint64_t queue = 0) const {
    return std::max(faded(rails_[index(local, remote)], now).ns(silent_leaves), std::min(queue, most_));
  }

 private:
  static constexpr uint64_t kQuarters = 16;
  struct Rail {
    AdaptiveBound bound;
    uint64_t at = 0;  // of the last answer
  };
  static size_t index(int local, int remote) { return size_t(local) * kMostNics + size_t(remote); }
  static AdaptiveBound faded(const Rail& rail, uint64_t now) {
    AdaptiveBound bound = rail.bound;
    bound.fade((now - std::min(now, rail.at)) / kHalfLifeNs);
    return bound;
  }

  uint64_t most_;
  std::vector<Rail> rails_;
};

}  // namespace r2ccl::health
