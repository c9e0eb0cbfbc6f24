// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {
namespace {

/// A ring is as good as its worst edge, then as the sum of all.
struct Quality {
  int worst = 0;
  long sum = 0;
  auto operator<=>(const Quality&) const = default;
};

int shared(std::span<const uint64_t> rails, uint32_t a, uint32_t b) {
  return std::popcount(rails[a] & rails[b]);
}

Quality quality(std::span<const uint64_t> rails, const Ranks& order) {
  Quality result{64, 0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int common = shared(rails, order[i], order[(i + 1) % order.size()]);
    result.worst = std::min(result.worst, common);
    result.sum += common;
  }
  return result;
}

}  // namespace

// Nearest neighbour, then 2-opt: reversals of a stretch for as long as one makes the ring better. Where
// nothing is lost the natural order stays.
Ranks bridge_order(std::span<const uint64_t> rails) {
  constexpr int kRounds = 8;
  Ranks order = natural_order(static_cast<uint32_t>(rails.size()));
  if (order.size() < 4) return order;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    size_t best = i + 1;
    for (size_t j = i + 2; j < order.size(); ++j) {
      if (shared(rails, order[i], order[j]) > shared(rails, order[i], order[best])) best = j;
    }
    std::rotate(order.begin() + static_cast<long>(i) + 1, order.begin() + static_cast<long>(best),
                order.begin() + static_cast<long>(best) + 1);
  }
  const size_t n = order.size();
  for (int round = 0; round < kRounds; ++round) {
    bool better = false;
    for (size_t i = 1; i < n; ++i) {
      for (size_t j = i + 1; j < n; ++j) {
        // Only the two edges at the ends of the stretch change.
        const uint32_t a = order[i - 1], b = order[i], c = order[j], d = order[(j + 1) % n];
        const Quality before{std::min(shared(rails, a, b), shared(rails, c, d)),
                             shared(rails, a, b) + shared(rails, c, d)};
        const Quality after{std::min(shared(rails, a, c), shared(rails, b, d)),
                            shared(rails, a, c) + shared(rails, b, d)};
        if (after <= before) continue;
        std::reverse(order.begin() + static_cast<long>(i), order.begin() + static_cast<long>(j) + 1);
        better = true;
      }
    }
    if (!better) break;
  }
  const Ranks natural = natural_order(static_cast<uint32_t>(n));
  return quality(rails, natural) >= quality(rails, order) ? natural : order;
}

}  // namespace r2ccl::collective
