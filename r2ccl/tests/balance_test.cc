// The pure parts of Balance: shares, cutting of messages, and what a NIC is found to carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "r2ccl/balance/meter.h"
#include "r2ccl/balance/shares.h"

namespace r2ccl::balance {
namespace {

double sum(const PerRail& share) { return std::accumulate(share.begin(), share.end(), 0.0); }

/// What each rail carries when every channel follows shares(), in the unit of `demand`.
std::vector<double> loads(const std::vector<double>& capacity, const std::vector<double>& demand) {
  std::vector<double> load(capacity.size(), 0);
  for (size_t home = 0; home < capacity.size(); ++home) {
    const PerRail share = shares(capacity, demand, home);
    for (size_t rail = 0; rail < capacity.size(); ++rail) load[rail] += demand[home] * share[rail];
  }
  return load;
}

TEST(Shares, all_is_well_and_everything_stays_at_home) {
  const std::vector<double> capacity(8, 100), demand(8, 1);
  for (size_t home = 0; home < 8; ++home) {
    const PerRail share = shares(capacity, demand, home);
    EXPECT_DOUBLE_EQ(share[home], 1);
    EXPECT_DOUBLE_EQ(sum(share), 1);
  }
}

TEST(Shares, k_dead_rails_are_shared_by_the_living) {
  for (size_t dead = 1; dead < 8; ++dead) {
    std::vector<double> capacity(8, 1), demand(8, 1);
    std::fill_n(capacity.begin(), dead, 0);
    const auto load = loads(capacity, demand);
    for (size_t rail = 0; rail < 8; ++rail)
      EXPECT_NEAR(load[rail], rail < dead ? 0 : 8.0 / double(8 - dead), 1e-9)
          << dead << " dead, rail " << rail;
    for (size_t rail = dead; rail < 8; ++rail)
      EXPECT_DOUBLE_EQ(shares(capacity, demand, rail)[rail], 1) << "no need to move";
  }
}

TEST(Shares, load_follows_capacity_whatever_the_numbers) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const size_t rails = 1 + random() % 8;
    std::vector<double> capacity(rails), demand(rails);
    for (double& c : capacity) c = random() % 4 == 0 ? 0 : 1 + double(random() % 100);
    for (double& d : demand) d = double(random() % 5);
    const double all = std::accumulate(capacity.begin(), capacity.end(), 0.0);
    const double wanted = std::accumulate(demand.begin(), demand.end(), 0.0);
    for (size_t home = 0; home < rails; ++home) {
      const PerRail share = shares(capacity, demand, home);
      EXPECT_NEAR(sum(share), all > 0 ? 1 : 0, 1e-9);
      for (size_t rail = 0; rail < kMaxRails; ++rail) {
        EXPECT_GE(share[rail], 0);
        EXPECT_TRUE(rail < rails || share[rail] == 0);
        if (rail < rails && capacity[rail] == 0) {
          EXPECT_EQ(share[rail], 0) << "a dead rail carries nothing";
        }
      }
    }
    if (all <= 0 || wanted <= 0) continue;
    const auto load = loads(capacity, demand);
    for (size_t rail = 0; rail < rails; ++rail)
      EXPECT_NEAR(load[rail], wanted * capacity[rail] / all, 1e-6 * wanted);
  }
}

TEST(Shares, nobody_who_can_stay_moves) {
  const std::vector<double> capacity{0.25, 1, 1, 1, 1, 1, 1, 1}, demand(8, 1);
  EXPECT_NEAR(shares(capacity, demand, 0)[0], 8 * 0.25 / 7.25, 1e-9);
  for (size_t home = 1; home < 8; ++home) EXPECT_DOUBLE_EQ(shares(capacity, demand, home)[home], 1);
}

TEST(Shares, without_a_rail_there_is_nothing_to_share_and_without_demand_home_is_right) {
  const std::vector<double> none{0, 0}, two{1, 1}, idle{0, 0};
  EXPECT_EQ(sum(shares(none, idle, 0)), 0);
  EXPECT_DOUBLE_EQ(shares(two, idle, 1)[1], 1);
  const std::vector<double> other{0, 1};
  EXPECT_DOUBLE_EQ(shares(other, idle, 0)[1], 1) << "home is dead";
  EXPECT_DOUBLE_EQ(shares(two, idle, 7)[0] + shares(two, idle, 7)[1], 1) << "a home that is no rail";
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
    const size_t lanes = 1 + random() % kMaxRails;
    std::vector<double> share(lanes);
    for (double& s : share) s = double(random() % 100);
    share[random() % lanes] += 1;
    const double all = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& s : share) s /= all;
    Splitter splitter;
    splitter.set(share);
    const uint32_t bytes = Splitter::kWhole + uint32_t(random() % (2 << 20));
    const auto carried = cut(splitter, 200, bytes, random() * 4ull);
    for (size_t lane = 0; lane < lanes; ++lane)
      EXPECT_NEAR(carried[lane] / (200.0 * bytes), share[lane], 0.01)
          << "round " << round << ", lane " << lane;
  }
}

TEST(Splitter, small_messages_stay_whole_on_the_best_lane) {
  Splitter splitter;
  splitter.set(std::vector<double>{0.2, 0.5, 0.3});
  size_t most = 0;
  const auto carried = cut(splitter, 100, Splitter::kWhole - 1, 0, &most);
  EXPECT_EQ(most, 1u);
  EXPECT_EQ(carried[0] + carried[2], 0);
}

TEST(Splitter, no_more_pieces_than_are_needed) {
  Splitter splitter;
  splitter.set(std::vector<double>(8, 1.0 / 8));
  size_t most = 0;
  cut(splitter, 100, Splitter::kWhole, 64, &most);
  EXPECT_LE(most, 4u) << "64 KiB are not cut into pieces below 16 KiB";
}

TEST(Splitter, empty_messages_and_a_single_lane) {
  Splitter splitter;
  splitter.set(std::vector<double>{1});
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
      : capacities(std::vector<double>(nics, 1)), rate(nics, 1), busy(nics, 1), meters(nics) {}
  void run(uint64_t ms, double jitter = 0) {
    for (uint64_t step = 0; step < ms / 10; ++step) {
      for (size_t nic = 0; nic < rate.size(); ++nic) {
        const double late = 1 + jitter * (double(random() % 1000) / 1000 - 0.5);
        const auto work = uint64_t(10e6 * busy[nic]);
        NicMeter::Reading& it = meters[nic];
        if (work == 0) continue;
        it.bytes += uint64_t(double(work) * rate[nic] * late);
        it.completions += 8;
        it.idle_ns += 10'000'000 - work;
        it.last_done = now + 10'000'000;
      }
      now += 10'000'000;
      capacities.take(meters, now);
    }
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

// The rate of a NIC that gets only small pieces says little; it must not lose the rest of its share for that.
TEST(Capacities, a_nic_that_has_little_to_do_is_not_slow) {
  Node node(4);
  node.rate[2] = 0.2;
  node.busy[2] = 0.3;
  node.run(3000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
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

TEST(NicMeter, counts_what_is_busy_and_what_is_idle) {
  NicMeter meter;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  EXPECT_EQ(meter.posted(NicMeter::kLeastBytes - 1, now), 0) << "small ones do not count";
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 2000;
  EXPECT_EQ(meter.done(1 << 20, now), 1);
  clock = 3000;
  EXPECT_EQ(meter.done(1 << 20, now), 1);
  clock = 8000;  // 5000 idle
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 9000;
  meter.done(1 << 20, now);
  meter.abandoned(1, clock);
  const NicMeter::Reading reading = meter.read();
  EXPECT_EQ(reading.bytes, 3u << 20);
  EXPECT_EQ(reading.completions, 3u);
  EXPECT_EQ(reading.idle_ns, 5000u);
  EXPECT_EQ(reading.last_done, 9000u);
  clock = 10000;
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.read().idle_ns, 6000u) << "abandoned writes do not keep a NIC busy";
}

}  // namespace
}  // namespace r2ccl::balance
