// SPDX-License-Identifier: Apache-2.0
#include "harness/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace r2bench {
namespace {

TEST(Utf8, whole_characters_are_counted) {
  for (const std::string text : {"", "plain", "größe", "µs → ✓", "\xF0\x9F\x99\x82", "\xF4\x8F\xBF\xBF",
                                 "\xED\x9F\xBF", "\xEE\x80\x80"})
    EXPECT_EQ(valid_utf8(text), text.size()) << text;
  EXPECT_EQ(valid_utf8(std::string_view("a\0b", 3)), 3u);
}

TEST(Utf8, what_is_no_character_ends_the_count) {
  for (const char* wrong : {"\xF6", "\x80", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xC3(", "\xE2\x82", "\xE2(\xA1",
                            "\xE2\x82(", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\xAF", "\xF0\x9F\x99",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF\xFE"})
    EXPECT_EQ(valid_utf8("größe" + std::string(wrong)), 7u) << testing::PrintToString(wrong);
}

}  // namespace
}  // namespace r2bench
