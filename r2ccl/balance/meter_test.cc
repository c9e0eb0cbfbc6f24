// SPDX-License-Identifier: Apache-2.0
// What a NIC is found to carry.
#include "r2ccl/balance/meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "r2ccl/balance/testing/meter_node.h"

namespace r2ccl::balance {
namespace {

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

// Completions come in bursts if the process notices them late: single intervals show more than the NIC
// carries.
TEST(Capacities, the_most_that_a_nic_has_carried_is_known_after_some_intervals) {
  Node node(2);
  node.rate = {0.5, 0.25};
  node.run(1500);
  EXPECT_EQ(node.capacities.most_carried(0), 0);
  node.run(20'000, 0.9);
  EXPECT_NEAR(node.capacities.most_carried(0), 0.5, 0.02);
  EXPECT_NEAR(node.capacities.most_carried(1), 0.25, 0.01);
  node.rate[0] = 0.1;
  node.busy[1] = 0.1;  // only while it has work
  node.run(20'000);
  EXPECT_NEAR(node.capacities.most_carried(0), 0.5, 0.02);
  EXPECT_NEAR(node.capacities.most_carried(1), 0.25, 0.01);
  node.rate[0] = 0.8;
  node.run(10'000);
  EXPECT_NEAR(node.capacities.most_carried(0), 0.8, 0.01);
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

TEST(Capacities, a_nic_that_carries_what_a_plan_expects_of_it_is_not_gray_beyond_that) {
  Capacities capacities(std::vector<double>{1, 1});
  EXPECT_FALSE(capacities.gray_beyond(0, 1));
  capacities.at_most(0, 0.5);
  ASSERT_TRUE(capacities.gray(0));
  EXPECT_TRUE(capacities.gray_beyond(0, 1));
  EXPECT_TRUE(capacities.gray_beyond(0, 0.6));
  EXPECT_FALSE(capacities.gray_beyond(0, 0.55));
  EXPECT_FALSE(capacities.gray_beyond(0, 0.5));
  EXPECT_FALSE(capacities.gray_beyond(0, 0.1));
  EXPECT_FALSE(capacities.gray_beyond(1, 1));
}

}  // namespace
}  // namespace r2ccl::balance
