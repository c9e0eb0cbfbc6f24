// SPDX-License-Identifier: Apache-2.0
// Settings: defaults, every bad value refused with the variable's name and what is accepted.
#include "r2ccl/base/config.h"
#include "r2ccl/base/hca_filter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

namespace r2ccl {
namespace {

Result<Config> with(std::map<std::string, std::string> environment) {
  return Config::from([environment](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(Config, without_any_variable_live_migration_with_strict_acknowledgement) {
  auto config = with({});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, Mode::kMigrate);
  EXPECT_TRUE(config->strict_ack);
  EXPECT_EQ(config->ib_timeout, 20);
  EXPECT_EQ(config->ib_retry_count, 7);
}

TEST(Config, reads_what_is_set) {
  auto config = with({{"R2CC_MODE", "0"},
                      {"NCCL_IB_TIMEOUT", "14"},
                      {"R2CC_FAIL_BOUND_MS", "500"},
                      {"R2CC_METRICS", "/run/r2ccl-%p.prom"},
                      {"NCCL_SOCKET_IFNAME", "lo"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, Mode::kBaseline);
  EXPECT_EQ(config->ib_timeout, 14);
  EXPECT_EQ(config->fail_bound.count(), 500);
  EXPECT_EQ(config->socket_interface, "lo");
  EXPECT_EQ(config->metrics_file, "/run/r2ccl-%p.prom");
}

TEST(Config, without_a_path_a_channel_lasts_as_long_as_a_queue_pair_would_retry) {
  const auto bound_ms = [](const std::map<std::string, std::string>& set) {
    return with(set).value().no_path_bound().count();
  };
  EXPECT_EQ(bound_ms({}), 34359) << "7 retries, each after 4.3 s";
  EXPECT_EQ(bound_ms({{"NCCL_IB_TIMEOUT", "14"}}), 2000);
  EXPECT_EQ(bound_ms({{"NCCL_IB_TIMEOUT", "19"}, {"NCCL_IB_RETRY_CNT", "3"}}), 8589);
  EXPECT_EQ(bound_ms({{"NCCL_IB_TIMEOUT", "22"}}), 60000);
  EXPECT_EQ(bound_ms({{"NCCL_IB_TIMEOUT", "0"}}), 60000) << "it would wait for ever";
  EXPECT_EQ(bound_ms({{"R2CC_FAIL_BOUND_MS", "500"}}), 500);
  EXPECT_EQ(bound_ms({{"R2CC_FAIL_BOUND_MS", "90000"}}), 90000);
}

TEST(Config, a_process_that_cannot_be_reached_has_as_long_as_a_channel_without_a_path) {
  const auto bound_ms = [](const std::map<std::string, std::string>& set) {
    return with(set).value().unreached_bound().count();
  };
  EXPECT_EQ(bound_ms({}), 34359);
  EXPECT_EQ(bound_ms({{"NCCL_IB_TIMEOUT", "14"}}), 5000);
  EXPECT_EQ(bound_ms({{"R2CC_FAIL_BOUND_MS", "500"}}), 5000);
  EXPECT_EQ(bound_ms({{"R2CC_FAIL_BOUND_MS", "90000"}}), 90000);
  EXPECT_EQ(bound_ms({{"R2CC_CONTROL_MS", "300"}}), 300) << "the user has said so";
  EXPECT_EQ(bound_ms({{"R2CC_CONTROL_MS", "5000"}}), 5000) << "… be it the default";
}

TEST(Config, a_bad_value_is_refused_by_name) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"R2CC_MODE", "4"},
                                                                      {"R2CC_STRICT_ACK", "yes"},
                                                                      {"R2CC_ALGORITHM", "rings"},
                                                                      {"R2CC_STUCK_MS", "20ms"},
                                                                      {"R2CC_PROBE_MS", "-1"}}) {
    auto config = with({{name, value}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidConfig);
    EXPECT_NE(config.error().message.find(name + "='" + value + "'"), std::string::npos)
        << config.error().message;
  }
}

TEST(Config, takes_mode_3_and_a_schedule_for_it) {
  auto config = with({{"R2CC_MODE", "3"}, {"R2CC_ALGORITHM", "four_stage"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, Mode::kAllReduce);
  EXPECT_EQ(config->algorithm, "four_stage");
}

TEST(Config, reads_where_the_gid_should_lie) {
  const AddressBytes ten_one{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 200, 3};
  const AddressBytes ten_two{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 2, 0, 3};
  const AddressBytes six{0xfd, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  auto config = with({});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->address_range.contains(ten_one));
  EXPECT_FALSE(config->address_range.contains(six));

  config = with({{"NCCL_IB_ADDR_RANGE", "10.1.77.0/16"}});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->address_range.contains(ten_one));
  EXPECT_FALSE(config->address_range.contains(ten_two));
  config = with({{"NCCL_IB_ADDR_RANGE", "10.1.192.0/18"}});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->address_range.contains(ten_one));
  config = with({{"NCCL_IB_ADDR_RANGE", "10.1.128.0/18"}});
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->address_range.contains(ten_one)) << "bits in the middle of a byte";

  config = with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->address_range.contains(six));
  EXPECT_FALSE(config->address_range.contains(ten_one));
  config = with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", "fd00:1:8000::/33"}});
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config->address_range.contains(six));
  config = with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", "fd00:1::/33"}});
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->address_range.contains(six));
}

TEST(Config, nccls_variables_are_read_as_nccl_reads_them) {
  auto config = with({{"NCCL_IB_TC", "0x6a"}, {"NCCL_IB_SL", "017"}, {"NCCL_IB_TIMEOUT", " 18"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->traffic_class, 106);
  EXPECT_EQ(config->service_level, 15) << "octal";
  EXPECT_EQ(config->ib_timeout, 18);
  EXPECT_TRUE(config->warnings.empty());
  config = with({{"NCCL_IB_TC", "-1"}, {"NCCL_IB_SL", "-1"}, {"NCCL_IB_GID_INDEX", "-1"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->traffic_class, 0);
  EXPECT_EQ(config->service_level, 0);
  EXPECT_TRUE(config->warnings.empty()) << "these are NCCL's own defaults";
  config = with({{"NCCL_IB_TIMEOUT", "0"}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->ib_timeout, 0) << "a QP that waits for ever is what NCCL would make, too";
}

TEST(Config, what_nccl_takes_is_not_refused_but_told) {
  const auto expect = [](const char* name, const char* value, int Config::*member, int read) {
    auto config = with({{name, value}});
    ASSERT_TRUE(config.ok()) << name << "=" << value;
    EXPECT_EQ((*config).*member, read) << name << "=" << value;
    ASSERT_EQ(config->warnings.size(), 1u) << name << "=" << value;
    EXPECT_EQ(config->warnings[0].find(std::string(name) + "='" + value + "'"), 0u) << config->warnings[0];
  };
  expect("NCCL_IB_TIMEOUT", "20ms", &Config::ib_timeout, 20);
  expect("NCCL_IB_TIMEOUT", "14;", &Config::ib_timeout, 14);
  expect("NCCL_IB_TIMEOUT", "99", &Config::ib_timeout, 20);
  expect("NCCL_IB_RETRY_CNT", "seven", &Config::ib_retry_count, 0);
  expect("NCCL_IB_RETRY_CNT", "8", &Config::ib_retry_count, 7);
  expect("NCCL_IB_PKEY", "65536", &Config::pkey_index, 0);
  expect("NCCL_IB_ROCE_VERSION_NUM", "3", &Config::roce_version, 2);
  expect("NCCL_IB_TC", "99999999999999999999", &Config::traffic_class, 0);
}

TEST(Config, a_bad_address_range_is_passed_over_with_what_is_accepted) {
  for (const char* value :
       {"10.1.0.0", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.0/8x", "10.1.0/8", "fd00::/8", "/8"}) {
    auto config = with({{"NCCL_IB_ADDR_RANGE", value}});
    ASSERT_TRUE(config.ok()) << value;
    ASSERT_EQ(config->warnings.size(), 1u) << value;
    EXPECT_EQ(config->warnings[0],
              std::string("NCCL_IB_ADDR_RANGE='") + value +
                  "' is not an address of AF_INET, '/' and a number of bits from 0 to 32; it is ignored");
  }
  for (const char* range : {"10.0.0.0/8", "fd00::/129"}) {
    auto config = with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", range}});
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->warnings.size(), 1u) << range;
  }
  auto config = with({{"NCCL_IB_ADDR_FAMILY", "inet"}});
  ASSERT_TRUE(config.ok());
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_EQ(config->warnings[0], "NCCL_IB_ADDR_FAMILY='inet' is neither AF_INET nor AF_INET6; it is ignored");
}

TEST(Config, an_empty_value_is_the_default) {
  auto config = with({{"R2CC_MODE", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mode, Mode::kMigrate);
}

TEST(Config, every_error_code_says_what_to_do) {
  for (int code = int(ErrorCode::kInvalidConfig); code <= int(ErrorCode::kAfterFork); ++code) {
    EXPECT_NE(name(ErrorCode(code)), "unknown") << code;
    EXPECT_GT(advice(ErrorCode(code)).size(), 10u) << code;
  }
}

/// Name and default of each row of the page's table of settings.
std::map<std::string, std::string> settings_of_the_operators_page() {
  std::map<std::string, std::string> rows;
  std::ifstream page(std::string(R2CCL_SOURCE_DIR) + "/r2ccl/OPERATING.md");
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| `R2CC_", 0) != 0) continue;
    const size_t end = line.find('`', 3), next = line.find(" | ", end), last = line.find(" | ", next + 3);
    rows[line.substr(3, end - 3)] = line.substr(next + 3, last - next - 3);
  }
  return rows;
}

TEST(Config, the_operators_page_lists_every_setting_with_its_default) {
  auto config = with({});
  ASSERT_TRUE(config.ok());
  const std::map<std::string, std::string> page = settings_of_the_operators_page();
  std::set<std::string> settings;
  for (const Config::Entry& entry : config->entries()) {
    if (entry.variable.rfind("R2CC_", 0) != 0) continue;
    settings.insert(entry.variable);
    ASSERT_TRUE(page.count(entry.variable)) << entry.variable << " is not in r2ccl/OPERATING.md";
    EXPECT_EQ(page.at(entry.variable), entry.value.empty() ? "empty" : entry.value) << entry.variable;
  }
  for (const auto& [name, value] : page)
    EXPECT_TRUE(settings.count(name)) << "r2ccl/OPERATING.md lists " << name << ", which is no setting";
}

TEST(HcaFilter, follows_the_rules_of_nccl) {
  EXPECT_TRUE(passes_hca_filter("", "mlx5_0", 1));
  EXPECT_TRUE(passes_hca_filter("mlx5_1", "mlx5_10", 1)) << "a prefix";
  EXPECT_FALSE(passes_hca_filter("=mlx5_1", "mlx5_10", 1)) << "a name";
  EXPECT_TRUE(passes_hca_filter("=mlx5_0,mlx5_10", "mlx5_10", 1));
  EXPECT_FALSE(passes_hca_filter("^mlx5_1", "mlx5_10", 1));
  EXPECT_TRUE(passes_hca_filter("^=mlx5_1", "mlx5_10", 1));
  EXPECT_FALSE(passes_hca_filter("mlx5_1,", "mlx5_0", 1)) << "nothing between commas is no prefix";
  EXPECT_TRUE(passes_hca_filter("mlx5_0:2", "mlx5_0", 2));
  EXPECT_FALSE(passes_hca_filter("mlx5_0:2", "mlx5_0", 1));
  EXPECT_TRUE(passes_hca_filter("^mlx5_0:2", "mlx5_0", 1)) << "the other port is not excluded";
  EXPECT_TRUE(passes_hca_filter("=mlx5_0:1:0:2,mlx5_1:1:1", "mlx5_0", 1)) << "port, rail, plane";
  EXPECT_TRUE(passes_hca_filter("=mlx5_0:1:0:2,mlx5_1:1:1", "mlx5_1", 1));
  EXPECT_FALSE(passes_hca_filter("=mlx5_0:2:0", "mlx5_0", 1));
  EXPECT_TRUE(passes_hca_filter("=mlx5_0::3", "mlx5_0", 1)) << "any port of rail 3";
  EXPECT_FALSE(passes_hca_filter(":1", "mlx5_0", 1)) << "no name is no prefix";
}

}  // namespace
}  // namespace r2ccl
