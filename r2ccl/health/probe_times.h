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

  /// A probe of the rail came back after `took`, however late: also when its path had been left by then.
  void answered(int local, int remote, uint64_t took) {
    uint64_t& slowest = at(local, remote);
    slowest = took > slowest ? took : slowest - (slowest - took) / kForget;
  }
  /// The longest answer of late; 0 before the first.
  uint64_t slowest(int local, int remote) const { return slowest_[size_t(local)][size_t(remote)]; }
  /// How old an unanswered probe must be to mean that the rail is dead: four times the longest answer of
  /// late, at least `least` (twice that for each of `silent_leaves`, the paths that the channel has left for
  /// silence since it last got anything anywhere: then it is the deadline that is wrong), at most `most`.
  uint64_t deadline(int local, int remote, uint64_t least, uint64_t most, unsigned silent_leaves) const {
    const uint64_t patient = least << std::min(silent_leaves, kMostDoublings);
    return std::min(std::max(patient, kSpare * slowest(local, remote)), std::max(least, most));
  }

 private:
  static constexpr uint64_t kForget = 16;  // a quick answer takes this part of the difference away
  static constexpr uint64_t kSpare = 4;
  static constexpr unsigned kMostDoublings = 10;
  uint64_t& at(int local, int remote) { return slowest_[size_t(local)][size_t(remote)]; }

  std::array<std::array<uint64_t, kMostNics>, kMostNics> slowest_{};
};

}  // namespace r2ccl::health
