// SPDX-License-Identifier: Apache-2.0
// Every builder's schedules compute their collective; damaged ones are rejected.
#include "r2ccl/collective/checker.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"

namespace r2ccl::collective {
namespace {

/// `degraded` nodes with capacities below 1, spread over the nodes.
std::vector<double> capacities(uint32_t ranks, std::vector<double> degraded) {
  std::vector<double> result(ranks, 1);
  for (size_t i = 0; i < degraded.size() && i < ranks; ++i) result[(1 + i * 3) % ranks] = degraded[i];
  return result;
}

/// All builders for so many ranks, with one degraded node and with several.
std::vector<Schedule> all_schedules(uint32_t ranks, uint32_t segments) {
  std::vector<Schedule> all;
  Ranks order = natural_order(ranks), turned(order.rbegin(), order.rend());
  for (const uint32_t depth : {1u, 2u}) all.push_back(ring_allreduce(order, segments, depth));
  all.push_back(ring_allreduce(turned, segments));
  all.push_back(double_tree_allreduce(ranks, segments));
  all.push_back(ring_allgather(turned, segments));
  all.push_back(ring_reduce_scatter(turned, segments));
  all.push_back(chain_broadcast(turned, segments));
  if (ranks <= 16) all.push_back(direct_alltoall(ranks, segments));
  for (const auto& degraded : std::vector<std::vector<double>>{
           {0.5}, {0.875}, {0.25, 0.5}, {0.5, 0.5, 0.75}, {0.1, 0.2, 0.3, 0.4, 0.9}}) {
    if (degraded.size() > ranks) continue;
    const std::vector<double> c = capacities(ranks, degraded);
    all.push_back(unequal_ring_allreduce(order, unequal_ring(c).shares, segments));
    all.push_back(mix_allreduce(ranks, mix_fractions(c).parts, segments));
    all.push_back(r2ccl_allreduce(ranks, r2ccl_rings(c, segments).rings, segments));
    const Ranks sorted = by_capacity(c);
    const size_t leaves = std::min<size_t>(degraded.size(), ranks - 1);
    all.push_back(four_stage_allreduce(Ranks(sorted.begin() + static_cast<long>(leaves), sorted.end()),
                                       Ranks(sorted.begin(), sorted.begin() + static_cast<long>(leaves)),
                                       segments));
    if (ranks <= 16 || segments <= 3) all.push_back(direct_allreduce(direct_shares(c).shares, segments));
  }
  for (const uint32_t depth : {1u, 3u})
    if (ranks <= 16) all.push_back(direct_allreduce(std::vector<double>(ranks, 1), segments, depth));
  for (const uint32_t per_node : {1u, 2u}) {
    if (ranks % per_node == 0 && ranks / per_node >= 3)
      all.push_back(upstream_allreduce(ranks / per_node, per_node, 1.0 / 3, segments));
  }
  return all;
}

void expect_right(const std::vector<Schedule>& schedules, uint32_t segments) {
  for (const Schedule& schedule : schedules) {
    const Result<void> result = check(schedule);
    EXPECT_TRUE(result.ok()) << schedule.name << " " << name(schedule.collective) << ", " << schedule.ranks
                             << " ranks, " << segments << " segments: " << result.error().message;
  }
}

TEST(Checker, accepts_every_builder) {
  for (const uint32_t ranks : {2u, 3u, 4u, 5u, 7u, 8u, 13u, 16u}) {
    for (const uint32_t segments : {1u, 2u, 5u}) expect_right(all_schedules(ranks, segments), segments);
  }
  expect_right(all_schedules(33, 2), 2);
  expect_right(all_schedules(64, 1), 1);
}

TEST(CheckerLong, accepts_every_builder_from_2_to_64_ranks) {
  for (uint32_t ranks = 2; ranks <= 64; ++ranks) {
    for (const uint32_t segments : {1u, 3u, 16u}) expect_right(all_schedules(ranks, segments), segments);
  }
}

struct Rejections {
  int tried = 0, rejected = 0;
  std::string accepted;  // the first that was not
};

/// Damages each operation in turn and counts what the checker says.
Rejections damage(const Schedule& good, const std::function<bool(Schedule&, Lane&, size_t)>& mutate) {
  Rejections result;
  for (uint32_t rank = 0; rank < good.ranks; ++rank) {
    for (size_t lane = 0; lane < good.lanes[rank].size(); ++lane) {
      for (size_t op = 0; op < good.lanes[rank][lane].ops.size(); ++op) {
        Schedule bad = good;
        if (!mutate(bad, bad.lanes[rank][lane], op)) continue;
        ++result.tried;
        if (!check(bad).ok()) {
          ++result.rejected;
        } else if (result.accepted.empty()) {
          result.accepted = good.name + " " + name(good.collective) + ", rank " + std::to_string(rank) +
                            ", lane " + std::to_string(lane) + ", operation " + std::to_string(op);
        }
      }
    }
  }
  return result;
}

Lane& other_end(Schedule& schedule, const Lane& lane) {
  const Connection& connection = schedule.connections[lane.connection];
  return lane.sends ? schedule.lanes[connection.to][connection.to_lane]
                    : schedule.lanes[connection.from][connection.from_lane];
}

class Mutation : public testing::TestWithParam<uint32_t> {
 protected:
  void expect_all_rejected(const std::function<bool(Schedule&, Lane&, size_t)>& mutate) {
    for (const Schedule& good : all_schedules(GetParam(), 2)) {
      const Rejections result = damage(good, mutate);
      EXPECT_EQ(result.tried, result.rejected) << result.accepted;
      EXPECT_GT(result.tried, 0) << good.name;
    }
  }
};

TEST_P(Mutation, rejects_a_dropped_operation) {
  expect_all_rejected([](Schedule&, Lane& lane, size_t op) {
    lane.ops.erase(lane.ops.begin() + static_cast<long>(op));
    return true;
  });
}

TEST_P(Mutation, rejects_an_operation_dropped_at_both_ends) {
  expect_all_rejected([](Schedule& schedule, Lane& lane, size_t op) {
    if (!lane.sends) return false;
    Lane& other = other_end(schedule, lane);
    lane.ops.erase(lane.ops.begin() + static_cast<long>(op));
    other.ops.erase(other.ops.begin() + static_cast<long>(op));
    return true;
  });
}

TEST_P(Mutation, rejects_a_repeated_operation) {
  expect_all_rejected([](Schedule&, Lane& lane, size_t op) {
    lane.ops.insert(lane.ops.begin() + static_cast<long>(op), lane.ops[op]);
    return true;
  });
}

TEST_P(Mutation, rejects_an_operation_repeated_at_both_ends) {
  expect_all_rejected([](Schedule& schedule, Lane& lane, size_t op) {
    if (!lane.sends) return false;
    Lane& other = other_end(schedule, lane);
    lane.ops.insert(lane.ops.begin() + static_cast<long>(op), lane.ops[op]);
    other.ops.insert(other.ops.begin() + static_cast<long>(op), other.ops[op]);
    return true;
  });
}

TEST_P(Mutation, rejects_another_chunk) {
  expect_all_rejected([](Schedule& schedule, Lane& lane, size_t op) {
    const uint32_t chunks = schedule.part_of(lane).chunks_per_segment();
    lane.ops[op].chunk = (lane.ops[op].chunk + 1) % std::max(chunks, 2u);
    return true;
  });
}

TEST_P(Mutation, rejects_another_chunk_at_both_ends) {
  expect_all_rejected([](Schedule& schedule, Lane& lane, size_t op) {
    const uint32_t chunks = schedule.part_of(lane).chunks_per_segment();
    if (!lane.sends) return false;
    other_end(schedule, lane).ops[op].chunk = lane.ops[op].chunk =
        (lane.ops[op].chunk + 1) % std::max(chunks, 2u);
    return true;
  });
}

TEST_P(Mutation, rejects_another_kind) {
  for (const Schedule& good : all_schedules(GetParam(), 2)) {
    if (good.collective != Collective::kAllReduce) continue;  // adding to nothing is receiving
    const Rejections result = damage(good, [](Schedule&, Lane& lane, size_t op) {
      if (lane.sends) return false;
      lane.ops[op].kind = lane.ops[op].kind == OpKind::kRecvReduce ? OpKind::kRecvCopy : OpKind::kRecvReduce;
      return true;
    });
    EXPECT_EQ(result.tried, result.rejected) << result.accepted;
    EXPECT_GT(result.tried, 0) << good.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mutation, testing::Values(2, 5));

/// Not: the waits by which the tail begins after stage 1, which are for time and not for the result.
bool for_time_only(const Schedule& schedule, const Lane& lane, const Wait& wait) {
  return wait.last && lane.sends && (schedule.name == "R2CCL-AllReduce" || schedule.name == "upstream");
}

TEST_P(Mutation, rejects_a_dropped_wait) {
  for (const size_t which : {size_t{0}, size_t{1}}) {
    for (const Schedule& good : all_schedules(GetParam(), 2)) {
      const Rejections result = damage(good, [which](Schedule& schedule, Lane& lane, size_t op) {
        Wait& wait = lane.ops[op].waits[which];
        if (wait.none() || for_time_only(schedule, lane, wait)) return false;
        wait = Wait{};
        return true;
      });
      EXPECT_EQ(result.tried, result.rejected) << result.accepted;
    }
  }
}

TEST(Checker, rejects_connections_without_credits) {
  for (const Schedule& good : all_schedules(5, 2)) {
    for (size_t i = 0; i < good.connections.size(); ++i) {
      Schedule bad = good;
      bad.connections[i].credits = 0;
      const Result<void> result = check(bad);
      ASSERT_FALSE(result.ok()) << good.name;
      EXPECT_NE(result.error().message.find("deadlock"), std::string::npos) << result.error().message;
    }
  }
}

// Rank 0 sends two chunks ahead on one connection, then one on another, for which the receiver waits first.
TEST(Checker, finds_the_deadlock_of_one_credit_too_few) {
  ScheduleBuilder builder("two credits", Collective::kBroadcast, 2);
  const uint16_t part = builder.add_part(1, 1, 3), group = builder.add_group("all");
  const uint32_t ahead = builder.connect(0, 1, part, group, 2), after = builder.connect(0, 1, part, group, 2);
  builder.send(ahead, 0);
  const OpRef second = builder.send(ahead, 1);
  builder.send(after, 2, second.same());
  const OpRef first_wanted = builder.recv(after, OpKind::kRecv, 2);
  builder.recv(ahead, OpKind::kRecv, 0, first_wanted.same());
  builder.recv(ahead, OpKind::kRecv, 1);
  Schedule schedule = builder.finish();
  EXPECT_TRUE(check(schedule).ok()) << check(schedule).error().message;
  schedule.connections[ahead].credits = 1;
  EXPECT_NE(check(schedule).error().message.find("deadlock"), std::string::npos);
}

TEST(Checker, rejects_ranks_that_there_are_not) {
  Schedule broadcast = chain_broadcast(natural_order(3), 2);
  broadcast.root = 3;
  EXPECT_FALSE(check(broadcast).ok());
  broadcast.root = 1'000'000;
  EXPECT_FALSE(check(broadcast).ok());
  for (const auto of : {&Schedule::owner, &Schedule::origin}) {
    Schedule exchange = direct_alltoall(3, 2);
    (exchange.*of)[0] = 1'000'000;
    EXPECT_FALSE(check(exchange).ok());
    exchange = direct_alltoall(3, 2);
    (exchange.*of).pop_back();
    EXPECT_FALSE(check(exchange).ok());
  }
}

TEST(Checker, rejects_a_partial_result_that_is_copied) {
  ScheduleBuilder builder("partial", Collective::kAllReduce, 3);
  const uint16_t part = builder.add_part(1, 1, 1), group = builder.add_group("all");
  const uint32_t in = builder.connect(0, 1, part, group), out = builder.connect(1, 2, part, group);
  builder.send(in, 0);
  const OpRef added = builder.recv(in, OpKind::kRecvReduce, 0);
  builder.send(out, 0, added.same());
  builder.recv(out, OpKind::kRecvCopy, 0);
  EXPECT_NE(check(builder.finish()).error().message.find("partial"), std::string::npos);
}

}  // namespace
}  // namespace r2ccl::collective
