// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/open_time.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

TEST(OpenTime, runs_only_inside_intervals) {
  const OpenTime open({{100, 200}, {300, 400}});
  EXPECT_EQ(open.elapsed(50), 0u);
  EXPECT_EQ(open.elapsed(150), 50u);
  EXPECT_EQ(open.elapsed(250), 100u);
  EXPECT_EQ(open.elapsed(301), 101u);
  EXPECT_EQ(open.elapsed(1000), 200u);
  EXPECT_EQ(open.total(), 200u);
  EXPECT_TRUE(open.is_open(100));
  EXPECT_FALSE(open.is_open(200));
  EXPECT_FALSE(open.is_open(99));
}

TEST(OpenTime, merges_overlapping_intervals_in_any_order_and_drops_empty_ones) {
  const OpenTime open({{300, 400}, {100, 250}, {200, 300}, {500, 500}});
  ASSERT_EQ(open.intervals().size(), 1u);
  EXPECT_EQ(open.total(), 300u);
}

TEST(OpenTime, maps_back_to_the_earliest_time) {
  const OpenTime open({{100, 200}, {300, 400}});
  EXPECT_EQ(open.time_at(0), 100u);
  EXPECT_EQ(open.time_at(100), 200u);  // not 300: the earlier of the two
  EXPECT_EQ(open.time_at(101), 301u);
  EXPECT_EQ(open.time_at(999), 400u);
  EXPECT_EQ(OpenTime().time_at(5), 0u);
}

TEST(OperationSpans, are_open_from_the_last_begin_to_the_last_end) {
  const std::vector<RankIterations> ranks = {{{10, 110}, {90, 190}}, {{20, 105}, {95, 180}}};
  const auto spans = operation_spans(ranks, 1000);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].span.begin_ns, 20u);
  EXPECT_EQ(spans[0].span.end_ns, 95u);
  EXPECT_EQ(spans[1].span.begin_ns, 110u);
  EXPECT_EQ(spans[1].span.end_ns, 190u);
  EXPECT_TRUE(spans[1].complete);
}

TEST(OperationSpans, an_operation_that_never_ended_is_open_until_now) {
  const auto spans = operation_spans({{{10, 110}, {90}}, {{20, 105}, {95, 180}}}, 1000);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_FALSE(spans[1].complete);
  EXPECT_EQ(spans[1].span.end_ns, 1000u);
}

TEST(OperationSpans, an_operation_that_a_rank_never_began_does_not_exist) {
  EXPECT_EQ(operation_spans({{{10, 110}, {90}}, {{20}, {95}}}, 1000).size(), 1u);
  EXPECT_TRUE(operation_spans({}, 5).empty());
}

}  // namespace
}  // namespace r2bench
