// Settings: defaults, every bad value refused with the variable's name and what is accepted.
#include "r2ccl/base/config.h"

#include <gtest/gtest.h>

#include <map>

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

TEST(Config, a_bad_value_is_refused_by_name) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"R2CC_MODE", "3"},
                                                                      {"R2CC_STRICT_ACK", "yes"},
                                                                      {"NCCL_IB_TIMEOUT", "20ms"},
                                                                      {"R2CC_PROBE_MS", "-1"},
                                                                      {"NCCL_IB_RETRY_CNT", "8"}}) {
    auto config = with({{name, value}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidConfig);
    EXPECT_NE(config.error().message.find(name + "='" + value + "'"), std::string::npos)
        << config.error().message;
  }
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

}  // namespace
}  // namespace r2ccl
