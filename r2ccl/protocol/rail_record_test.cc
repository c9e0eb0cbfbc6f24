// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/rail_record.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

TEST(RailRecord, a_rail_that_failed_is_left_alone_until_its_time) {
  RailRecord rails;
  EXPECT_FALSE(rails.barred(1, 2, 0));
  rails.failed(1, 2, 100);
  EXPECT_TRUE(rails.barred(1, 2, 99));
  EXPECT_FALSE(rails.barred(1, 2, 100));
  EXPECT_FALSE(rails.barred(2, 1, 99)) << "a rail has a local and a remote end";
  rails.bar(1, 2, 50);
  EXPECT_FALSE(rails.barred(1, 2, 50)) << "the last word counts";
  EXPECT_EQ(rails.count(1, 2), 1u);
}

TEST(RailRecord, failures_of_rails_that_share_a_nic_count_against_each_other) {
  RailRecord rails;
  rails.failed(0, 0, 0);
  rails.failed(0, 1, 0);
  rails.failed(2, 3, 0);
  EXPECT_GT(rails.count_near(0, 2), rails.count_near(1, 2));
  EXPECT_GT(rails.count_near(1, 1), rails.count_near(1, 2));
  EXPECT_GT(rails.count_near(1, 3), rails.count_near(1, 2));
  rails.forget_counts();
  EXPECT_EQ(rails.count_near(0, 0), 0u);
}

TEST(RailRecord, counting_ends_before_it_begins_anew) {
  RailRecord rails;
  for (int i = 0; i < 70'000; ++i) rails.failed(7, 7, 0);
  EXPECT_EQ(rails.count(7, 7), 65'535u);
}

TEST(RailRecord, the_last_note_of_each_rail_is_kept_in_their_order) {
  RailRecord rails;
  rails.note({0, 0, "first", 1});
  rails.note({1, 1, "second", 2});
  rails.note({0, 0, "again", 3});
  ASSERT_EQ(rails.notes().size(), 2u);
  EXPECT_EQ(rails.notes()[0].what, "second");
  EXPECT_EQ(rails.notes()[1].what, "again");
  rails.forget_older_notes();
  ASSERT_EQ(rails.notes().size(), 1u);
  EXPECT_EQ(rails.notes()[0].what, "again");
}

TEST(RailRecord, a_rail_that_was_left_as_planned_has_not_failed) {
  RailRecord rails;
  rails.left(0, 1, true, 500);
  EXPECT_EQ(rails.count(0, 1), 0u);
  EXPECT_FALSE(rails.barred(0, 1, 0));
  rails.left(0, 1, false, 500);
  EXPECT_EQ(rails.count(0, 1), 1u);
  EXPECT_TRUE(rails.barred(0, 1, 499));
}

TEST(RailRecord, counts_the_rails_that_have_not_been_tried_in_vain) {
  RailRecord rails;
  const auto all = [](int, int) { return true; };
  EXPECT_EQ(rails.untried(2, 3, all), 6u);
  rails.failed(0, 2, 0);
  rails.failed(0, 2, 0);
  EXPECT_EQ(rails.untried(2, 3, all), 5u);
  EXPECT_EQ(rails.untried(2, 3, [](int l, int) { return l == 0; }), 2u) << "a NIC that is down has none";
  rails.forget_counts();
  EXPECT_EQ(rails.untried(2, 3, all), 6u);
}

}  // namespace
}  // namespace r2ccl
