// SPDX-License-Identifier: Apache-2.0
// A bound on silence that follows what is usual: so long may nothing move, or no answer come, before it means
// something. Pure; times in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace r2ccl {

class AdaptiveBound {
 public:
  /// So many quarters of the usual silence, from `least` to `most` (at least `least`).
  AdaptiveBound(uint64_t quarters, uint64_t least, uint64_t most)
      : quarters_(quarters), least_(least), most_(std::max(least, most)) {}

  uint64_t ns() const { return std::max(doubled_, std::clamp(usual_ * quarters_ / 4, least_, most_)); }
  /// After so many actions in a row that followed from it and changed nothing: the least is twice as long for
  /// each. Within the limits.
  uint64_t ns(unsigned actions) const {
    return std::min(std::max(ns(), least_ << std::min(actions, kMostDoublings)), most_);
  }
  /// A silence ended by itself. The longest counts, and slowly less.
  void ended_after(uint64_t silence) { usual_ = std::max(silence, usual_ - usual_ / 16); }
  /// What was usual long ago counts half as much, so many times.
  void fade(uint64_t halvings) { usual_ = halvings < 64 ? usual_ >> halvings : 0; }
  /// What followed from it may have been wrong: the next one is twice as long, until something moves.
  void acted_on() { doubled_ = 2 * ns(); }
  void moved() { doubled_ = 0; }

  uint64_t usual() const { return usual_; }

 private:
  static constexpr unsigned kMostDoublings = 10;

  uint64_t quarters_, least_, most_;
  uint64_t usual_ = 0;
  uint64_t doubled_ = 0;
};

}  // namespace r2ccl
