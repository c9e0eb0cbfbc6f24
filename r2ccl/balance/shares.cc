// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/balance/shares.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace r2ccl::balance {
namespace {

constexpr int kHalvings = 24;
constexpr double kNothing = 1e-9;  // part of all demand

bool is_far(const Group& group, size_t rail) { return group.far >> rail & 1; }

double all(const Demand& demand) {
  double sum = 0;
  for (size_t g = 0; g < demand.count; ++g)
    sum += std::accumulate(demand.groups[g].demand.begin(), demand.groups[g].demand.end(), 0.0);
  return sum;
}

/// Who carries what when every rail works for `time`.
struct Placing {
  std::array<PerRail, kMaxGroups> home{};   // stays there
  std::array<PerRail, kMaxGroups> moved{};  // comes to the rail from others
  double left = 0;                          // does not fit

  Placing(const Rails& rails, const Demand& demand, double time);

 private:
  /// As much of `rest` as fits goes to the rails of one side, in proportion to their room.
  static void fill(PerRail& room, double& rest, PerRail& moved, uint8_t side, double cost);
};

void Placing::fill(PerRail& room, double& rest, PerRail& moved, uint8_t side, double cost) {
  double all_room = 0;
  for (size_t rail = 0; rail < kMaxRails; ++rail)
    if (side >> rail & 1) all_room += room[rail];
  if (all_room <= 0 || rest <= 0) return;
  const double taken = std::min(rest, all_room / cost);
  for (size_t rail = 0; rail < kMaxRails; ++rail) {
    if (!(side >> rail & 1)) continue;
    const double part = taken * room[rail] / all_room;
    moved[rail] += part;
    room[rail] = std::max(0.0, room[rail] - part * cost);
  }
  rest -= taken;
}

Placing::Placing(const Rails& rails, const Demand& demand, double time) {
  PerRail room{};
  std::array<double, kMaxGroups> rest{};
  for (size_t rail = 0; rail < kMaxRails; ++rail) {
    if (rail < rails.capacity.size()) room[rail] = time * rails.capacity[rail];
    double wanted = 0;
    for (size_t g = 0; g < demand.count; ++g)
      if (!is_far(demand.groups[g], rail)) wanted += demand.groups[g].demand[rail];
    const double fits = wanted > room[rail] ? room[rail] / wanted : 1;
    room[rail] -= std::min(room[rail], wanted * fits);
    for (size_t g = 0; g < demand.count; ++g) {
      const double own = demand.groups[g].demand[rail];
      if (!is_far(demand.groups[g], rail)) home[g][rail] = own * fits;
      rest[g] += own - home[g][rail];
    }
  }
  // Who has the least choice is served first.
  std::array<uint8_t, kMaxGroups> order{};
  std::iota(order.begin(), order.end(), uint8_t{0});
  const auto choice = [&](uint8_t group) { return std::popcount(demand.groups[group].far); };
  for (size_t k = 1; k < demand.count; ++k)
    for (size_t i = k; i > 0 && choice(order[i]) > choice(order[i - 1]); --i)
      std::swap(order[i], order[i - 1]);
  for (size_t k = 0; k < demand.count; ++k)
    fill(room, rest[order[k]], moved[order[k]], uint8_t(~demand.groups[order[k]].far), 1);
  for (size_t k = 0; k < demand.count; ++k)
    fill(room, rest[order[k]], moved[order[k]], demand.groups[order[k]].far, rails.far_cost);
  left = std::accumulate(rest.begin(), rest.end(), 0.0);
}

}  // namespace

size_t Demand::group(uint8_t far) {
  for (size_t g = 0; g < count; ++g)
    if (groups[g].far == far) return g;
  if (count == kMaxGroups) return count - 1;
  groups[count] = {far, {}};
  return count++;
}

void Demand::add(uint8_t far, size_t home, double amount) { groups[group(far)].demand[home] += amount; }

double Demand::on(size_t home) const {
  double sum = 0;
  for (size_t g = 0; g < count; ++g) sum += groups[g].demand[home];
  return sum;
}

double time_of(const Rails& rails, const Demand& demand) {
  const double wanted = all(demand);
  const double capacity = std::accumulate(rails.capacity.begin(), rails.capacity.end(), 0.0);
  if (capacity <= 0) return 0;
  const auto fits = [&](double time) { return Placing(rails, demand, time).left <= kNothing * wanted; };
  double low = 0;
  for (size_t rail = 0; rail < rails.nominal.size(); ++rail)
    if (rails.nominal[rail] > 0) low = std::max(low, demand.on(rail) / rails.nominal[rail]);
  if (fits(low)) return low;
  double high = std::max(low, wanted / capacity) * 2;
  while (!fits(high)) high *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

PerRail shares(const Rails& rails, Demand demand, uint8_t far, size_t home) {
  PerRail out{};
  if (home >= kMaxRails) home = kMaxRails - 1;
  const size_t own = demand.group(far);
  double& wanted = demand.groups[own].demand[home];
  if (wanted <= 0) wanted = std::max(1e-6 * all(demand), 1e-12);
  const double time = time_of(rails, demand);
  if (time <= 0) return out;
  const Placing placing(rails, demand, time);
  const double at_home = placing.home[own][home] / wanted;
  const double moved = std::accumulate(placing.moved[own].begin(), placing.moved[own].end(), 0.0);
  if (moved > 0)
    for (size_t rail = 0; rail < kMaxRails; ++rail)
      out[rail] = (1 - at_home) * placing.moved[own][rail] / moved;
  out[home] += moved > 0 ? at_home : 1;
  return out;
}

std::array<int, kMaxRails> pair_nics(std::span<const bool> local_usable,
                                     std::span<const bool> remote_usable) {
  std::array<int, kMaxRails> partner;
  partner.fill(-1);
  std::array<bool, kMaxRails> taken{};
  for (size_t nic = 0; nic < std::min(local_usable.size(), remote_usable.size()); ++nic)
    if (local_usable[nic] && remote_usable[nic]) {
      partner[nic] = int(nic);
      taken[nic] = true;
    }
  size_t next = 0;
  for (size_t nic = 0; nic < local_usable.size(); ++nic) {
    if (!local_usable[nic] || partner[nic] >= 0) continue;
    while (next < remote_usable.size() && (!remote_usable[next] || taken[next])) ++next;
    if (next == remote_usable.size()) break;
    taken[next] = true;
    partner[nic] = int(next);
  }
  return partner;
}

}  // namespace r2ccl::balance
