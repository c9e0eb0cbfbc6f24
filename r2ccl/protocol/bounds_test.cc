// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/bounds.h"

#include <gtest/gtest.h>

#include "r2ccl/protocol/retirement.h"

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr Bounds kUsual{2000 * kMs, 8 * kMs};  // the defaults

TEST(Bounds, with_the_usual_settings) {
  EXPECT_EQ(kUsual.bar(), 50 * kMs);
  EXPECT_EQ(kUsual.retired(), 500 * kMs);
  EXPECT_EQ(kUsual.longest_probe(), 500 * kMs);
  EXPECT_EQ(kUsual.first_probe(8 * kMs), 32 * kMs);
  EXPECT_EQ(kUsual.proven(), 32 * kMs);
}

TEST(Bounds, a_channel_that_fails_soon_leaves_nothing_for_long) {
  constexpr Bounds kShort{80 * kMs, 8 * kMs};
  EXPECT_EQ(kShort.bar(), 10 * kMs);
  EXPECT_EQ(kShort.longest_probe(), 20 * kMs);
  EXPECT_EQ(kShort.retired(), 100 * kMs) << "a probe that was given up may still be answered";
}

TEST(Bounds, a_channel_that_waits_for_long_does_not_keep_everything_as_long) {
  constexpr Bounds kLong{3'600'000 * kMs, 8 * kMs};
  EXPECT_EQ(kLong.bar(), 50 * kMs);
  EXPECT_EQ(kLong.longest_probe(), 2000 * kMs);
  EXPECT_EQ(kLong.retired(), 4000 * kMs);
}

TEST(Bounds, in_a_search_untried_rails_share_the_time_that_is_left) {
  EXPECT_EQ(kUsual.first_probe(400 * kMs), 400 * kMs);
  EXPECT_EQ(kUsual.first_probe(400 * kMs, 2000 * kMs, 10), 200 * kMs);
  EXPECT_EQ(kUsual.first_probe(400 * kMs, 2000 * kMs, 1), 400 * kMs) << "no more than a probe may take";
  EXPECT_EQ(kUsual.first_probe(400 * kMs, 0, 10), 32 * kMs) << "nor less than a first one needs";
}

TEST(Bounds, a_queue_pair_sends_again_after_4_microseconds_times_a_power_of_two_or_never) {
  EXPECT_EQ(resend_after(1), 8192u);
  EXPECT_EQ(resend_after(18), 1'073'741'824u);
  EXPECT_EQ(resend_after(31), 8'796'093'022'208u);
  EXPECT_EQ(resend_after(0), ~uint64_t{0});
}

TEST(Retirement, a_nic_may_access_buffers_until_its_driver_or_the_kernel_says_that_it_does_not) {
  EXPECT_TRUE(Retirement::may_access(false, false, false));
  EXPECT_FALSE(Retirement::may_access(true, false, false));
  EXPECT_TRUE(Retirement::may_access(true, true, false));
  EXPECT_FALSE(Retirement::may_access(true, true, true));
}

TEST(Retirement, a_driver_that_is_stuck_is_not_waited_for) {
  EXPECT_TRUE(Retirement::is_waited_for(false, false));
  EXPECT_FALSE(Retirement::is_waited_for(true, false));
  EXPECT_FALSE(Retirement::is_waited_for(false, true));
}

TEST(Retirement, of_the_oldest_when_its_time_is_over_and_nobody_searches_or_when_they_pile_up) {
  EXPECT_FALSE(Retirement::is_due(0, true, 0, 100));
  EXPECT_FALSE(Retirement::is_due(1, true, 101, 100));
  EXPECT_TRUE(Retirement::is_due(1, true, 100, 100));
  EXPECT_FALSE(Retirement::is_due(1, false, 100, 100));
  EXPECT_FALSE(Retirement::is_due(Retirement::kMost, false, 100, 100));
  EXPECT_TRUE(Retirement::is_due(Retirement::kMost + 1, false, 200, 100));
}

}  // namespace
}  // namespace r2ccl
