// SPDX-License-Identifier: Apache-2.0
// How long a probe may stay away before the rail counts as dead.
#include "r2ccl/health/probe_times.h"

#include <gtest/gtest.h>

namespace r2ccl::health {
namespace {

constexpr uint64_t kLeast = 8, kMost = 500, kNow = 1000;

TEST(ProbeTimes, a_rail_that_nothing_is_known_of_has_the_least_deadline) {
  EXPECT_EQ(ProbeTimes(kLeast, kMost).deadline(0, 0, 0, kNow), kLeast);
}

TEST(ProbeTimes, a_late_answer_counts_for_its_rail_alone) {
  ProbeTimes times(kLeast, kMost);
  times.answered(1, 2, 30, kNow);
  EXPECT_EQ(times.deadline(1, 2, 0, kNow), 120u);
  EXPECT_EQ(times.deadline(2, 1, 0, kNow), kLeast);
}

TEST(ProbeTimes, no_deadline_is_longer_than_the_most_nor_shorter_than_the_least) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 400, kNow);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow), kMost);
  EXPECT_EQ(times.deadline(0, 0, 63, kNow), kMost);
  EXPECT_EQ(ProbeTimes(700, kMost).deadline(0, 0, 0, kNow), 700u) << "the least is above the most";
}

TEST(ProbeTimes, quick_answers_make_it_forget) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 1000, kNow);
  uint64_t before = times.slowest(0, 0, kNow);
  for (int i = 0; i < 100; ++i) {
    times.answered(0, 0, 0, kNow);
    EXPECT_LE(times.slowest(0, 0, kNow), before);
    before = times.slowest(0, 0, kNow);
  }
  EXPECT_EQ(times.deadline(0, 0, 0, kNow), 4 * before);
  EXPECT_LT(before, 20u);
}

TEST(ProbeTimes, what_was_late_long_ago_fades) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 100, kNow);
  EXPECT_EQ(times.slowest(0, 0, kNow + ProbeTimes::kHalfLifeNs), 50u);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow + 10 * ProbeTimes::kHalfLifeNs), kLeast);
  times.answered(0, 0, 40, kNow + 2 * ProbeTimes::kHalfLifeNs);
  EXPECT_EQ(times.slowest(0, 0, kNow + 2 * ProbeTimes::kHalfLifeNs), 40u);
}

TEST(ProbeTimes, each_path_left_for_silence_without_anything_in_between_doubles_it) {
  const ProbeTimes times(kLeast, kMost);
  EXPECT_EQ(times.deadline(0, 0, 1, kNow), 16u);
  EXPECT_EQ(times.deadline(0, 0, 3, kNow), 64u);
}

// Pushed when half of the deadline is over, and answered at once: each of them would double the deadline.
TEST(ProbeTimes, a_probe_that_is_answered_only_because_it_was_pushed_says_nothing) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 1, kNow);
  for (int i = 0; i < 10; ++i) {
    const uint64_t pushed_after = times.deadline(0, 0, 0, kNow) / 2 + 1;
    times.answered(0, 0, pushed_after + 1, kNow, 1);
  }
  EXPECT_EQ(times.slowest(0, 0, kNow), 1u);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow), kLeast);
}

// A rail that has become slow: the push has not brought the answer.
TEST(ProbeTimes, an_answer_long_after_the_push_tells_how_slow_the_rail_is) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 1, kNow);
  times.answered(0, 0, 7, kNow, 2);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow), 28u);
  times.answered(0, 1, 5, kNow, 0);
  EXPECT_EQ(times.slowest(0, 1, kNow), 0u);
  times.answered(0, 1, 5, kNow, 1);
  EXPECT_EQ(times.slowest(0, 1, kNow), 5u) << "nothing was known of it";
}

// What is not told never took longer than three quarters of the deadline, so no rail is left for it.
TEST(ProbeTimes, a_rail_that_slows_down_step_by_step_is_noticed_before_its_answers_come_too_late) {
  ProbeTimes times(kLeast, kMost);
  times.answered(0, 0, 2, kNow);
  for (uint64_t took = 2; took < kMost / 4; ++took) {
    const uint64_t deadline = times.deadline(0, 0, 0, kNow);
    ASSERT_LT(took, deadline);
    times.answered(0, 0, took, kNow, took > deadline / 2 ? took - deadline / 2 : ProbeTimes::kNotPushed);
  }
}

// Nothing has been answered yet over a NIC that has just become slow, and its queue is long.
TEST(ProbeTimes, what_stands_before_a_probe_in_a_slow_nics_queue_is_waited_for) {
  ProbeTimes times(kLeast, kMost);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow, 60), 60u);
  EXPECT_EQ(times.deadline(0, 0, 3, kNow, 60), 64u) << "the longer of both";
  EXPECT_EQ(times.deadline(0, 0, 0, kNow, 3), kLeast);
  EXPECT_EQ(times.deadline(0, 0, 0, kNow, 9000), kMost) << "a dead rail is left in the end";
  EXPECT_EQ(ProbeTimes(700, kMost).deadline(0, 0, 0, kNow, 9000), 700u);
}

}  // namespace
}  // namespace r2ccl::health
