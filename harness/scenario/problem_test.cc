// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/problem.h"

#include <gtest/gtest.h>

#include <string>

#include "harness/base/utf8.h"

namespace r2bench {
namespace {

TEST(Problem, what_a_file_holds_does_not_reach_the_terminal_as_it_is) {
  const std::string text = to_string({"f.yaml", 1, 3, "'\x1b[2J' is no number", "a:\x1b[2J\x7f\t\r"});
  EXPECT_EQ(text, "f.yaml:1:3: '?[2J' is no number\n  1 | a:?[2J?\t?\n    |   ^\n");
}

TEST(Problem, many_are_counted_and_a_long_one_is_cut) {
  std::vector<Problem> problems;
  for (int line = 1; line <= 100; ++line) problems.push_back({"f.yaml", line, 1, "no", ""});
  const ScenarioError error(problems);
  const std::string text = error.what();
  EXPECT_TRUE(text.ends_with("\nf.yaml:40:1: no\nand 60 more\n")) << text;
  EXPECT_EQ(error.problems().size(), 100u);
  EXPECT_LT(to_string({"f.yaml", 1, 1, std::string(100'000, 'x'), ""}).size(), 2100u);
}

TEST(Problem, of_a_long_line_the_part_around_the_column_is_shown) {
  std::string line(100'000, 'x');
  line[50'000] = 'Y';
  const std::string text = to_string({"f.yaml", 1, 50'001, "no", line});
  EXPECT_LT(text.size(), 500u);
  const size_t y = text.find('Y'), caret = text.find('^');
  ASSERT_NE(y, std::string::npos);
  ASSERT_NE(caret, std::string::npos);
  const auto column = [&](size_t at) { return at - text.rfind('\n', at); };
  EXPECT_EQ(column(y), column(caret));
}

TEST(Problem, is_cut_between_characters) {
  for (const std::string character : {"é", "…", "\U0001F600"}) {
    std::string text;
    while (text.size() < 10'000) text += character;
    for (const std::string before : {"", "a", "ab", "abc"}) {
      const std::string told = to_string({"f.yaml", 1, 5'001, before + text, before + text});
      EXPECT_EQ(valid_utf8(told), told.size()) << told;
      EXPECT_GT(told.size(), 2000u);
    }
  }
  const std::string no_text(10'000, '\x80');
  EXPECT_GT(to_string({"f.yaml", 1, 5'001, no_text, no_text}).size(), 2000u);
}

}  // namespace
}  // namespace r2bench
