// SPDX-License-Identifier: Apache-2.0
// The pure parts of Balance: shares, cutting of messages, and what a NIC is found to carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "r2ccl/balance/meter.h"
#include "r2ccl/balance/shares.h"
#include "r2ccl/balance/splitter.h"

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

std::vector<LaneShare> lanes(const std::vector<double>& shares) {
  std::vector<LaneShare> out;
  for (const double share : shares) out.push_back({share, false});
  return out;
}

/// Cuts `messages` messages of `bytes` and checks each; returns the bytes per lane.
std::vector<double> cut(Splitter& splitter, size_t messages, uint32_t bytes, uint64_t address,
                        size_t* most = nullptr) {
  std::vector<double> carried(splitter.lanes(), 0);
  for (size_t m = 0; m < messages; ++m) {
    std::array<Piece, kMaxRails> pieces;
    const size_t count = splitter.split(address, bytes, pieces);
    if (most) *most = std::max(*most, count);
    EXPECT_GE(count, 1u);
    uint32_t at = 0;
    unsigned lanes = 0;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(pieces[i].offset, at) << "no gap, no overlap";
      EXPECT_LT(pieces[i].lane, splitter.lanes());
      EXPECT_FALSE(lanes & 1u << pieces[i].lane) << "a lane of its own";
      lanes |= 1u << pieces[i].lane;
      EXPECT_TRUE(i == 0 || (address + at) % Splitter::kGrain == 0);
      EXPECT_TRUE(count == 1 || pieces[i].bytes >= Splitter::kLeastPiece - Splitter::kGrain);
      at += pieces[i].bytes;
      carried[pieces[i].lane] += pieces[i].bytes;
    }
    EXPECT_EQ(at, bytes);
  }
  return carried;
}

TEST(Splitter, every_byte_travels_once_and_each_lane_carries_its_share) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const size_t count = 1 + random() % kMaxRails;
    std::vector<double> share(count);
    for (double& s : share) s = double(random() % 100);
    share[random() % count] += 1;
    const double all = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& s : share) s /= all;
    Splitter splitter;
    splitter.set(lanes(share));
    const uint32_t bytes = Splitter::kWhole + uint32_t(random() % (2 << 20));
    const auto carried = cut(splitter, 200, bytes, random() * 4ull);
    for (size_t lane = 0; lane < count; ++lane)
      EXPECT_NEAR(carried[lane] / (200.0 * bytes), share[lane], 0.01)
          << "round " << round << ", lane " << lane;
  }
}

TEST(Splitter, small_messages_stay_whole_and_away_from_slow_lanes) {
  Splitter splitter;
  splitter.set(lanes({0.2, 0.5, 0.3}));
  size_t most = 0;
  const uint32_t small = Splitter::kWhole - 1;
  auto carried = cut(splitter, 1000, small, 0, &most);
  EXPECT_EQ(most, 1u);
  for (size_t lane = 0; lane < 3; ++lane)
    EXPECT_NEAR(carried[lane] / (1000.0 * small), (std::array{0.2, 0.5, 0.3}[lane]), 0.01);
  // The largest share may well be that of a slow lane: it is home.
  const std::vector<LaneShare> slow{{0.2, false}, {0.5, true}, {0.3, false}};
  splitter.set(slow);
  carried = cut(splitter, 1000, small, 0, &most);
  EXPECT_EQ(most, 1u);
  EXPECT_EQ(carried[1], 0);
  EXPECT_NEAR(carried[0] / (1000.0 * small), 0.4, 0.01);
  // It is not made up for with large ones.
  carried = cut(splitter, 100, 1 << 20, 0);
  EXPECT_NEAR(carried[1] / 100 / (1 << 20), 0.5, 0.02);
  const std::vector<LaneShare> all_slow{{0.5, true}, {0.5, true}};
  splitter.set(all_slow);
  carried = cut(splitter, 1000, small, 0);
  EXPECT_NEAR(carried[1] / (1000.0 * small), 0.5, 0.01);
}

TEST(Splitter, no_more_pieces_than_are_needed) {
  Splitter splitter;
  splitter.set(lanes(std::vector<double>(8, 1.0 / 8)));
  size_t most = 0;
  cut(splitter, 100, Splitter::kWhole, 64, &most);
  EXPECT_LE(most, 4u) << "64 KiB are not cut into pieces below 16 KiB";
}

TEST(Splitter, empty_messages_and_a_single_lane) {
  Splitter splitter;
  splitter.set(lanes({1}));
  cut(splitter, 3, 1 << 20, 5);
  std::array<Piece, kMaxRails> pieces;
  EXPECT_EQ(splitter.split(0, 0, pieces), 1u);
  EXPECT_EQ(pieces[0].bytes, 0u);
}

/// NICs with rates in bytes per ns, looked at every 10 ms. Of each interval a NIC has work for the part
/// `busy`; or, with balance(), what work there is goes to the NICs in proportion to the capacities that have
/// been found.
struct Node {
  explicit Node(size_t nics)
      : capacities(std::vector<double>(nics, 1)),
        rate(nics, 1),
        busy(nics, 1),
        depth(nics, 4),
        meters(nics) {}
  void run(uint64_t ms, double jitter = 0) {
    for (uint64_t step = 0; step < ms / 10; ++step) {
      for (size_t nic = 0; nic < rate.size(); ++nic) {
        const double late = 1 + jitter * (double(random() % 1000) / 1000 - 0.5);
        const auto work = uint64_t(10e6 * busy[nic]);
        NicMeter::Reading& it = meters[nic];
        if (work == 0) continue;
        it.bytes += uint64_t(double(work) * rate[nic] * late);
        it.work = it.bytes;
        it.completions += writes;
        it.depth += uint64_t(double(writes) * depth[nic]);
        it.idle_ns += 10'000'000 - work;
        it.last_done = now + 10'000'000;
      }
      now += 10'000'000;
      capacities.take(meters, now, {}, uint64_t(planned * double(sum())));
    }
  }
  uint64_t sum() const {
    uint64_t bytes = 0;
    for (const NicMeter::Reading& it : meters) bytes += it.bytes;
    return bytes;
  }
  /// An operation is over when its slowest NIC is.
  void balance(uint64_t ms, double jitter) {
    for (uint64_t step = 0; step < ms / 10; ++step) {
      std::vector<double> time(rate.size());
      for (size_t nic = 0; nic < rate.size(); ++nic) time[nic] = capacities.capacity(nic) / rate[nic];
      const double longest = *std::max_element(time.begin(), time.end());
      for (size_t nic = 0; nic < rate.size(); ++nic) busy[nic] = time[nic] / longest;
      run(10, jitter);
    }
  }
  Capacities capacities;
  std::vector<double> rate, busy;
  std::vector<double> depth;  // writes under way
  double planned = 0;         // part of the bytes
  uint64_t writes = 8;        // in 10 ms
  std::vector<NicMeter::Reading> meters;
  uint64_t now = 1;
  std::mt19937 random{17};
};

TEST(Capacities, a_slow_nic_is_found_within_250_ms_and_its_rate_with_it) {
  for (const double rate : {0.1, 0.25, 0.5, 0.75}) {
    Node node(8);
    node.balance(500, 0.1);
    node.rate[3] = rate;
    node.balance(250, 0.1);
    for (size_t nic = 0; nic < 8; ++nic)
      EXPECT_EQ(node.capacities.gray(nic), nic == 3) << rate << ", NIC " << nic;
    node.balance(1000, 0.1);
    EXPECT_NEAR(node.capacities.relative(3), rate, 0.1 * rate);
    node.rate[3] = 1;
    node.balance(2000, 0.1);
    EXPECT_FALSE(node.capacities.gray(3)) << "given its share back";
  }
}

TEST(Capacities, a_port_that_says_it_is_slower_is_believed_at_once) {
  const std::vector<double> nominal{100'000, 100'000};
  Capacities capacities(nominal);
  EXPECT_FALSE(capacities.at_most(1, 100'000)) << "no news";
  EXPECT_TRUE(capacities.at_most(1, 50'000));
  EXPECT_FALSE(capacities.at_most(1, 50'000));
  EXPECT_DOUBLE_EQ(capacities.capacity(1), 50'000);
  EXPECT_DOUBLE_EQ(capacities.nominal(1), 100'000) << "what traffic was spread by";
  EXPECT_TRUE(capacities.gray(1));
  EXPECT_FALSE(capacities.gray(0));
  capacities.forget(1);
  EXPECT_DOUBLE_EQ(capacities.capacity(1), 50'000) << "its port has not taken it back";
  EXPECT_TRUE(capacities.at_most(1, 200'000));
  EXPECT_DOUBLE_EQ(capacities.capacity(1), 100'000);
  EXPECT_FALSE(capacities.gray(1));
}

TEST(Capacities, what_is_measured_counts_beside_what_the_port_says) {
  Node node(4);
  node.capacities.at_most(2, 0.5);
  node.rate[2] = 0.25;
  node.balance(2000, 0.1);
  EXPECT_NEAR(node.capacities.relative(2), 0.25, 0.05);
  node.rate[2] = 0.5;
  node.balance(3000, 0.1);
  EXPECT_NEAR(node.capacities.relative(2), 0.5, 0.05);
  node.capacities.at_most(2, 1);
  node.rate[2] = 1;
  node.balance(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
  EXPECT_DOUBLE_EQ(node.capacities.relative(2), 1);
}

// The rate of a NIC that gets only small pieces says little; it must not lose the rest of its share for that.
TEST(Capacities, a_nic_that_has_little_to_do_is_not_slow) {
  Node node(4);
  node.rate[2] = 0.2;
  node.busy[2] = 0.3;
  node.run(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
}

// CollNet's schedules give NICs uneven work, and a write that waits for the other end's port keeps one under
// way all the time. A NIC that is slow has as much under way as the others, and more.
TEST(Capacities, a_nic_with_less_under_way_than_the_others_is_not_slow) {
  Node node(4);
  node.rate[2] = 0.7;
  node.depth[2] = 2.8;
  node.run(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
  node.depth[2] = 6;
  node.run(500, 0.1);
  EXPECT_TRUE(node.capacities.gray(2));
}

// Intervals do not begin with operations: in some it has done before the others.
TEST(Capacities, an_interval_that_tells_nothing_does_not_acquit_a_slow_nic) {
  Node node(4);
  node.run(500, 0.1);
  node.rate[2] = 0.7;
  for (int i = 0; i < 12; ++i) {
    node.depth[2] = i % 2 == 0 ? 6 : 2;
    node.run(50, 0.1);
  }
  EXPECT_TRUE(node.capacities.gray(2));
}

// … where most of it was sent after a plan, what is slow has twice as much.
TEST(Capacities, after_a_plan_a_slow_nic_is_where_everything_waits) {
  Node node(4);
  node.planned = 0.8;
  node.rate[2] = 0.7;
  node.depth[2] = 7;
  node.run(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
  node.depth[2] = 9;
  node.run(500, 0.1);
  EXPECT_TRUE(node.capacities.gray(2));
}

TEST(NicMeter, counts_what_is_under_way_at_each_completion) {
  NicMeter meter;
  uint64_t now = 1;
  const auto clock = [&] { return now++; };
  for (int i = 0; i < 3; ++i) meter.posted(NicMeter::kLeastBytes, clock);
  for (int i = 0; i < 3; ++i) meter.done(NicMeter::kLeastBytes, NicMeter::kLeastBytes, clock);
  EXPECT_EQ(meter.read().depth, 6u);
  EXPECT_EQ(meter.read().completions, 3u);
}

// … but what it carries in writes of 10 ms is its rate, whether or not it waits between them: given more for
// that it was well and gray in turn.
TEST(Capacities, a_gray_nic_with_long_writes_stays_gray_though_it_waits) {
  Node node(4);
  node.rate[2] = 0.5;
  node.run(1000);
  ASSERT_TRUE(node.capacities.gray(2));
  node.busy[2] = 0.7;
  node.writes = 1;
  for (int i = 0; i < 100; ++i) {
    node.run(100, 0.1);
    ASSERT_TRUE(node.capacities.gray(2)) << i;
    ASSERT_LT(node.capacities.relative(2), 0.6) << i;
  }
  node.rate[2] = 1;
  node.run(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2)) << "healed";
}

// Two of four are slow; in each operation the others have done first. What the slow ones carry then is no
// more than before, whoever else carries next to nothing, or little in small pieces.
TEST(Capacities, slow_nics_that_go_on_alone_stay_as_slow_as_they_are) {
  for (const auto& [busy, rate] : {std::pair(0.0, 1.0), std::pair(0.05, 1.0), std::pair(0.2, 0.6)}) {
    Node node(4);
    node.rate[0] = node.rate[1] = 0.5;
    node.run(1000, 0.1);
    ASSERT_TRUE(node.capacities.gray(0) && node.capacities.gray(1));
    for (int i = 0; i < 20; ++i) {
      node.busy[2] = node.busy[3] = busy;
      node.rate[2] = node.rate[3] = rate;
      node.run(600, 0.1);
      for (size_t nic = 0; nic < 2; ++nic)
        ASSERT_LT(node.capacities.relative(nic), 0.6) << busy << ", time " << i << ", NIC " << nic;
      node.busy[2] = node.busy[3] = 1;
      node.rate[2] = node.rate[3] = 1;
      node.run(300, 0.1);
    }
    node.rate[0] = node.rate[1] = 1;
    node.balance(2000, 0.1);
    for (size_t nic = 0; nic < 4; ++nic) EXPECT_FALSE(node.capacities.gray(nic)) << "healed, NIC " << nic;
  }
}

/// NICs with one write after the other, four under way; looked at every 10 ms.
struct LongWrites {
  struct Writes {
    uint64_t bytes, ns;
  };
  explicit LongWrites(std::vector<Writes> each)
      : writes(std::move(each)), capacities(std::vector<double>(writes.size(), 1)), meters(writes.size()) {}
  void pass() {
    now += 10'000'000;
    for (size_t nic = 0; nic < writes.size(); ++nic) {
      NicMeter::Reading& it = meters[nic];
      it.open = true;
      while (it.last_done + writes[nic].ns <= now) {
        it.last_done += writes[nic].ns;
        it.bytes += writes[nic].bytes;
        it.work = it.bytes;
        it.depth += 4;
        ++it.completions;
      }
    }
    capacities.take(meters, now);
  }
  std::vector<Writes> writes;
  Capacities capacities;
  std::vector<NicMeter::Reading> meters;
  uint64_t now = 1;
};

// A slow NIC whose writes take longer than an interval of the others has work all the time, though none of
// them ends in it: taken for idle, it was given ever more.
TEST(Capacities, a_write_that_takes_longer_than_an_interval_is_no_idleness) {
  const LongWrites::Writes others{100'000, 10'000'000};
  LongWrites node({{2'000'000, 400'000'000}, others, others, others});
  for (int i = 0; i < 1000; ++i) node.pass();
  ASSERT_TRUE(node.capacities.gray(0));
  for (int i = 0; i < 2000; ++i) {
    node.pass();
    ASSERT_NEAR(node.capacities.relative(0), 0.5, 0.05) << 10 * i << " ms";
  }
}

// … and one such write tells its rate.
TEST(Capacities, a_nic_that_is_slow_in_long_writes_is_found_after_two_of_them) {
  const LongWrites::Writes others{1'000'000, 20'000'000};
  LongWrites node({others, others, others, others});
  for (int i = 0; i < 100; ++i) node.pass();
  ASSERT_FALSE(node.capacities.gray(0));
  node.writes[0].ns = 200'000'000;
  int ms = 0;
  while (!node.capacities.gray(0) && ms < 2000) node.pass(), ms += 10;
  EXPECT_LE(ms, 500);
  for (int i = 0; i < 100; ++i) node.pass();
  EXPECT_NEAR(node.capacities.relative(0), 0.1, 0.02);
}

// … also when it gets next to nothing: what once was a failure does not keep it out for ever.
TEST(Capacities, a_gray_nic_that_gets_next_to_nothing_is_tried_again) {
  for (const double busy : {0.0, 0.001, 0.05}) {
    Node node(4);
    node.rate[2] = 0.05;
    node.run(1000);
    ASSERT_TRUE(node.capacities.gray(2));
    node.busy[2] = busy;
    node.run(3000);
    EXPECT_FALSE(node.capacities.gray(2)) << busy;
  }
}

TEST(Capacities, bursts_idle_nics_and_a_slow_process_are_no_failure) {
  Node node(4);
  for (int burst = 0; burst < 600; ++burst) {  // a minute
    for (double& busy : node.busy) busy = double(node.random() % 4) / 3;
    const double everybody = 0.8 + double(node.random() % 20) / 100;  // the process is late: all NICs alike
    for (double& rate : node.rate) rate = everybody;
    node.run(100, 0.1);
    for (size_t nic = 0; nic < 4; ++nic) ASSERT_FALSE(node.capacities.gray(nic)) << "burst " << burst;
  }
}

TEST(Capacities, a_nic_that_degrades_slowly_is_found) {
  Node node(4);
  for (double rate = 1; rate > 0.4; rate -= 0.01) {
    node.rate[0] = rate;
    node.balance(100, 0.05);
  }
  EXPECT_TRUE(node.capacities.gray(0));
  EXPECT_NEAR(node.capacities.relative(0), 0.4, 0.06);
}

TEST(Capacities, half_of_the_nics_may_be_slow) {
  Node node(8);
  for (size_t nic = 0; nic < 4; ++nic) node.rate[nic] = 0.5;
  node.run(600, 0.05);
  for (size_t nic = 0; nic < 8; ++nic) EXPECT_EQ(node.capacities.gray(nic), nic < 4);
}

TEST(Capacities, one_nic_alone_is_compared_with_nobody) {
  Node node(2);
  node.busy[1] = 0;
  node.rate[0] = 0.1;
  node.run(2000);
  EXPECT_FALSE(node.capacities.gray(0));
  node.capacities.forget(0);
  EXPECT_DOUBLE_EQ(node.capacities.relative(0), 1);
}

/// Readings of NICs that are busy all the time.
struct Meters {
  std::vector<NicMeter::Reading> readings;
  uint64_t now = 1;
  explicit Meters(size_t nics) : readings(nics) { pass(std::vector<double>(nics, 1), {}); }
  /// 100 ms more; `rate[i]` and `cost[i]`: bytes per ns of NIC i, and what each is in work.
  void pass(const std::vector<double>& rate, const std::vector<double>& cost) {
    now += 100'000'000;
    for (size_t nic = 0; nic < readings.size(); ++nic) {
      const auto bytes = uint64_t(rate[nic] * 100'000'000);
      readings[nic].bytes += bytes;
      readings[nic].work += uint64_t(double(bytes) * (cost.empty() ? 1 : cost[nic]));
      readings[nic].completions += 10;
      readings[nic].last_done = now;
    }
  }
};

TEST(Capacities, what_crosses_sockets_is_slower_and_no_gray_nic) {
  const std::vector<double> nominal(4, 1), rate{1, 1, 0.5, 0.5}, cost{1, 1, 2, 2};
  Capacities capacities{nominal};
  Meters meters(4);
  for (int i = 0; i < 20; ++i) meters.pass(rate, cost), capacities.take(meters.readings, meters.now);
  for (size_t nic = 0; nic < 4; ++nic) EXPECT_FALSE(capacities.gray(nic)) << nic;
  // Crossing costs nothing, but was taken to: that makes nobody else look slow.
  Capacities wrong{nominal};
  Meters fast(4);
  for (int i = 0; i < 20; ++i) fast.pass({1, 1, 1, 1}, cost), wrong.take(fast.readings, fast.now);
  for (size_t nic = 0; nic < 4; ++nic) EXPECT_FALSE(wrong.gray(nic)) << nic;
  // It costs more than was taken.
  Capacities slower{nominal};
  Meters slow(4);
  for (int i = 0; i < 20; ++i) slow.pass({1, 1, 0.25, 0.25}, cost), slower.take(slow.readings, slow.now);
  EXPECT_TRUE(slower.gray(2));
  EXPECT_NEAR(slower.relative(2), 0.5, 0.01);
}

TEST(Capacities, one_that_is_slow_whenever_it_has_work_is_tried_ever_less_often) {
  Capacities capacities{std::vector<double>(4, 1)};
  Meters meters(4);
  int found = 0, early = 0;
  bool before = false;
  for (int i = 0; i < 3000; ++i) {  // five minutes; while it is gray it gets nothing
    const NicMeter::Reading quiet = meters.readings[0];
    meters.pass({0.3, 1, 1, 1}, {});
    if (before) meters.readings[0] = quiet;
    capacities.take(meters.readings, meters.now);
    found += capacities.gray(0) && !before;
    if (i == 300) early = found;
    before = capacities.gray(0);
  }
  EXPECT_GE(found, 3) << "it is tried";
  EXPECT_LE(found, 25);
  EXPECT_LT(found - early, 9 * early) << "and less often in the end";
  // Well for good: it is believed, if late.
  for (int i = 0; i < 1000; ++i) {
    const NicMeter::Reading quiet = meters.readings[0];
    meters.pass({1, 1, 1, 1}, {});
    if (capacities.gray(0)) meters.readings[0] = quiet;
    capacities.take(meters.readings, meters.now);
  }
  EXPECT_FALSE(capacities.gray(0));
}

TEST(Capacities, a_nic_shared_with_another_process_is_no_gray_nic_unless_it_is_slow) {
  const std::vector<double> nominal(4, 1), part{0.5, 1, 1, 1};
  Capacities capacities{nominal};
  Meters meters(4);
  for (int i = 0; i < 20; ++i)
    meters.pass({0.5, 1, 1, 1}, {}), capacities.take(meters.readings, meters.now, part);
  EXPECT_FALSE(capacities.gray(0));
  // The other process is said to have work there and has none.
  for (int i = 0; i < 20; ++i)
    meters.pass({1, 1, 1, 1}, {}), capacities.take(meters.readings, meters.now, part);
  for (size_t nic = 0; nic < 4; ++nic) EXPECT_FALSE(capacities.gray(nic)) << nic;
  for (int i = 0; i < 20; ++i)
    meters.pass({0.125, 1, 1, 1}, {}), capacities.take(meters.readings, meters.now, part);
  EXPECT_TRUE(capacities.gray(0));
  EXPECT_NEAR(capacities.relative(0), 0.25, 0.01);
}

TEST(NicMeter, counts_what_is_busy_and_what_is_idle) {
  NicMeter meter;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  EXPECT_EQ(meter.posted(NicMeter::kLeastBytes - 1, now), 0) << "small ones do not count";
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 2000;
  EXPECT_EQ(meter.done(1 << 20, 2 << 20, now), 1);
  clock = 3000;
  EXPECT_EQ(meter.done(1 << 20, 2 << 20, now), 1);
  clock = 8000;  // 5000 idle
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 9000;
  meter.done(1 << 20, 2 << 20, now);
  meter.abandoned(1, clock);
  const NicMeter::Reading reading = meter.read();
  EXPECT_EQ(reading.bytes, 3u << 20);
  EXPECT_EQ(reading.work, 6u << 20);
  EXPECT_EQ(reading.completions, 3u);
  EXPECT_EQ(reading.idle_ns, 5000u);
  EXPECT_EQ(reading.last_done, 9000u);
  clock = 10000;
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 11000;
  meter.done(1 << 20, 1 << 20, now);
  EXPECT_EQ(meter.read().idle_ns, 6000u) << "abandoned writes do not keep a NIC busy";
}

TEST(NicMeter, counts_idle_time_to_the_span_in_which_it_lies) {
  NicMeter meter;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  meter.posted(1 << 20, now);
  clock = 2000;
  meter.done(1 << 20, 1 << 20, now);
  clock = 9000;  // 7000 idle behind the last completion; what is posted now is still under way
  meter.posted(1 << 20, now);
  const NicMeter::Reading first = meter.read();
  EXPECT_EQ(first.last_done, 2000u);
  EXPECT_EQ(first.idle_ns, 0u) << "from 1000 to 2000 it was busy, all the time";
  clock = 10000;
  meter.done(1 << 20, 1 << 20, now);
  const NicMeter::Reading second = meter.read();
  EXPECT_EQ(second.last_done - first.last_done, 8000u);
  EXPECT_EQ(second.idle_ns - first.idle_ns, 7000u) << "and here 1000 of 8000";
}

}  // namespace
}  // namespace r2ccl::balance
