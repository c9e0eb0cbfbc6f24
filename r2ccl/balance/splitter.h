// SPDX-License-Identifier: Apache-2.0
// Cuts messages into the parts that travel on several lanes. Pure.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "r2ccl/balance/shares.h"

namespace r2ccl::balance {

/// A part of a message that travels on one lane.
struct Piece {
  uint8_t lane = 0;
  uint32_t offset = 0;  ///< bytes
  uint32_t bytes = 0;
};

/// What a lane is to carry.
struct LaneShare {
  double share = 0;   ///< of the bytes, in the sum 1
  bool slow = false;  ///< its rail takes longer for a message than others do
};

/// Shares that differ hardly at all are left as they are: who is behind its share by less than a piece keeps
/// that credit.
inline bool alike(const LaneShare& a, const LaneShare& b) {
  constexpr double kSame = 0.01;
  return std::abs(a.share - b.share) < kSame && a.slow == b.slow;
}

/// Cuts messages into pieces so that each lane carries its share of the bytes in the long run, with no more
/// pieces than that needs. Small messages are not cut and stay away from slow lanes: an operation waits for
/// the last of them.
class Splitter {
 public:
  static constexpr uint32_t kWhole = 64 << 10;       ///< smaller messages are not cut: bytes
  static constexpr uint32_t kLeastPiece = 16 << 10;  ///< bytes
  static constexpr uint32_t kGrain = 128;            ///< pieces begin at such addresses

  void set(std::span<const LaneShare> shares);
  size_t lanes() const { return lanes_; }
  /// Cuts `bytes` bytes that will lie at `address` of the receiver. Returns how many pieces there are, at
  /// least 1; they cover the message without gap or overlap, in order, each on a lane of its own.
  size_t split(uint64_t address, uint32_t bytes, std::span<Piece, kMaxRails> pieces);

 private:
  size_t lanes_ = 0;
  PerRail share_{};
  PerRail credit_{};  // bytes that a lane is behind its share
  PerRail small_share_{}, small_credit_{};
};

}  // namespace r2ccl::balance
