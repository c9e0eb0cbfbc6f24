// SPDX-License-Identifier: Apache-2.0
// How long probes of each rail to one peer take, so that a rail whose answers wait behind traffic (a deep
// queue in a switch, a throttled port) is not taken for a dead one. Pure; times in ns on any clock that the
// caller accrues.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace r2ccl::health {

class ProbeTimes {
 public:
  static constexpr int kMostNics = 8;
  static constexpr uint64_t kHalfLifeNs = 10'000'000'000;

  /// A probe of the rail came back `now`, after `took`, however late: also when its path had been left by
  /// then.
  void answered(int local, int remote, uint64_t took, uint64_t now) {
    const uint64_t before = slowest(local, remote, now);
    rails_[size_t(local)][size_t(remote)] = {took > before ? took : before - (before - took) / kForget, now};
  }
  /// The longest answer of late; 0 before the first. It fades: by quick answers, and by half in ten seconds.
  uint64_t slowest(int local, int remote, uint64_t now) const {
    const Rail& rail = rails_[size_t(local)][size_t(remote)];
    const uint64_t halvings = (now - std::min(now, rail.at)) / kHalfLifeNs;
    return halvings < 64 ? rail.slowest >> halvings : 0;
  }
  /// How old an unanswered probe must be to mean that the rail is dead: four times the longest answer of
  /// late, at least `least` (twice that for each of `silent_leaves`, the paths that the channel has left for
  /// silence since it last got anything anywhere: then it is the deadline that is wrong), at most `most`.
  uint64_t deadline(int local, int remote, uint64_t least, uint64_t most, unsigned silent_leaves,
                    uint64_t now) const {
    const uint64_t patient = least << std::min(silent_leaves, kMostDoublings);
    const uint64_t longest = std::max(least, most);
    return std::min(std::max(patient, kSpare * std::min(slowest(local, remote, now), longest)), longest);
  }

 private:
  static constexpr uint64_t kForget = 16;  // a quick answer takes this part of the difference away
  static constexpr uint64_t kSpare = 4;
  static constexpr unsigned kMostDoublings = 10;
  struct Rail {
    uint64_t slowest = 0;
    uint64_t at = 0;  // of the last answer
  };

  std::array<std::array<Rail, kMostNics>, kMostNics> rails_{};
};

}  // namespace r2ccl::health
