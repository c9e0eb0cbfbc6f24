// SPDX-License-Identifier: Apache-2.0
// Which GID is taken, over tables as real ports have them.
#include "r2ccl/verbs/gid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <map>

#include <string>
#include <vector>

namespace r2ccl::verbs {
namespace {

constexpr auto kV1 = IBV_GID_TYPE_ROCE_V1;
constexpr auto kV2 = IBV_GID_TYPE_ROCE_V2;

/// A table by index; an empty address is an entry that nobody configured.
class Table {
 public:
  Table& add(const std::string& address, ibv_gid_type type) {
    ibv_gid_entry entry{};
    entry.gid_index = uint32_t(entries_.size());
    entry.gid_type = type;
    const bool v4 = address.find('.') != std::string::npos;
    if (!address.empty()) {
      EXPECT_EQ(inet_pton(AF_INET6, ((v4 ? "::ffff:" : "") + address).c_str(), entry.gid.raw), 1) << address;
    }
    entries_.push_back(entry);
    return *this;
  }
  std::vector<ibv_gid_entry> entries_;
};

Config with(std::map<std::string, std::string> environment) {
  auto config = Config::from([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
  EXPECT_TRUE(config.ok());
  return config.ok() ? *config : Config{};
}

int chosen(const Table& table, const Config& config) {
  const GidChoice choice = choose_gid(table.entries_, config);
  EXPECT_TRUE(choice.as_asked);
  return choice.index;
}

int next_best(const Table& table, const Config& config) {
  const GidChoice choice = choose_gid(table.entries_, config);
  EXPECT_FALSE(choice.as_asked);
  return choice.index;
}

/// As the kernel fills it for an interface with a link-local, an IPv4 and a global IPv6 address.
Table usual() {
  return Table()
      .add("fe80::1", kV1)
      .add("fe80::1", kV2)
      .add("10.1.0.5", kV1)
      .add("10.1.0.5", kV2)
      .add("fd00:7::5", kV1)
      .add("fd00:7::5", kV2);
}

TEST(Gid, without_settings_the_first_of_roce_v2_over_ipv4) {
  EXPECT_EQ(chosen(usual(), with({})), 3);
  EXPECT_EQ(chosen(usual().add("10.2.0.5", kV2), with({})), 3);
}

TEST(Gid, follows_version_and_family) {
  EXPECT_EQ(chosen(usual(), with({{"NCCL_IB_ROCE_VERSION_NUM", "1"}})), 2);
  EXPECT_EQ(chosen(usual(), with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}})), 5);
  EXPECT_EQ(chosen(usual(), with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ROCE_VERSION_NUM", "1"}})),
            4);
}

TEST(Gid, follows_the_range) {
  const Table two = usual().add("10.2.0.5", kV1).add("10.2.0.5", kV2);
  EXPECT_EQ(chosen(two, with({{"NCCL_IB_ADDR_RANGE", "10.2.0.0/16"}})), 7);
  EXPECT_EQ(chosen(two, with({{"NCCL_IB_ADDR_RANGE", "10.0.0.0/8"}})), 3);
  EXPECT_EQ(chosen(usual().add("fd00:8::5", kV2),
                   with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", "fd00:8::/32"}})),
            6);
}

TEST(Gid, the_range_weighs_more_than_the_version) {
  const Table table = Table().add("10.1.0.5", kV2).add("10.2.0.5", kV1);
  EXPECT_EQ(next_best(table, with({{"NCCL_IB_ADDR_RANGE", "10.2.0.0/16"}})), 1);
}

TEST(Gid, where_nothing_is_in_the_range_the_best_of_the_rest) {
  EXPECT_EQ(next_best(usual(), with({{"NCCL_IB_ADDR_RANGE", "192.168.0.0/16"}})), 3);
  const Table only_six = Table().add("fe80::1", kV1).add("fe80::1", kV2).add("fd00:7::5", kV2);
  EXPECT_EQ(next_best(only_six, with({})), 2) << "one that routers forward";
  EXPECT_EQ(next_best(Table().add("fe80::1", kV1).add("fe80::1", kV2), with({})), 1);
  EXPECT_EQ(next_best(Table().add("fe80::1", kV1), with({})), 0);
}

TEST(Gid, a_link_local_address_is_in_no_range) {
  const Table table = Table().add("fe80::1", kV2).add("fd00:7::5", kV2);
  EXPECT_EQ(chosen(table, with({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}})), 1);
}

TEST(Gid, entries_that_nobody_configured_are_passed_over) {
  const Table holes = Table().add("", kV2).add("fe80::", kV2).add("", kV1).add("10.1.0.5", kV2);
  EXPECT_EQ(chosen(holes, with({})), 3);
  EXPECT_EQ(next_best(Table().add("", kV2).add("fe80::", kV2), with({})), 0);
  EXPECT_EQ(next_best(Table(), with({})), 0);
}

TEST(Gid, says_the_index_of_a_table_with_entries_that_could_not_be_read) {
  Table table = usual();
  table.entries_.erase(table.entries_.begin(), table.entries_.begin() + 2);
  EXPECT_EQ(chosen(table, with({})), 3);
}

}  // namespace
}  // namespace r2ccl::verbs
