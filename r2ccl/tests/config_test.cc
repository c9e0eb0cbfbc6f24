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
                                                                      {"NCCL_IB_PKEY", "65536"},
                                                                      {"NCCL_IB_ROCE_VERSION_NUM", "3"},
                                                                      {"NCCL_IB_PCI_RELAXED_ORDERING", "on"},
                                                                      {"NCCL_IB_RETRY_CNT", "8"}}) {
    auto config = with({{name, value}});
    ASSERT_FALSE(config.ok()) << name;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidConfig);
    EXPECT_NE(config.error().message.find(name + "='" + value + "'"), std::string::npos)
        << config.error().message;
  }
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

TEST(Config, a_bad_address_range_is_refused_with_what_is_accepted) {
  for (const char* value :
       {"10.1.0.0", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.0/8x", "10.1.0/8", "fd00::/8", "/8"}) {
    auto config = with({{"NCCL_IB_ADDR_RANGE", value}});
    ASSERT_FALSE(config.ok()) << value;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidConfig);
    EXPECT_EQ(config.error().message,
              std::string("NCCL_IB_ADDR_RANGE='") + value +
                  "' is not an address of AF_INET, '/' and a number of bits from 0 to 32");
  }
  EXPECT_FALSE(with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", "10.0.0.0/8"}}).ok());
  EXPECT_FALSE(with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", "fd00::/129"}}).ok());
  auto config = with({{"NCCL_IB_ADDR_FAMILY", "inet"}});
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().message, "NCCL_IB_ADDR_FAMILY='inet' is neither AF_INET nor AF_INET6");
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
