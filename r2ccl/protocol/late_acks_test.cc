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
  acks.ended(true);
  acks.opened(true);
  EXPECT_TRUE(acks.any()) << "an end too many, of another thread's request, takes away nothing";
}

TEST(LateAcks, acks_are_due_after_so_many_tests_in_vain_in_a_row) {
  LateAcks acks;
  acks.opened(true);
  acks.put_off();
  for (uint32_t i = 1; i < LateAcks::kQuietTests; ++i) EXPECT_FALSE(acks.due(false)) << i;
  EXPECT_FALSE(acks.due(true)) << "there is something to do, and something else is open";
  for (uint32_t i = 1; i < LateAcks::kQuietTests; ++i) EXPECT_FALSE(acks.due(false)) << i;
  EXPECT_TRUE(acks.due(false));
}

TEST(LateAcks, acks_put_off_anew_wait_anew) {
  LateAcks acks;
  acks.opened(true);
  acks.put_off();
  while (!acks.due(false)) continue;
  acks.put_off();
  EXPECT_FALSE(acks.due(false));
}

TEST(LateAcks, acks_are_due_at_once_when_nothing_is_open_any_more) {
  LateAcks acks;
  acks.opened(true);
  acks.opened(true);
  acks.put_off();
  acks.ended(true);
  EXPECT_FALSE(acks.due(true));
  acks.ended(true);
  EXPECT_TRUE(acks.due(true)) << "the thread may never test again";
}

TEST(LateAcks, are_due_after_one_test_in_vain_where_nothing_is_to_be_received) {
  LateAcks acks;
  acks.opened(false);
  acks.opened(true);
  acks.put_off();
  EXPECT_FALSE(acks.due(false));
  acks.ended(true);
  EXPECT_FALSE(acks.due(true)) << "the program is told first";
  EXPECT_TRUE(acks.due(false));
}

}  // namespace
}  // namespace r2ccl
