// SPDX-License-Identifier: Apache-2.0
// Which intervals say something of a NIC, and where plans make all NICs keep the pace of one.
#include "r2ccl/balance/meter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "r2ccl/balance/testing/meter_node.h"

namespace r2ccl::balance {
namespace {

/// In which NIC 2 has as much under way as the others, and more, or less.
void interval(Node& node, bool tells) {
  node.depth[2] = tells ? 6 : 2;
  node.run(50, 0.1);
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
  for (int i = 0; i < 12; ++i) interval(node, i % 2 == 0);
  EXPECT_TRUE(node.capacities.gray(2));
}

// It has little to do, and now and then the process lacks a core, so that its writes seem to wait.
TEST(Capacities, single_intervals_that_are_far_apart_make_no_nic_slow) {
  Node node(4);
  node.run(500, 0.1);
  node.rate[2] = 0.3;
  for (int i = 0; i < 1000; ++i) {
    interval(node, i % 10 == 0);
    ASSERT_FALSE(node.capacities.gray(2)) << i;
  }
}

// In most intervals a NIC that is far slower works alone: the others have done long before. These say nothing of
// it, for nor against.
TEST(Capacities, a_nic_that_works_alone_for_most_of_each_operation_is_found) {
  Node node(8);
  node.run(500, 0.1);
  node.rate[2] = 0.01;
  int operations = 0;
  for (; operations < 20 && !node.capacities.gray(2); ++operations) {
    std::fill(node.busy.begin(), node.busy.end(), 1);
    node.run(10, 0.1);  // what the others have to do
    std::fill(node.busy.begin(), node.busy.end(), 0);
    node.busy[2] = 1;
    node.run(990, 0.1);  // 10 ms at 0.01 of the rate
  }
  EXPECT_LE(operations, 4);
}

// Nor do they show that one is still slow.
TEST(Capacities, a_slow_nic_shows_it_anew_by_intervals_that_are_close_to_each_other) {
  Node node(4);
  node.run(500, 0.1);
  node.rate[2] = 0.5;
  node.depth[2] = 6;
  node.run(500, 0.1);
  ASSERT_TRUE(node.capacities.gray(2));
  const uint64_t before = node.capacities.shown_slow(2);
  for (int i = 0; i < 100; ++i) {
    node.depth[2] = i % 10 == 9 ? 6 : 2;
    node.run(50, 0.1);
  }
  EXPECT_EQ(node.capacities.shown_slow(2), before);
  node.depth[2] = 6;
  node.run(50 * 3 * Capacities::kLow, 0.1);
  EXPECT_GE(node.capacities.shown_slow(2), before + 2);
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

// However slow: a rank that lacks a core finds that, too, a few times in a row. But it finds no queue.
TEST(Capacities, it_takes_more_to_call_a_nic_slow_where_all_plan_by_that) {
  const auto found_after = [](bool for_plans, double depth) {
    Node node(4);
    if (for_plans) node.capacities.find_for_plans();
    node.run(1000, 0.1);
    node.rate[2] = 0.3;
    node.depth[2] = depth * node.depth[1];
    int intervals = 0;
    for (; intervals < 20 && !node.capacities.gray(2); ++intervals) node.run(50, 0.1);
    return intervals;
  };
  EXPECT_LE(found_after(false, 1), 3);
  EXPECT_LE(found_after(false, 2), 3);
  EXPECT_LE(found_after(true, 2), 3);
  EXPECT_GE(found_after(true, 1), Capacities::kLowForPlans);
  EXPECT_LE(found_after(true, 1), Capacities::kLowForPlans + 1);
}

// A plan has all NICs keep the pace of the slowest one: it shows by its queue alone.
TEST(Capacities, under_a_plan_the_nic_that_all_others_wait_for_is_slow_where_that_is_asked_for) {
  const auto slow = [](double planned, double depth, bool asked) {
    Node node(4);
    node.planned = planned;
    if (asked) node.capacities.find_for_plans();
    std::fill(node.depth.begin(), node.depth.end(), 1.5);
    node.depth[2] = depth;
    node.run(500, 0.1);
    for (const size_t other : {0, 1, 3}) EXPECT_FALSE(node.capacities.gray(other)) << depth;
    return node.capacities.gray(2);
  };
  EXPECT_TRUE(slow(0.8, 6, true));
  EXPECT_FALSE(slow(0.8, 4, true)) << "a byte waits less than three times as long";
  EXPECT_FALSE(slow(0.2, 6, true)) << "most traffic follows no plan: a NIC may just have more to do";
  EXPECT_FALSE(slow(0.8, 6, false));
}

// Where completions are noticed late a plan's small writes have a low rate, and are under way for as long as others.
TEST(Capacities, small_writes_that_are_noticed_late_are_no_queue) {
  Node node(4);
  node.planned = 1;
  node.capacities.find_for_plans();
  node.rate[2] = 0.2;
  node.run(2000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
}

// … and its rate is no more than what a byte takes on it, compared with its whole way on the others.
TEST(Capacities, a_nic_that_all_others_wait_for_carries_what_its_queue_says) {
  Node node(4);
  node.planned = 1;
  node.capacities.find_for_plans();
  std::fill(node.depth.begin(), node.depth.end(), 1.0);
  node.rate[2] = 0.5;  // by its rate while busy
  node.depth[2] = 8;
  node.run(2000, 0.1);
  EXPECT_NEAR(node.capacities.relative(2), 0.5, 0.1);
  node.rate[2] = 1;  // … and at the pace of all
  node.run(2000, 0.1);
  EXPECT_NEAR(node.capacities.relative(2), Capacities::kBottleneck, 0.1);
  node.depth[2] = 1;
  node.run(2000, 0.1);
  EXPECT_FALSE(node.capacities.gray(2));
}

}  // namespace
}  // namespace r2ccl::balance
