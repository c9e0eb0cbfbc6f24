// SPDX-License-Identifier: Apache-2.0
// What the busiest NIC of a schedule needs, against the shares that the engine gives the rails.
#include "r2ccl/collective/rail_load.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/planner.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

/// Four NICs of each node, of which these are lost.
std::vector<double> without(const std::vector<std::vector<size_t>>& gone, size_t rails = 4) {
  std::vector<double> nics(rails * gone.size(), 1.0);
  for (size_t node = 0; node < gone.size(); ++node)
    for (const size_t nic : gone[node]) nics[rails * node + nic] = 0;
  return nics;
}
std::vector<double> capacities_of(const std::vector<double>& nics, size_t rails = 4) {
  std::vector<double> result(nics.size() / rails);
  for (size_t i = 0; i < nics.size(); ++i) result[i / rails] += nics[i] / double(rails);
  return result;
}

void expect_same(const Traffic& one, const Traffic& other) {
  for (uint32_t from = 0; from < one.nodes(); ++from)
    for (uint32_t to = 0; to < one.nodes(); ++to)
      EXPECT_NEAR(one(from, to), other(from, to), 1e-9) << from << " to " << to;
}

TEST(Traffic, is_that_of_the_builders) {
  const std::vector<double> c{1, 0.6, 0.75, 1, 0.8, 1};
  const size_t p = c.size();
  const auto built = [&](const Schedule& schedule) {
    Traffic traffic(p);
    traffic.add_schedule(schedule);
    return traffic;
  };
  const MixFractions mix = mix_fractions(c);
  ASSERT_GT(mix.parts.size(), 2u);
  Traffic parts(p);
  for (const MixPart& part : mix.parts) parts.add_part(part);
  expect_same(parts, built(mix_allreduce(uint32_t(p), mix.parts, 2)));

  const Ranks order{0, 2, 1, 3, 5, 4};
  const UnequalRing shares = unequal_ring(c).in_order(order);
  Traffic unequal(p);
  unequal.add_unequal_ring(order, shares);
  expect_same(unequal, built(unequal_ring_allreduce(order, shares, 2)));

  const R2cclRings rings = r2ccl_rings(c, 4);
  ASSERT_GT(rings.rings.size(), 2u);
  Traffic r2ccl(p);
  r2ccl.add_r2ccl(rings.rings);
  expect_same(r2ccl, built(r2ccl_allreduce(uint32_t(p), rings.rings, 4)));
}

TEST(UnequalRing, takes_the_same_time_in_another_order) {
  const std::vector<double> c{1, 0.5, 0.75, 1, 0.75, 1};
  const Ranks order{0, 2, 1, 3, 5, 4};
  const UnequalRingShares best = unequal_ring(c);
  EXPECT_NEAR(busiest_port(unequal_ring_allreduce(order, best.in_order(order), 1), c), best.seconds, 1e-9);
}

TEST(RailsDiffer, where_two_nodes_have_lost_different_nics) {
  EXPECT_FALSE(rails_differ({}, 3));
  EXPECT_FALSE(rails_differ(without({{}, {}, {}}), 3));
  EXPECT_FALSE(rails_differ(without({{}, {1}, {}}), 3)) << "one node only";
  EXPECT_FALSE(rails_differ(without({{2}, {2}, {}}), 3));
  EXPECT_TRUE(rails_differ(without({{2}, {3}, {}}), 3));
  EXPECT_TRUE(rails_differ(without({{2}, {2, 3}, {}}), 3));
  EXPECT_FALSE(rails_differ(std::vector<double>{1, 0.5, 0.75}, 3)) << "one NIC of each node";
  std::vector<double> throttled = without({{}, {}, {}});
  throttled[0] = throttled[5] = 0.5;
  EXPECT_TRUE(rails_differ(throttled, 3));
}

TEST(RailLimits, count_the_nics_that_two_nodes_have_in_common) {
  // Nodes 1 and 2 have rails 2 and 3 in common, node 1 and node 0 rails 1, 2 and 3.
  const std::vector<double> nics = without({{}, {0}, {1}});
  const RailLimits limits(nics, 3);
  Traffic one(3);
  one.add(1, 2, 1);
  EXPECT_NEAR(limits.busiest(one), 2, 1e-9);
  EXPECT_NEAR(limits.over_ports(one), 1.5, 1e-9);
  one.add(1, 0, 0.5);
  EXPECT_NEAR(limits.busiest(one), 2, 1e-9) << "over the rail that node 2 has not";
  EXPECT_NEAR(limits.over_ports(one), 1, 1e-9);
  Traffic none(3);
  EXPECT_EQ(limits.over_ports(none), 1);
}

TEST(RailLimits, count_the_common_nics_hop_by_hop_of_a_tree) {
  // Four nodes of four NICs. Nodes 0 and 1 have lost one each, and have two in common; each has three in
  // common with the other two nodes, and these have all.
  const std::vector<double> nics = without({{0}, {1}, {}, {}});
  const RailLimits limits(nics, 4);
  EXPECT_NEAR(limits.slowest_node(), 4.0 / 3, 1e-9);
  Schedule trees;
  trees.ranks = 4;
  trees.groups.resize(2);
  const auto add = [&](uint32_t from, uint32_t to, uint16_t tree) {
    for (const auto& [a, b] : {std::pair{from, to}, std::pair{to, from}})
      trees.connections.push_back({.from = a, .to = b, .group = tree});
  };
  // 0 - 2 - 3, and 1 below 2: the ways 0 - 2 - 1 and 3 - 2 - 0.
  add(0, 2, 0);
  add(2, 3, 0);
  add(1, 2, 0);
  EXPECT_NEAR(limits.lost_on_the_way(trees), 0, 1e-9);
  // 0 - 1 - 2 - 3.
  add(0, 1, 1);
  add(1, 2, 1);
  add(2, 3, 1);
  EXPECT_NEAR(limits.lost_on_the_way(trees), 2 - 4.0 / 3, 1e-9);
  EXPECT_NEAR(limits.lost_on_a_hop(trees), 2 - 4.0 / 3, 1e-9);
}

TEST(RailLimits, say_that_two_nodes_have_no_common_rail) {
  const std::vector<double> nics = without({{0, 1}, {2, 3}, {}});
  const RailLimits limits(nics, 3);
  Traffic traffic(3);
  traffic.add(0, 1, 1);
  EXPECT_GT(limits.over_ports(traffic), RailLimits::kNoCommonRail * 0.9);
  Traffic with_the_third(3);
  with_the_third.add(0, 2, 1);
  with_the_third.add(2, 1, 1);
  EXPECT_NEAR(limits.over_ports(with_the_third), 1, 1e-9);
}

// No shares of the rails need less than the limits say, and those that are found need little more, but for
// few cases.
TEST(RailLimits, are_what_shares_of_the_rails_need) {
  std::mt19937 random(17);
  size_t exact = 0, rounds = 0;
  for (int round = 0; round < 400; ++round) {
    const size_t p = 3 + random() % 6, rails = random() % 2 == 0 ? 4 : 8;
    std::vector<double> nics(p * rails, 1.0);
    const size_t degraded = 2 + random() % 3;
    for (size_t i = 0; i < degraded; ++i)
      for (size_t lost = 1 + random() % 2; lost > 0; --lost)
        nics[(random() % p) * rails + random() % rails] = random() % 4 == 0 ? 0.5 : 0;
    if (!rails_differ(nics, p)) continue;
    const Job job{.capacities = capacities_of(nics, rails), .bytes = 1 << 20};
    const RailLimits limits(nics, p);
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kFourStage, Algorithm::kMix}) {
      const Schedule schedule = build(job, {.algorithm = algorithm, .leaves = 1});
      Traffic traffic(p);
      traffic.add_schedule(schedule);
      const double need = rails_need(schedule, nics, rails), limit = limits.over_ports(traffic);
      if (std::isinf(need)) {
        EXPECT_GT(limit, RailLimits::kNoCommonRail * 0.9);
        continue;
      }
      EXPECT_GE(need, limit * (1 - 2e-3)) << round << " " << name(algorithm);
      EXPECT_LE(need, limit * 1.5) << round << " " << name(algorithm);
      ++rounds;
      exact += need < 1.06 * limit ? 1 : 0;
    }
  }
  EXPECT_GT(rounds, 900u);
  EXPECT_GT(exact, rounds * 95 / 100);
}

}  // namespace
}  // namespace r2ccl::collective
