// SPDX-License-Identifier: Apache-2.0
// A bound on silence that follows what is usual: so long may nothing move before it means something. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace r2ccl {

class AdaptiveBound {
 public:
  /// So many quarters of the usual silence, within limits; in nanoseconds.
  AdaptiveBound(uint64_t quarters, uint64_t least, uint64_t most)
      : quarters_(quarters), least_(least), most_(most) {}

  uint64_t ns() const { return std::max(doubled_, std::clamp(usual_ * quarters_ / 4, least_, most_)); }
  /// A silence ended by itself. The longest counts, and slowly less.
  void ended_after(uint64_t silence) { usual_ = std::max(silence, usual_ - usual_ / 16); }
  /// What followed from it may have been wrong: the next one is twice as long, until something moves.
  void acted_on() { doubled_ = 2 * ns(); }
  void moved() { doubled_ = 0; }

 private:
  const uint64_t quarters_, least_, most_;
  uint64_t usual_ = 0;
  uint64_t doubled_ = 0;
};

}  // namespace r2ccl
