// SPDX-License-Identifier: Apache-2.0
// Test support: Prometheus' text format, read strictly, so that a test fails on what a collector would
// refuse.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace r2ccl::testing_support {

class PrometheusText {
 public:
  explicit PrometheusText(const std::string& text) {
    EXPECT_FALSE(text.empty());
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line has no end";
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("# HELP ", 0) == 0 || line.rfind("# TYPE ", 0) == 0)
        comment(line);
      else
        sample(line);
    }
    for (const auto& name : helped_) EXPECT_TRUE(types_.count(name)) << name << " has no type";
  }

  /// The value of a series such as `name{nic="vhca0"}`; a failed expectation when there is none.
  double operator[](const std::string& series) const {
    const auto it = samples_.find(series);
    EXPECT_NE(it, samples_.end()) << series << " is not there";
    return it == samples_.end() ? -1 : it->second;
  }
  /// The sum over all labels.
  double sum(const std::string& name) const {
    double total = 0;
    for (const auto& [series, value] : samples_)
      if (series.substr(0, series.find('{')) == name) total += value;
    EXPECT_TRUE(types_.count(name)) << name << " is not there";
    return total;
  }
  bool has(const std::string& series) const { return samples_.count(series) != 0; }
  const std::map<std::string, std::string>& types() const { return types_; }

 private:
  static bool is_name(const std::string& text) {
    return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  }

  void comment(const std::string& line) {
    std::istringstream words(line.substr(7));
    std::string name, rest;
    words >> name;
    std::getline(words, rest);
    EXPECT_TRUE(is_name(name)) << line;
    EXPECT_GT(rest.size(), 1u) << line;
    EXPECT_FALSE(sampled_.count(name)) << "said of " << name << " after its first sample";
    if (line[2] == 'H') {
      EXPECT_TRUE(helped_.insert(name).second) << "twice: " << line;
    } else {
      EXPECT_TRUE(types_.emplace(name, rest.substr(1)).second) << "twice: " << line;
      EXPECT_TRUE(rest == " counter" || rest == " gauge") << line;
      EXPECT_EQ(rest == " counter", name.size() > 6 && name.substr(name.size() - 6) == "_total") << line;
    }
  }

  void sample(const std::string& line) {
    size_t at = line.find_first_of("{ ");
    ASSERT_NE(at, std::string::npos) << line;
    const std::string name = line.substr(0, at);
    EXPECT_TRUE(is_name(name)) << line;
    EXPECT_TRUE(types_.count(name) && helped_.count(name)) << "a sample before its HELP and TYPE: " << line;
    EXPECT_TRUE(last_.empty() || last_ == name || !sampled_.count(name))
        << "a family in two pieces: " << line;
    sampled_.insert(name);
    last_ = name;
    if (line[at] == '{') {
      for (++at;;) {  // name="value", where \\ \" and \n are the only escapes
        const size_t equals = line.find("=\"", at);
        ASSERT_NE(equals, std::string::npos) << line;
        EXPECT_TRUE(is_name(line.substr(at, equals - at))) << line;
        for (at = equals + 2; at < line.size() && line[at] != '"'; ++at)
          if (line[at] == '\\') {
            ++at;
            EXPECT_TRUE(at < line.size() && (line[at] == '\\' || line[at] == '"' || line[at] == 'n')) << line;
          }
        ASSERT_LT(at + 1, line.size()) << line;
        ++at;
        if (line[at] == '}') break;
        ASSERT_EQ(line[at++], ',') << line;
      }
      ++at;
    }
    ASSERT_EQ(line[at], ' ') << line;
    double value = -1;
    const char *from = line.data() + at + 1, *end = line.data() + line.size();
    const auto parsed = std::from_chars(from, end, value);
    EXPECT_TRUE(parsed.ec == std::errc() && parsed.ptr == end) << line;
    EXPECT_GE(value, 0) << line;
    EXPECT_TRUE(samples_.emplace(line.substr(0, at), value).second) << "twice: " << line;
  }

  std::map<std::string, std::string> types_;
  std::set<std::string> helped_, sampled_;
  std::map<std::string, double> samples_;
  std::string last_;
};

}  // namespace r2ccl::testing_support
