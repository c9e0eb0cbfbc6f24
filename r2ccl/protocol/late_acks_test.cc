// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/late_acks.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

TEST(LateAcks, counts_what_is_open) {
  LateAcks acks;
  EXPECT_FALSE(acks.any());
  acks.opened(true);
  acks.opened(true);
  acks.ended(true);
  EXPECT_TRUE(acks.any());
  acks.ended(true);
  EXPECT_FALSE(acks.any());
}

TEST(LateAcks, acks_are_due_after_so_many_tests_in_vain_in_a_row) {
  LateAcks acks;
  acks.opened(true);
  acks.put_off(true);
  for (uint32_t i = 1; i < LateAcks::kQuietTests; ++i) EXPECT_FALSE(acks.due(false)) << i;
  EXPECT_FALSE(acks.due(true)) << "there is something to do, and something else is open";
  for (uint32_t i = 1; i < LateAcks::kQuietTests; ++i) EXPECT_FALSE(acks.due(false)) << i;
  EXPECT_TRUE(acks.due(false));
}

TEST(LateAcks, acks_put_off_anew_wait_anew) {
  LateAcks acks;
  acks.opened(true);
  acks.put_off(true);
  while (!acks.due(false)) continue;
  acks.put_off(true);
  EXPECT_FALSE(acks.due(false));
}

TEST(LateAcks, acks_are_due_at_once_when_nothing_is_open_any_more) {
  LateAcks acks;
  acks.opened(true);
  acks.opened(true);
  acks.put_off(true);
  acks.ended(true);
  EXPECT_FALSE(acks.due(true));
  acks.ended(true);
  EXPECT_TRUE(acks.due(true)) << "the thread may never test again";
}

TEST(LateAcks, what_ends_in_another_thread_is_not_open) {
  LateAcks acks;
  acks.opened(true);
  acks.opened(false);
  acks.ended_elsewhere(true);
  EXPECT_FALSE(acks.has_receives());
  EXPECT_TRUE(acks.any());
  acks.ended_elsewhere(false);
  EXPECT_FALSE(acks.any());
  acks.ended_elsewhere(false);
  EXPECT_FALSE(acks.any()) << "of a request of a thread that had this number before";
  acks.reset();
  acks.opened(true);
  EXPECT_TRUE(acks.any());
}

TEST(LateAcks, a_thread_that_always_finds_something_writes_them_all_the_same) {
  LateAcks acks;
  acks.opened(true);
  acks.opened(true);
  acks.put_off(true);
  uint32_t tests = 1;
  while (!acks.due(tests % (LateAcks::kQuietTests - 1) == 0)) {
    if (tests % 40 == 0) acks.put_off(false);  // more of them
    ++tests;
  }
  EXPECT_EQ(tests, LateAcks::kMostTests);
}

TEST(LateAcks, are_due_after_one_test_in_vain_where_nothing_is_to_be_received) {
  LateAcks acks;
  acks.opened(false);
  acks.opened(true);
  acks.put_off(true);
  EXPECT_FALSE(acks.due(false));
  acks.ended(true);
  EXPECT_FALSE(acks.due(true)) << "the program is told first";
  EXPECT_TRUE(acks.due(false));
}

}  // namespace
}  // namespace r2ccl
