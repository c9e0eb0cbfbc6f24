// SPDX-License-Identifier: Apache-2.0
// Which NIC a sending channel's traffic is bound for, how the channel counts in the load of NICs
// (nic_load.h), in which order NICs are wanted for another path, and which of them has clearly less to carry.
// In mode 1 all of a channel's traffic is on one NIC; from mode 2 on, its tiniest messages are. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "r2ccl/protocol/nic_load.h"
#include "r2ccl/protocol/opening.h"

namespace r2ccl {

/// Another NIC that can take over, and how far it is: equal numbers are equally good.
struct Backup {
  int nic;
  int distance;
  bool crosses = false;  ///< … sockets
};

/// Where a channel's traffic is, and where it may go: local NICs, kNone where there is no such path.
struct TrafficSight {
  static constexpr int kNone = -1;
  int home = 0;
  int active = kNone;      ///< of the path that carries everything, or all of the tiniest messages
  int move = kNone;        ///< of the path that a move goes to when that has answered
  int target = kNone;      ///< of the path that a planned migration goes to
  int standby = kNone;     ///< of the path that takes over first where none is active
  int opened = kNone;      ///< of the path that is being opened
  Purpose purpose{};       ///< … and for what
  bool in_demand = false;  ///< it has had traffic of late

  constexpr double weight() const { return in_demand ? 1 : NicLoad::kIdle; }
  constexpr int opened_for(Purpose wanted) const { return purpose == wanted ? opened : kNone; }
};

/// The NIC that carries it, or is going to. A path is as good as taken when it is being opened for that.
constexpr int bound_for(const TrafficSight& seen) {
  const auto first = [](std::initializer_list<int> nics) {
    return *std::find_if(nics.begin(), nics.end(), [](int nic) { return nic != TrafficSight::kNone; });
  };
  if (seen.active != TrafficSight::kNone)
    return first({seen.move, seen.opened_for(Purpose::kSpread), seen.active});
  return first({seen.target, seen.standby, seen.opened_for(Purpose::kRescue), seen.home});
}

/// Counts the channel in. `for_each_standby(f)`: f(nic) of each path that may take over, the one of a move
/// not included. True: its traffic is away from home; without an active path, it will be.
template <class ForEach>
bool count_in(NicLoad& load, const TrafficSight& seen, ForEach&& for_each_standby) {
  const double weight = seen.weight();
  const int bound = bound_for(seen), at = seen.active;
  load.own[size_t(seen.home)] += weight;
  if (bound != seen.home) load.own[size_t(bound)] += weight;
  if (at == TrafficSight::kNone) return bound != seen.home;
  if (at != bound) ++load.leaving[size_t(at)];
  const auto behind = [&](int nic) { load.behind[size_t(at)][size_t(nic)] += weight; };
  for_each_standby(behind);
  if (const int opened = seen.opened_for(Purpose::kStandby); opened != TrafficSight::kNone) behind(opened);
  return at != seen.home;
}

/// The NICs in the order in which a path over them is wanted: home, then those that would have the least to
/// carry, this channel and those that would leave the active NIC together with it included; of them the
/// nearest. On a NIC across sockets a channel takes longer by `far_cost` (1: no longer). Channels that are
/// idle count only among NICs that are equally near.
inline std::vector<int> wanted_nics(const NicLoad& load, const TrafficSight& seen,
                                    std::span<const Backup> backups, double far_cost) {
  using Key = std::tuple<double, int, double>;
  std::vector<std::pair<Key, int>> others;
  for (const Backup& backup : backups) {
    double carried = load.on(backup.nic) + (backup.crosses ? far_cost : 1);
    if (bound_for(seen) == backup.nic) carried -= seen.weight();
    if (seen.active != TrafficSight::kNone) carried += load.behind[size_t(seen.active)][size_t(backup.nic)];
    others.push_back({{std::round(carried), backup.distance, carried}, backup.nic});
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int> order{seen.home};
  for (const auto& other : others) order.push_back(other.second);
  return order;
}

/// The NIC on which a channel whose traffic is at `at` would have the least beside it, and clearly less than
/// there; none while another channel is leaving `at`. `may_go(nic)`: there is a rail over it.
template <class MayGo>
std::optional<int> less_loaded(const NicLoad& load, int at, std::span<const Backup> backups, double far_cost,
                               MayGo&& may_go) {
  std::optional<int> best;
  if (load.leaving[size_t(at)] != 0) return best;
  for (const Backup& backup : backups) {
    if (backup.nic == at || !may_go(backup.nic)) continue;
    if (!load.better(at, backup.nic, backup.crosses ? far_cost - 1 : 0)) continue;
    if (!best || load.on(backup.nic) < load.on(*best)) best = backup.nic;
  }
  return best;
}

/// From mode 2 on: the NIC to which the tiniest messages of a channel that is not `at_home` are to go; none:
/// they stay. `may_carry(nic)`: they may travel there.
template <class MayCarry>
std::optional<int> less_for_tiny(const NicLoad& load, const TrafficSight& seen, bool at_home,
                                 std::span<const Backup> backups, double far_cost, MayCarry&& may_carry) {
  if (at_home || seen.active == TrafficSight::kNone) return {};
  return less_loaded(load, seen.active, backups, far_cost, may_carry);
}

}  // namespace r2ccl
