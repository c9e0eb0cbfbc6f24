// SPDX-License-Identifier: Apache-2.0
// Activity: what one thread counts and the other goes by. (idle_time_test.cc has the time in between.)
#include "r2ccl/protocol/activity.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(Activity, a_full_queue_is_waited_for_until_it_has_room) {
  Activity activity;
  EXPECT_FALSE(activity.waits());
  EXPECT_TRUE(activity.found_no_room()) << "nobody tests, so who posts looks";
  EXPECT_TRUE(activity.waits());
  activity.has_room();
  EXPECT_FALSE(activity.waits());
}

TEST(Activity, an_open_request_is_waited_for) {
  Activity activity;
  activity.opened_request();
  EXPECT_TRUE(activity.waits());
  activity.finished_request();
  EXPECT_FALSE(activity.waits());
}

TEST(Activity, with_requests_open_only_some_posts_look) {
  Activity activity;
  activity.opened_request();
  int looks = 0;
  for (int posts = 0; posts < 80; ++posts) looks += activity.found_no_room();
  EXPECT_EQ(looks, 10);
}

TEST(Activity, a_path_is_missed_while_a_request_is_open_or_one_cannot_be_posted) {
  Activity activity;
  EXPECT_FALSE(activity.misses_a_path());
  activity.wants_a_path();
  EXPECT_TRUE(activity.misses_a_path());
  activity.has_a_path();
  EXPECT_FALSE(activity.misses_a_path());
  activity.opened_request();
  EXPECT_TRUE(activity.misses_a_path());
  activity.finished_request();
  EXPECT_FALSE(activity.misses_a_path());
}

TEST(Activity, traffic_is_what_moved_of_late) {
  Activity activity;
  activity.look(5 * kMs);
  EXPECT_FALSE(activity.moved_within(1000 * kMs, 5 * kMs)) << "nothing ever has";
  activity.moved();
  activity.look(10 * kMs);
  EXPECT_TRUE(activity.moved_within(100 * kMs, 109 * kMs));
  activity.look(110 * kMs);
  EXPECT_FALSE(activity.moved_within(100 * kMs, 110 * kMs));
}

TEST(Activity, help_is_asked_for_after_polling_in_vain_and_what_moves_withdraws_it) {
  Activity activity;
  activity.opened_request();
  uint64_t now = kMs;
  int polls = 0;
  for (; polls < 10'000 && !activity.asks(); ++polls, now += kMs / 10)
    if (activity.empty_test()) activity.silent_for(5 * kMs, now);
  EXPECT_GE(polls, 50);
  EXPECT_LT(polls, 100);
  EXPECT_TRUE(activity.asks_now());
  activity.moved();
  EXPECT_FALSE(activity.asks_now());
  EXPECT_TRUE(activity.asks()) << "until it is helped";
  activity.helped();
  EXPECT_FALSE(activity.asks());
}

TEST(Activity, polling_before_a_request_is_opened_is_no_silence) {
  Activity activity;
  activity.opened_request();
  EXPECT_FALSE(activity.silent_for(5 * kMs, kMs));
  for (uint64_t ms = 2; ms <= 5; ++ms) EXPECT_FALSE(activity.silent_for(5 * kMs, ms * kMs));
  activity.finished_request();
  activity.opened_request();
  for (uint64_t ms = 6; ms <= 10; ++ms) EXPECT_FALSE(activity.silent_for(5 * kMs, ms * kMs)) << ms;
  EXPECT_TRUE(activity.silent_for(5 * kMs, 11 * kMs));
}

}  // namespace
}  // namespace r2ccl
