// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/channel_limits.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using Nics = std::vector<std::vector<NicState>>;

/// Healthy, dead, slow NICs of a node.
std::vector<NicState> node(const std::vector<double>& capacities) {
  std::vector<NicState> nics;
  for (const double capacity : capacities) nics.push_back({capacity, 0});
  return nics;
}

/// Two nodes, and so many channels with their home on each NIC, in both directions.
Wiring flat(const std::vector<int>& channels) {
  Wiring wiring;
  wiring.nic_socket.assign(channels.size(), 0);
  for (uint16_t from : {0, 1})
    for (size_t nic = 0; nic < channels.size(); ++nic)
      for (int c = 0; c < channels[nic]; ++c)
        wiring.channels.push_back({from, uint16_t(1 - from), uint16_t(nic), uint16_t(nic)});
  return wiring;
}

double migrate(const Wiring& wiring, const std::vector<double>& node1) {
  const std::vector<double> whole(node1.size(), 1.0);
  return channel_limit(ModeKind::kMigrate, {node(whole), node(node1)}, wiring);
}

TEST(ChannelLimit, a_healthy_job_keeps_everything) {
  for (const ModeKind mode : {ModeKind::kBaseline, ModeKind::kMigrate})
    EXPECT_DOUBLE_EQ(channel_limit(mode, Nics(2, node({1, 1, 1, 1})), flat({1, 1, 1, 1})), 1);
  EXPECT_DOUBLE_EQ(migrate(flat({0, 0}), {1, 0}), 1) << "without channels";
}

TEST(ChannelLimit, single_channels_go_as_wholes) {
  EXPECT_DOUBLE_EQ(migrate(flat({1, 1, 1, 1}), {0, 1, 1, 1}), 0.5);
  EXPECT_DOUBLE_EQ(migrate(flat({1, 1, 1, 1}), {0, 0, 1, 1}), 0.5);
  EXPECT_DOUBLE_EQ(migrate(flat({1, 1, 1, 1}), {0, 0, 0, 1}), 0.25);
  EXPECT_DOUBLE_EQ(migrate(flat({1, 0}), {1, 0}), 1);
  EXPECT_DOUBLE_EQ(migrate(flat({1, 0}), {0, 1}), 1);
  EXPECT_DOUBLE_EQ(migrate(flat({1, 1}), {0, 0}), 0);
}

TEST(ChannelLimit, channels_of_a_dead_nic_go_to_several_others) {
  EXPECT_DOUBLE_EQ(migrate(flat({2, 2, 2, 2}), {0, 1, 1, 1}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(migrate(flat({8, 8, 8, 8}), {0, 1, 1, 1}), 8.0 / 11);
  EXPECT_DOUBLE_EQ(migrate(flat({3, 3, 3, 3}), {0, 0, 1, 1}), 3.0 / 6);
  EXPECT_DOUBLE_EQ(migrate(flat({3, 3, 2, 2, 2, 0, 0}), {0, 0, 0, 0, 0, 1, 1}), 3.0 / 6);
  EXPECT_DOUBLE_EQ(migrate(flat({2, 2}), {0, 1}), 0.5);
}

TEST(ChannelLimit, a_slow_nic_keeps_its_own_and_takes_others_only_where_it_pays) {
  EXPECT_DOUBLE_EQ(migrate(flat({1, 1, 1, 1}), {0.1, 1, 1, 1}), 0.1);
  EXPECT_DOUBLE_EQ(migrate(flat({0, 4, 4}), {0.25, 0, 1}), 4.0 / 7) << "one on the slow NIC, three on nic2";
}

TEST(ChannelLimit, baseline_ends_with_a_dead_nic_or_a_lost_queue_pair) {
  Nics nics(2, node({1, 1}));
  nics[1][0].capacity = 0.5;
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kBaseline, nics, flat({1, 1})), 0.5);
  nics[1][0] = {1, 1};
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kBaseline, nics, flat({1, 1})), 0);
  nics[1][0] = {0, 0};
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kBaseline, nics, flat({1, 1})), 0);
}

// Channels of 3, 3, 2, 2 and 2 on two idle NICs: 3 + 3 and 2 + 2 + 2. The longest first to whoever is free
// gives 7; an exchange mends it.
TEST(ChannelLimit, unequal_channels_find_their_places) {
  Wiring wiring = flat({1, 1, 1, 1, 1, 0, 0});
  for (Connection& c : wiring.channels) c.demand = c.tx_nic < 2 ? 3 : 2;
  EXPECT_DOUBLE_EQ(migrate(wiring, {0, 0, 0, 0, 0, 1, 1}), 3.0 / 6);
}

// Three senders, and a receiver that has lost a NIC: senders that each look at their own ports alone would
// all go to the same one.
TEST(ChannelLimit, the_receivers_ports_count_too) {
  Wiring wiring;
  wiring.nic_socket.assign(4, 0);
  for (uint16_t from : {0, 1, 2})
    for (uint16_t nic = 0; nic < 4; ++nic) wiring.channels.push_back({from, 3, nic, nic});
  Nics nics(4, node({1, 1, 1, 1}));
  nics[3][0].capacity = 0;
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kMigrate, nics, wiring), 3.0 / 4);
}

TEST(ChannelLimit, a_straight_rail_keeps_the_distance_that_the_homes_have) {
  Wiring wiring;
  wiring.nic_socket.assign(3, 0);
  wiring.channels = {{0, 1, 0, 1}};  // nic0 to nic1: the other rails are nic1 to nic2, nic2 to nic0
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kMigrate, {node({0, 1, 1}), node({1, 1, 1})}, wiring), 1);
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kMigrate, {node({0, 1, 0.5}), node({1, 1, 0})}, wiring), 0.5)
      << "nic2 to nic0 though it is slow, not nic1 to nic0";
  EXPECT_DOUBLE_EQ(channel_limit(ModeKind::kMigrate, {node({0, 1, 0}), node({1, 1, 0})}, wiring), 1)
      << "a cross rail";
}

/// A channel on each of eight NICs, with memory on socket 0, or on the NIC's own.
Wiring two_sockets(bool near) {
  Wiring wiring = flat({1, 1, 1, 1, 1, 1, 1, 1});
  wiring.nic_socket = {0, 0, 0, 0, 1, 1, 1, 1};
  wiring.far_cost = 2;
  for (Connection& c : wiring.channels) c.from_socket = c.to_socket = near ? c.tx_nic / 4 : 0;
  return wiring;
}

TEST(ChannelLimitWithSockets, crossing_costs) {
  // Three of four near NICs lost: one to the near one and one each to two far ones, or two and one: three on
  // the busiest.
  EXPECT_DOUBLE_EQ(migrate(two_sockets(true), {0, 0, 0, 1, 1, 1, 1, 1}), 1.0 / 3);
}

TEST(ChannelLimitWithSockets, what_is_far_from_the_start_is_slow_before_and_after) {
  EXPECT_DOUBLE_EQ(migrate(two_sockets(false), {1, 1, 1, 1, 1, 1, 1, 1}), 1);
  // A far NIC lost: its channel moves to a near one, which is then as slow as the far ones are.
  EXPECT_DOUBLE_EQ(migrate(two_sockets(false), {1, 1, 1, 1, 0, 1, 1, 1}), 1);
  EXPECT_DOUBLE_EQ(migrate(two_sockets(false), {0, 1, 1, 1, 1, 1, 1, 1}), 1);
}

}  // namespace
}  // namespace r2bench
