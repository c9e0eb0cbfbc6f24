// SPDX-License-Identifier: Apache-2.0
// In which order the two sides of a comparison within one job carry out its operations.
#pragma once

#include <cstdint>

namespace r2bench {

/// Each side has `pairs` sets of communicators, and each operation is of one set. Sets are made in the order
/// of sides 0 1 1 0: communicators of one side differ from each other by more than the sides do.
struct Turns {
  int pairs = 0;  ///< 0: no comparison, one set

  /// Each turn of 16 operations is of the next two sets: four of one, eight of the other, four of the one. A
  /// drift of the machine favours neither, and of 16 operations at least 13 follow one of their own side. When
  /// all sets have had a turn, the other side begins: the first four find other data in the caches.
  static constexpr int kTurn = 16;
  /// Operations in which each set has begun and ended its turns equally often.
  int round() const { return 2 * kTurn * pairs; }

  int sets() const { return pairs ? 2 * pairs : 1; }
  static int side_of_set(int set) { return (set ^ set / 2) & 1; }
  int side(uint64_t operation) const {
    if (!pairs) return 0;
    const uint64_t round = operation / kTurn / uint64_t(pairs);
    return int((operation / 4 ^ operation / 8 ^ round) & 1);
  }
  int set(uint64_t operation) const {
    if (!pairs) return 0;
    const int pair = int(operation / kTurn % uint64_t(pairs)) * 2;
    return pair + (side(operation) != side_of_set(pair));
  }
  /// Warm-ups go through all sets: the first operation of a communicator connects it.
  int set_of_warmup(uint64_t warmup) const { return int(warmup % uint64_t(sets())); }
};

}  // namespace r2bench
