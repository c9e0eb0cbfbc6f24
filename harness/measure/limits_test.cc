#include "harness/measure/limits.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using Capacity = std::vector<std::vector<double>>;

TEST(BandwidthLimit, healthy_jobs_keep_everything_in_every_mode) {
  for (ModeKind mode : {ModeKind::kBaseline, ModeKind::kMigrate, ModeKind::kBalance, ModeKind::kAllReduce})
    EXPECT_DOUBLE_EQ(bandwidth_limit(mode, Capacity(2, {1, 1, 1, 1}), {1, 1, 1, 1}), 1.0);
}

TEST(BandwidthLimit, under_migration_one_backup_nic_carries_two_nics_load) {
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{1, 1, 1, 1}, {0, 1, 1, 1}}, {1, 1, 1, 1}), 0.5);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{1, 1, 1, 1}, {0, 0, 1, 1}}, {1, 1, 1, 1}), 0.5);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{0, 0, 0, 1}}, {1, 1, 1, 1}), 0.25);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{0, 1}}, {2, 2}), 0.5);
}

TEST(BandwidthLimit, a_dead_nic_without_channels_costs_nothing) {
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{1, 0}}, {1, 0}), 1.0);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{0, 1}}, {1, 0}), 1.0);
}

TEST(BandwidthLimit, a_throttled_nic_holds_up_migration_but_only_its_share_of_balance) {
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{0.1, 1, 1, 1}}, {1, 1, 1, 1}), 0.1);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kBalance, {{0.1, 1, 1, 1}}, {1, 1, 1, 1}), 3.1 / 4);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kBalance, {{0, 1, 1, 1}}, {1, 1, 1, 1}), 0.75);
}

TEST(BandwidthLimit, nothing_is_kept_without_a_nic_or_without_resilience) {
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kMigrate, {{0, 0}}, {1, 1}), 0.0);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kBalance, {{0, 0}}, {1, 1}), 0.0);
  EXPECT_DOUBLE_EQ(bandwidth_limit(ModeKind::kBaseline, {{0, 1}}, {1, 1}), 0.0);
}

TEST(ChannelsPerNic, are_dealt_out_in_turn) {
  EXPECT_EQ(channels_per_nic(6, 4), (std::vector<int>{2, 2, 1, 1}));
  EXPECT_EQ(channels_per_nic(1, 2), (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace r2bench
