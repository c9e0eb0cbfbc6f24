// SPDX-License-Identifier: Apache-2.0
// Cuts messages into the parts that travel on several lanes. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

inline constexpr double kSame = 0.01;  ///< shares that differ by less count as the same

/// Shares that differ hardly at all are left as they are: who is behind its share by less than a piece keeps
/// that credit.
inline bool alike(const LaneShare& a, const LaneShare& b) {
  return std::abs(a.share - b.share) < kSame && a.slow == b.slow;
}

/// Which of a channel's paths messages are cut for.
struct Spread {
  static constexpr size_t kNoLane = ~size_t{0};
  std::vector<uint32_t> over;    ///< paths; empty: the active path carries everything
  std::vector<LaneShare> parts;  ///< of each
  size_t for_tiny = kNoLane;     ///< the lane preferred for the tiniest messages
  bool operator==(const Spread& other) const {
    return over == other.over && for_tiny == other.for_tiny &&
           std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(), alike);
  }
};
/// carriers[0] is the active path, 0: there is none; those behind it are lanes. shares[i] is what carriers[i]
/// is to carry: one that is to carry nothing is left out, and so is a share of no path. For the tiniest
/// messages `for_tiny` is preferred, else the active path, if they are to carry something.
inline Spread spread(std::span<const uint32_t> carriers, std::span<const LaneShare> shares,
                     uint32_t for_tiny = 0) {
  Spread spread;
  for (size_t i = 0; i < carriers.size() && i < shares.size(); ++i) {
    if (carriers[i] == 0 || shares[i].share <= 0) continue;
    spread.over.push_back(carriers[i]);
    spread.parts.push_back(shares[i]);
  }
  const bool active_first = !spread.over.empty() && spread.over[0] == carriers[0];
  if (active_first) spread.for_tiny = 0;
  if (spread.over.size() == 1 && active_first) spread.over.clear();
  if (const auto it = std::find(spread.over.begin(), spread.over.end(), for_tiny); it != spread.over.end())
    spread.for_tiny = size_t(it - spread.over.begin());
  return spread;
}

/// Cuts messages into pieces so that each lane carries its share of the bytes in the long run, with no more
/// pieces than that needs. Small messages are not cut and stay away from slow lanes: an operation waits for
/// the last of them. The tiniest all travel on one lane, and do not count: what they cost is work of the CPU,
/// which is least where the queues of one lane are used.
class Splitter {
 public:
  static constexpr uint32_t kWhole = 64 << 10;       ///< smaller messages are not cut: bytes
  static constexpr uint32_t kTiny = 4 << 10;         ///< messages below all travel on one lane: bytes
  static constexpr uint32_t kLeastPiece = 16 << 10;  ///< bytes
  static constexpr uint32_t kGrain = 128;            ///< pieces begin at such addresses

  /// The next message of this size travels on the same lane.
  static constexpr bool stays(uint64_t bytes) { return bytes < kTiny; }

  /// That lane, of those of set().
  size_t lane_of_tiny() const { return tiny_lane_; }
  /// May they travel on this one? Not if its share is so much smaller than the largest that what they wait
  /// for is its bandwidth.
  bool may_carry_tiny(size_t lane) const { return small_share_[lane] >= enough_; }

  /// The tiniest messages travel on lane `preferred` if they may, else on the first lane from number
  /// `otherwise` (modulo their number) on on which they may: channels with the same shares must not all
  /// choose the same NIC.
  void set(std::span<const LaneShare> shares, size_t preferred = 0, size_t otherwise = 0);
  size_t lanes() const { return lanes_; }
  /// Cuts `bytes` bytes that will lie at `address` of the receiver. Returns how many pieces there are, at
  /// least 1; they cover the message without gap or overlap, each on a lane of its own, in the order of the
  /// lanes.
  size_t split(uint64_t address, uint32_t bytes, std::span<Piece, kMaxRails> pieces);

 private:
  static constexpr double kMuchLess = 0.6;  // of the largest share of small messages
  static constexpr double kAlike = 0.01;  // of a message: lanes that are so far apart are equally far behind
  uint8_t next_after(uint8_t lane) const { return lane + 1u < lanes_ ? uint8_t(lane + 1) : uint8_t(0); }

  size_t lanes_ = 0;
  PerRail share_{};
  PerRail credit_{};  // bytes that a lane is behind its share
  PerRail small_share_{}, small_credit_{};
  double enough_ = 0;       // of small_share_, for the tiniest messages
  uint8_t small_lane_ = 0;  // of the last small message
  uint8_t tiny_lane_ = 0;
};

}  // namespace r2ccl::balance
