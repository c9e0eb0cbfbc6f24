// SPDX-License-Identifier: Apache-2.0
// Rates over whole operations, and the timeline of a job.
#include <gtest/gtest.h>

#include "harness/measure/testing/synthetic_record.h"

namespace r2bench {
namespace {

TEST(Rate, takes_whole_operations_when_it_can) {
  Synthetic job;
  job.open({{0, 100 * kMs}, {100 * kMs, 200 * kMs}, {200 * kMs, 300 * kMs}});
  for (uint64_t t = 10; t <= 300; t += 10) job.deliver(t, 0, 0, 1);
  // [50, 290] holds one whole operation: the window as it is. [0, 290] holds two.
  EXPECT_NEAR(rate_gbps(job.record, {50 * kMs, 290 * kMs}), 24 * 8e-3 * kSegment / 1e3 / 240, 1e-6 * 1e3);
  EXPECT_NEAR(rate_gbps(job.record, {0, 290 * kMs}), 0.8, 1e-9);
  EXPECT_EQ(rate_gbps(job.record, {290 * kMs, 290 * kMs}), 0);
}

TEST(Timeline, marks_gaps_and_keeps_raw_deliveries_near_the_marks) {
  Synthetic job;
  job.open({{0, 100 * kMs}, {300 * kMs, 400 * kMs}});
  job.record.end_ns = 400 * kMs;
  for (uint64_t t = 10; t <= 100; t += 10) job.deliver(t, 0, 0, 1);
  for (uint64_t t = 310; t <= 400; t += 10) job.deliver(t, 0, 0, 1);
  const Timeline timeline = make_timeline(job.record, 0, 100, {350 * kMs}, 20 * kMs, 1000);
  ASSERT_EQ(timeline.total.size(), 4u);
  EXPECT_NEAR(timeline.total[0].gbps, 0.8, 1e-9);
  EXPECT_FALSE(timeline.total[1].open);
  EXPECT_FALSE(timeline.total[2].open);
  EXPECT_NEAR(timeline.total[3].gbps, 0.8, 1e-9);
  EXPECT_EQ(timeline.raw.size(), 5u);  // 330 … 370
  EXPECT_EQ(timeline.raw[0].node, 1);
}

}  // namespace
}  // namespace r2bench
