// How the traffic between two nodes is spread over their rails: in proportion to what each can carry, and
// moving no more of it than that takes. Pure: no verbs, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace r2ccl::balance {

inline constexpr size_t kMaxRails = 8;
using PerRail = std::array<double, kMaxRails>;

/// The share of each rail, in the sum 1, in the traffic of a channel whose home is rail `home`.
///
/// `capacity[i]`: what rail i can carry, in any unit; 0: it cannot be used. `demand[i]`: how much traffic has
/// its home on rail i, usable or not, in any unit. Every rail is to carry load in proportion to its capacity.
/// Traffic stays at home as far as home's part allows; what is too much there goes to the rails that have
/// room left beside their own traffic, in proportion to that room. All channels compute the same from the
/// same numbers, so nothing has to be agreed. All 0 when no rail is usable.
PerRail shares(std::span<const double> capacity, std::span<const double> demand, size_t home);

/// Which remote NIC each usable local NIC works with: the straight one (the same number) where both are
/// usable; what is left over on both sides is paired in order (cross rails). -1: none.
std::array<int, kMaxRails> pair_nics(std::span<const bool> local_usable, std::span<const bool> remote_usable);

/// A part of a message that travels on one lane.
struct Piece {
  uint8_t lane = 0;
  uint32_t offset = 0;  ///< bytes
  uint32_t bytes = 0;
};

/// Cuts messages into pieces so that each lane carries its share of the bytes in the long run, with no more
/// pieces than that needs.
class Splitter {
 public:
  static constexpr uint32_t kWhole = 64 << 10;       ///< smaller messages are not cut: bytes
  static constexpr uint32_t kLeastPiece = 16 << 10;  ///< bytes
  static constexpr uint32_t kGrain = 128;            ///< pieces begin at such addresses

  /// `shares[i]`: of lane i, in the sum 1.
  void set(std::span<const double> shares);
  size_t lanes() const { return lanes_; }
  /// Cuts `bytes` bytes that will lie at `address` of the receiver. Returns how many pieces there are, at
  /// least 1; they cover the message without gap or overlap, in order, each on a lane of its own.
  size_t split(uint64_t address, uint32_t bytes, std::span<Piece, kMaxRails> pieces);

 private:
  size_t lanes_ = 0;
  PerRail share_{};
  PerRail credit_{};  // bytes that a lane is behind its share
};

}  // namespace r2ccl::balance
