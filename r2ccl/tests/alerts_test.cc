// SPDX-License-Identifier: Apache-2.0
// alerts.yaml against the counters that the plugin exports, and against what Prometheus asks of a file of
// rules.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "r2ccl/tests/testing/prometheus_text.h"
#include "r2ccl/trace/metrics.h"

namespace r2ccl::trace {
namespace {

/// Names and types of all series.
std::map<std::string, std::string> exported() {
  return testing_support::PrometheusText(Metrics("unused", {"mlx5_0"}).text(0)).types();
}

std::set<std::string> names_in(const std::string& expression) {
  static const std::regex kName("\\br2ccl_[a-zA-Z0-9_]+");
  return {std::sregex_token_iterator(expression.begin(), expression.end(), kName), {}};
}

std::vector<YAML::Node> rules() {
  std::vector<YAML::Node> all;
  for (const auto& group : YAML::LoadFile(R2CCL_ALERTS)["groups"])
    for (const auto& rule : group["rules"]) all.push_back(rule);
  return all;
}

TEST(Alerts, every_rule_is_one_that_prometheus_takes) {
  const YAML::Node file = YAML::LoadFile(R2CCL_ALERTS);
  ASSERT_EQ(file.size(), 1u);
  std::set<std::string> names;
  for (const auto& group : file["groups"]) {
    EXPECT_FALSE(group["name"].as<std::string>().empty());
    ASSERT_TRUE(group["rules"].IsSequence());
  }
  for (const YAML::Node& rule : rules()) {
    const auto name = rule["alert"].as<std::string>();
    EXPECT_TRUE(std::regex_match(name, std::regex("R2ccl[A-Za-z]+"))) << name;
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_FALSE(rule["expr"].as<std::string>().empty()) << name;
    const auto severity = rule["labels"]["severity"].as<std::string>();
    EXPECT_TRUE(severity == "critical" || severity == "warning" || severity == "info") << name;
    EXPECT_FALSE(rule["annotations"]["summary"].as<std::string>().empty()) << name;
    EXPECT_FALSE(rule["annotations"]["description"].as<std::string>().empty()) << name;
    if (rule["for"]) {
      EXPECT_TRUE(std::regex_match(rule["for"].as<std::string>(), std::regex("[0-9]+[smhd]"))) << name;
    }
    for (const auto& entry : rule) {
      static const std::set<std::string> kKeys = {"alert", "expr", "for", "labels", "annotations"};
      EXPECT_EQ(kKeys.count(entry.first.as<std::string>()), 1u) << name << ": " << entry.first;
    }
  }
  EXPECT_GE(names.size(), 8u);
}

TEST(Alerts, every_counter_that_is_named_is_exported_and_used_as_what_it_is) {
  const auto types = exported();
  for (const YAML::Node& rule : rules()) {
    const auto expression = rule["expr"].as<std::string>();
    const auto used = names_in(expression);
    EXPECT_FALSE(used.empty()) << expression;
    for (const std::string& name : used) {
      ASSERT_TRUE(types.contains(name)) << name << " is not exported: " << expression;
      const std::regex increasing("(increase|rate)\\(" + name + "(\\{[^}]*\\})?\\[");
      EXPECT_EQ(std::regex_search(expression, increasing), types.at(name) == "counter")
          << "a counter needs increase() or rate(), a gauge must not have it: " << expression;
    }
  }
}

TEST(Alerts, what_must_never_happen_has_a_rule) {
  std::set<std::string> used;
  for (const YAML::Node& rule : rules()) used.merge(names_in(rule["expr"].as<std::string>()));
  for (const char* name :
       {"r2ccl_duplicates_dropped_total", "r2ccl_channels_failed_total", "r2ccl_channels_without_path",
        "r2ccl_path_failures_total", "r2ccl_port_failures_total", "r2ccl_nic_gray"})
    EXPECT_TRUE(used.contains(name)) << name;
}

TEST(Alerts, promtool_takes_the_file_where_there_is_one) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no promtool (Debian: prometheus)";
  EXPECT_EQ(std::system("promtool check rules '" R2CCL_ALERTS "'"), 0);
}

}  // namespace
}  // namespace r2ccl::trace
