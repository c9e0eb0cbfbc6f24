// SPDX-License-Identifier: Apache-2.0
// Shares: how much of the traffic each rail gets.
#include "r2ccl/balance/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace r2ccl::balance {
namespace {

double sum(const PerRail& share) { return std::accumulate(share.begin(), share.end(), 0.0); }

/// What each rail carries when every channel follows shares(), in the unit of `demand`.
std::vector<double> loads(const Rails& rails, const Demand& demand) {
  std::vector<double> load(rails.capacity.size(), 0);
  for (size_t g = 0; g < demand.count; ++g)
    for (size_t home = 0; home < kMaxRails; ++home) {
      const Group& group = demand.groups[g];
      const PerRail share = shares(rails, demand, group.far, home);
      for (size_t rail = 0; rail < load.size(); ++rail)
        load[rail] += group.demand[home] * share[rail] * (group.far >> rail & 1 ? rails.far_cost : 1);
    }
  return load;
}

Demand alike(size_t rails, double amount = 1) {
  Demand demand;
  for (size_t home = 0; home < rails; ++home) demand.add(0, home, amount);
  return demand;
}

/// Rails of one nominal capacity.
struct Uniform {
  std::vector<double> capacity, nominal;
  explicit Uniform(std::vector<double> c) : capacity(std::move(c)), nominal(capacity.size(), 1) {}
  Rails rails(double far_cost = 1) const { return {capacity, nominal, far_cost}; }
};

TEST(Shares, all_is_well_and_everything_stays_at_home) {
  const Uniform eight(std::vector<double>(8, 1));
  for (size_t home = 0; home < 8; ++home) {
    const PerRail share = shares(eight.rails(), alike(8), 0, home);
    EXPECT_DOUBLE_EQ(share[home], 1);
    EXPECT_DOUBLE_EQ(sum(share), 1);
  }
}

TEST(Shares, k_dead_rails_are_shared_by_the_living) {
  for (size_t dead = 1; dead < 8; ++dead) {
    Uniform eight(std::vector<double>(8, 1));
    std::fill_n(eight.capacity.begin(), dead, 0);
    const auto load = loads(eight.rails(), alike(8));
    for (size_t rail = 0; rail < 8; ++rail)
      EXPECT_NEAR(load[rail], rail < dead ? 0 : 8.0 / double(8 - dead), 1e-6)
          << dead << " dead, rail " << rail;
    for (size_t rail = dead; rail < 8; ++rail)
      EXPECT_NEAR(shares(eight.rails(), alike(8), 0, rail)[rail], 1, 1e-6) << "no need to move";
  }
}

TEST(Shares, no_rail_is_busier_than_it_must_be_whatever_the_numbers) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 8;
    std::vector<double> capacity(count), nominal(count);
    Demand demand;
    for (size_t rail = 0; rail < count; ++rail) {
      nominal[rail] = 1 + double(random() % 100);
      capacity[rail] = random() % 4 == 0 ? 0 : nominal[rail] * double(1 + random() % 4) / 4;
      demand.add(0, rail, double(random() % 5));
    }
    const Rails rails{capacity, nominal, 1};
    const double all = std::accumulate(capacity.begin(), capacity.end(), 0.0);
    double wanted = 0, healthy = 0;
    for (size_t home = 0; home < count; ++home) {
      wanted += demand.on(home);
      healthy = std::max(healthy, demand.on(home) / nominal[home]);
      const PerRail share = shares(rails, demand, 0, home);
      EXPECT_NEAR(sum(share), all > 0 ? 1 : 0, 1e-9);
      for (size_t rail = 0; rail < kMaxRails; ++rail) {
        EXPECT_GE(share[rail], 0);
        EXPECT_TRUE(rail < count || share[rail] == 0);
        if (rail < count && capacity[rail] == 0) {
          EXPECT_EQ(share[rail], 0) << "a dead rail carries nothing";
        }
      }
    }
    if (all <= 0 || wanted <= 0) continue;
    const double time = std::max(wanted / all, healthy);
    EXPECT_NEAR(time_of(rails, demand), time, 1e-6 * time);
    const auto load = loads(rails, demand);
    for (size_t rail = 0; rail < count; ++rail)
      EXPECT_LE(load[rail], capacity[rail] * time * (1 + 1e-6)) << "rail " << rail;
  }
}

TEST(Shares, nobody_who_can_stay_moves) {
  const Uniform eight({0.25, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_NEAR(shares(eight.rails(), alike(8), 0, 0)[0], 8 * 0.25 / 7.25, 1e-6);
  for (size_t home = 1; home < 8; ++home)
    EXPECT_NEAR(shares(eight.rails(), alike(8), 0, home)[home], 1, 1e-6);
  // Rails that nobody uses take over what a dead one carried; those in use are left alone.
  const Uniform dead({0, 1, 1, 1});
  Demand two;
  two.add(0, 0, 1);
  two.add(0, 1, 1);
  EXPECT_DOUBLE_EQ(shares(dead.rails(), two, 0, 1)[1], 1);
  EXPECT_DOUBLE_EQ(shares(dead.rails(), two, 0, 0)[2], 0.5);
  EXPECT_DOUBLE_EQ(shares(dead.rails(), two, 0, 0)[3], 0.5);
}

TEST(Shares, without_a_rail_there_is_nothing_to_share_and_without_demand_home_is_right) {
  const Uniform none({0, 0}), two({1, 1}), other({0, 1});
  EXPECT_EQ(sum(shares(none.rails(), {}, 0, 0)), 0);
  EXPECT_DOUBLE_EQ(shares(two.rails(), {}, 0, 1)[1], 1);
  EXPECT_DOUBLE_EQ(shares(other.rails(), {}, 0, 0)[1], 1) << "home is dead";
  EXPECT_DOUBLE_EQ(sum(shares(two.rails(), {}, 0, 7)), 1) << "a home that is no rail";
}

TEST(Shares, traffic_crosses_sockets_only_when_its_own_side_is_full) {
  // Two sockets of four rails; memory on each. Three rails of the first socket are lost.
  const uint8_t first = 0xf0, second = 0x0f;  // what is far from each
  Demand demand;
  for (size_t home = 0; home < 8; ++home) demand.add(home < 4 ? first : second, home, 1);
  const Uniform eight({0, 0, 0, 1, 1, 1, 1, 1});
  const Rails rails = eight.rails(2);
  // 4 T = 4 + 2 (4 − T) on the far side, which has the four rails' own traffic as well.
  EXPECT_NEAR(time_of(rails, demand), 2, 1e-6);
  for (const double load : loads(rails, demand)) EXPECT_LE(load, 2 + 1e-6);
  const PerRail lost = shares(rails, demand, first, 0);
  EXPECT_GT(lost[3], 0.2) << "the rail that is left on its side";
  EXPECT_NEAR(lost[4], lost[7], 1e-6);
  // Losing one of four, the other three of its side are not enough either: 3 T + (4 T − 4) / 2 = 4.
  const Uniform one({0, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_NEAR(time_of(one.rails(2), demand), 1.2, 1e-6);
  // With room on its own side nothing crosses.
  Demand few;
  few.add(first, 0, 1);
  few.add(first, 1, 1);
  const PerRail near = shares(one.rails(2), few, first, 0);
  EXPECT_NEAR(near[2] + near[3], 1, 1e-6);
}

TEST(Shares, lanes_that_are_slow_from_the_start_get_half) {
  // All memory on the first socket, and channels on all eight rails.
  Demand demand;
  for (size_t home = 0; home < 8; ++home) demand.add(0xf0, home, 1);
  const Uniform eight(std::vector<double>(8, 1));
  EXPECT_NEAR(time_of(eight.rails(2), demand), 8.0 / 6, 1e-6);
  std::vector<double> bytes(8, 0);
  for (size_t home = 0; home < 8; ++home) {
    const PerRail share = shares(eight.rails(2), demand, 0xf0, home);
    for (size_t rail = 0; rail < 8; ++rail) bytes[rail] += share[rail];
  }
  for (size_t rail = 0; rail < 8; ++rail) EXPECT_NEAR(bytes[rail], rail < 4 ? 8.0 / 6 : 4.0 / 6, 1e-5);
}

TEST(Demand, has_room_for_some_groups_and_loses_nothing) {
  Demand demand;
  for (int far = 0; far < 20; ++far) demand.add(uint8_t(far), 3, 1);
  EXPECT_EQ(demand.count, kMaxGroups);
  EXPECT_DOUBLE_EQ(demand.on(3), 20);
}

TEST(PairNics, straight_where_both_live_and_the_rest_crosswise) {
  const bool local[] = {true, false, true, true}, remote[] = {false, true, true, true};
  const auto partner = pair_nics(local, remote);
  EXPECT_EQ(partner[0], 1) << "0 is dead there and 1 here: together they make a rail";
  EXPECT_EQ(partner[1], -1);
  EXPECT_EQ(partner[2], 2);
  EXPECT_EQ(partner[3], 3);
  const bool few[] = {true}, many[] = {true, true, true};
  EXPECT_EQ(pair_nics(many, few)[0], 0);
  EXPECT_EQ(pair_nics(many, few)[1], -1) << "nobody is left for it";
}

}  // namespace
}  // namespace r2ccl::balance
