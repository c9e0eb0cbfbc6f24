// SPDX-License-Identifier: Apache-2.0
// Several groups of one process, each with a plan of its own, and one that has ended.
#include "r2ccl/path/plan_knowledge.h"

#include <gtest/gtest.h>

#include <array>

namespace r2ccl {
namespace {

constexpr std::array<double, 2> kBytesPerNs{1, 2};
constexpr size_t kWindow = 16 << 20;

TEST(PlanKnowledge, is_each_groups_own_and_the_queue_is_that_of_all) {
  for (const bool knows_first : {false, true}) {
    PlanKnowledge all;
    all.set_rates(kBytesPerNs);
    PlanKnowledge::Plan* const one = all.begin();
    PlanKnowledge::Plan* const other = all.begin();
    EXPECT_EQ(all.queue_ns(0), 0u);
    // Whoever speaks last.
    if (knows_first) all.knows(one, 0, 0.25, kWindow);
    all.knows(other, 0, 1, 2 * kWindow);
    if (!knows_first) all.knows(one, 0, 0.25, kWindow);
    EXPECT_EQ(one->carries(0), 0.25);
    EXPECT_EQ(other->carries(0), 1);
    EXPECT_EQ(all.queue_ns(0), 4 * 3 * kWindow) << "both have messages there, at a quarter of the rate";
    EXPECT_EQ(one->carries(1), 1);
    EXPECT_EQ(all.queue_ns(1), 0u);
    all.knows(other, 0, 0.5, 2 * kWindow);
    EXPECT_EQ(all.queue_ns(0), 4 * 3 * kWindow) << "no faster than any of them knows";
    all.knows(one, 0, 1, kWindow);
    EXPECT_EQ(all.queue_ns(0), 2 * 3 * kWindow);
  }
}

TEST(PlanKnowledge, of_a_group_that_has_ended_counts_no_more) {
  PlanKnowledge all;
  all.set_rates(kBytesPerNs);
  PlanKnowledge::Plan* const one = all.begin();
  PlanKnowledge::Plan* const other = all.begin();
  all.knows(one, 1, 0.25, kWindow);
  all.knows(other, 1, 0.5, kWindow);
  all.end(one);
  EXPECT_EQ(all.queue_ns(1), kWindow) << "half of twice the rate, for one group's messages";
  all.end(other);
  EXPECT_EQ(all.queue_ns(1), 0u);
  PlanKnowledge::Plan* const next = all.begin();
  EXPECT_EQ(next->carries(1), 1);
  all.knows(next, 0, 0.125, kWindow);
  EXPECT_EQ(all.queue_ns(0), 8 * kWindow);
}

}  // namespace
}  // namespace r2ccl
