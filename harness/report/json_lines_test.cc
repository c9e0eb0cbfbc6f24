// SPDX-License-Identifier: Apache-2.0
#include "harness/report/json_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace r2bench {
namespace {

TEST(JsonLines, gives_each_value_the_line_of_its_key) {
  const auto lines =
      json_lines("{\n \"a\": {\"b\":\n  1\n , \"c/d\": [7\n,8,\n\n {\"e\": null}\n]},\n\"f\":\"\\n\"}");
  const std::map<std::string, size_t> wanted = {{"", 1},          {"/a", 2},          {"/a/b", 2},
                                                {"/a/c~1d", 4},   {"/a/c~1d/0", 4},   {"/a/c~1d/1", 5},
                                                {"/a/c~1d/2", 7}, {"/a/c~1d/2/e", 7}, {"/f", 9}};
  EXPECT_EQ(lines, wanted);
}

TEST(JsonLines, has_every_value_of_a_text_on_one_line) {
  const nlohmann::json json = {{"x", {1, 2.5, "three", false, nullptr}}, {"y", nlohmann::json::object()}};
  for (const auto& [pointer, line] : json_lines(json.dump())) {
    EXPECT_EQ(line, 1u) << pointer;
    EXPECT_TRUE(json.contains(nlohmann::json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(json_lines(json.dump()).size(), 8u);
}

}  // namespace
}  // namespace r2bench
