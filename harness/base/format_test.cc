// SPDX-License-Identifier: Apache-2.0
#include "harness/base/format.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

TEST(Format, times_are_in_utc_whatever_the_zone_of_the_machine) {
  EXPECT_EQ(utc(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc(1'709'210'096), "2024-02-29T12:34:56Z");
  EXPECT_EQ(utc_now().size(), utc(0).size());
}

TEST(Format, numbers_have_three_digits_that_count) {
  EXPECT_EQ(short_number(0.4119), "0.412");
  EXPECT_EQ(short_number(9.996), "10.0");
  EXPECT_EQ(short_number(543.2), "543");
  EXPECT_EQ(milliseconds(12'345), "12.3 s");
}

TEST(Format, columns_are_code_points_and_not_bytes) {
  EXPECT_EQ(width("±1"), 2u);
  EXPECT_EQ(left("µs", 4), "µs  ");
  EXPECT_EQ(cut("abcdef", 4), "abc…");
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
}

}  // namespace
}  // namespace r2bench
