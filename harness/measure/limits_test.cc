// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/limits.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using Capacity = std::vector<std::vector<double>>;

/// So many channels on each NIC, and one socket.
NodeLoad flat(const std::vector<double>& channels) {
  NodeLoad load;
  for (const double on_nic : channels) load.demand.push_back({on_nic});
  load.nic_socket.assign(channels.size(), 0);
  return load;
}

TEST(SharedLimit, is_what_the_nics_carry_together) {
  const NodeLoad load = flat({1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(shared_limit(Capacity(2, {1, 1, 1, 1}), load), 1);
  EXPECT_DOUBLE_EQ(shared_limit({{0.1, 1, 1, 1}}, load), 3.1 / 4);
  EXPECT_DOUBLE_EQ(shared_limit({{1, 1, 1, 1}, {0, 1, 1, 1}}, load), 0.75);
  EXPECT_DOUBLE_EQ(shared_limit({{0, 0}}, flat({1, 1})), 0);
}

TEST(AllReduceLimit, is_the_bound_beside_the_healthy_ring) {
  const NodeLoad load = flat({1, 1, 1, 1});
  const auto nodes = [](size_t count, std::vector<double> first) {
    Capacity all(count, {1, 1, 1, 1});
    all[0] = std::move(first);
    return all;
  };
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(4, {1, 1, 1, 1}), load), 1);
  // x = 1/4, 4 nodes: the bound is 6/3.75, the ring's 6/4.
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(4, {0, 1, 1, 1}), load), 3.75 / 4);
  // x = 1/2: the node's own data, 1/0.5 = 2, is the limit from 2 · 3/3.5 on.
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(4, {0, 0, 1, 1}), load), 1.5 / 2);
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(3, {0.5, 0.5, 1, 1}), load), 2.75 / 3);
  // Two nodes cannot help each other.
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(2, {0, 1, 1, 1}), load), 0.75);
  EXPECT_DOUBLE_EQ(allreduce_limit({{0, 1, 1, 1}, {0.5, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}, load),
                   (0.75 + 0.875 + 2) / 4);
  EXPECT_DOUBLE_EQ(allreduce_limit(nodes(4, {0, 0, 0, 0}), load), 0);
}

/// A rank per socket, each with a channel on each NIC of its own socket; the sockets' NICs in blocks.
NodeLoad near_homes(int nics, double far_cost, int sockets = 2) {
  NodeLoad load;
  load.far_cost = far_cost;
  for (int k = 0; k < nics; ++k) {
    load.nic_socket.push_back(k * sockets / nics);
    load.demand.emplace_back(size_t(sockets), 0.0);
    load.demand.back()[size_t(load.nic_socket.back())] = 1;
  }
  return load;
}

TEST(SharedLimitWithSockets, balance_fills_near_nics_first_and_takes_the_rest_across) {
  // Three of four near NICs lost: four units on one near NIC and, at twice the cost, on four that have four
  // of their own. Two stay, two cross: 4 + 2 * 2 on four NICs.
  const Capacity lost = {{1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 1, 1}};
  EXPECT_DOUBLE_EQ(shared_limit(lost, near_homes(8, 2)), 0.5);
  EXPECT_DOUBLE_EQ(shared_limit(lost, near_homes(8, 1)), 5.0 / 8);
}

TEST(SharedLimitWithSockets, what_is_far_from_the_start_is_slow_before_and_after) {
  // All memory on socket 0, a channel on each of eight NICs: four lanes at half rate.
  NodeLoad load = near_homes(8, 2);
  for (auto& nic : load.demand) nic = {1, 0};
  EXPECT_DOUBLE_EQ(least_time({8, 0}, std::vector<double>(8, 1.0), load.nic_socket, 2), 8.0 / 6);
  // Balance had 6 of 8 before, and has 5.5 after.
  EXPECT_DOUBLE_EQ(shared_limit({{1, 1, 1, 1, 0, 1, 1, 1}}, load), 5.5 / 6);
}

TEST(SharedLimitWithSockets, idle_far_nics_may_make_up_for_all) {
  NodeLoad load = near_homes(8, 2);
  for (size_t k = 0; k < 8; ++k) load.demand[k] = {k < 4 ? 1.0 : 0.0, 0};
  EXPECT_DOUBLE_EQ(shared_limit({{0, 1, 1, 1, 1, 1, 1, 1}}, load), 1);
  EXPECT_DOUBLE_EQ(shared_limit({{0, 0, 0, 1, 1, 1, 1, 1}}, load), 3.0 / 4);
}

TEST(SharedLimitWithSockets, a_socket_without_nics_and_a_node_without_any) {
  EXPECT_DOUBLE_EQ(least_time({1, 1}, {1, 1}, {0, 0}, 2), 1.5);
  EXPECT_DOUBLE_EQ(least_time({0, 0}, {1, 1}, {0, 1}, 2), 0);
  EXPECT_DOUBLE_EQ(shared_limit({{0, 0}}, near_homes(2, 2)), 0);
}

}  // namespace
}  // namespace r2bench
