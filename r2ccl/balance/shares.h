// SPDX-License-Identifier: Apache-2.0
// How the traffic between two nodes is spread over their rails: so that the busiest is done as early as can
// be, and moving no more of it than that takes. Pure: no verbs, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace r2ccl::balance {

inline constexpr size_t kMaxRails = 8;
using PerRail = std::array<double, kMaxRails>;

/// Traffic whose memory lies alike: on the same side of the same rails.
struct Group {
  uint8_t far = 0;   ///< bit i: rail i is reached across sockets, at one end or the other
  PerRail demand{};  ///< how much of it has its home on rail i, usable or not, in any unit
  bool operator==(const Group&) const = default;
};
inline constexpr size_t kMaxGroups = 8;

/// All traffic of the node, as far as it is known: of all its processes.
struct Demand {
  size_t count = 0;
  std::array<Group, kMaxGroups> groups{};

  /// Adds to the group with that `far`; to the last one when there are too many.
  void add(uint8_t far, size_t home, double amount);
  /// Index of the group with that `far`, made when there is none.
  size_t group(uint8_t far);
  double on(size_t home) const;
  bool operator==(const Demand&) const = default;
};

/// What the rails can carry.
struct Rails {
  std::span<const double> capacity;  ///< in any unit; 0: it cannot be used
  std::span<const double> nominal;   ///< when nothing is the matter, same unit
  double far_cost = 1;               ///< ≥ 1: how much of its capacity a byte takes that crosses sockets
};

/// The time in which all of `demand` can be carried, in units of demand / capacity: of the best assignment,
/// but not below what the busiest rail takes when nothing is the matter and everything is at home. 0 when no
/// rail is usable.
double time_of(const Rails& rails, const Demand& demand);

/// The share of each rail, in the sum 1, in the traffic of a channel of that group whose home is rail `home`.
///
/// Near traffic stays at home as far as home carries it within time_of(); the rest goes to the rails on its
/// side that have room, in proportion to that, and what is still too much crosses sockets. This is the
/// optimum of the linear program 'minimise the time of the busiest rail' where the groups' near sides are
/// disjoint or everything is near, as those of sockets are; elsewhere it may be missed by a little. All
/// channels compute the same from the same numbers, so nothing has to be agreed. All 0 when no rail is
/// usable.
PerRail shares(const Rails& rails, Demand demand, uint8_t far, size_t home);

/// Which remote NIC each usable local NIC works with: the straight one (the same number) where both are
/// usable; what is left over on both sides is paired in order (cross rails). -1: none.
std::array<int, kMaxRails> pair_nics(std::span<const bool> local_usable, std::span<const bool> remote_usable);

}  // namespace r2ccl::balance
