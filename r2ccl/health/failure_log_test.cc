// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/health/failure_log.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
const char kRail[] = "NIC a of x to NIC a of y";
const int channel[4] = {};

TEST(FailureLog, channels_that_leave_a_nic_together_are_one_line_when_the_last_goes_on) {
  FailureLog failure_log;
  for (int i = 0; i < 3; ++i)
    failure_log.left(&channel[i], 0, kRail, "event", "port error", 10 * kMs + uint64_t(i));
  failure_log.replayed(&channel[0], 2);
  failure_log.replayed(&channel[1], 1);
  failure_log.went_on(&channel[0], "NIC b of x to NIC b of y", 11 * kMs);
  failure_log.went_on(&channel[1], "NIC c of x to NIC c of y", 11 * kMs);
  EXPECT_TRUE(failure_log.due(11 * kMs + FailureLog::kSettled).empty()) << "one is on its way";
  failure_log.went_on(&channel[2], "NIC b of x to NIC b of y", 15 * kMs + 2);
  EXPECT_TRUE(failure_log.due(15 * kMs + 2).empty()) << "others may follow";
  EXPECT_TRUE(failure_log.open(0));
  EXPECT_FALSE(failure_log.open(1));
  const auto lines = failure_log.due(15 * kMs + 2 + FailureLog::kSettled);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "NIC a of x to NIC a of y failed: port error (detected by event); 3 channels migrated, the last "
            "after 5.0 ms, over NIC b of x to NIC b of y (2), NIC c of x to NIC c of y (1); 3 segments were "
            "retransmitted; a NIC that recovers is used again once it has answered probes for a while");
  EXPECT_FALSE(failure_log.open());
  EXPECT_TRUE(failure_log.due(FailureLog::kAll).empty()) << "told once";
}

TEST(FailureLog, a_nic_each) {
  FailureLog failure_log;
  failure_log.left(&channel[0], 0, kRail, "event", "port error", 0);
  failure_log.went_on(&channel[0], "NIC b of x to NIC b of y", kMs);
  failure_log.left(&channel[0], 1, "NIC b of x to NIC b of y", "watchdog", "silent", 2 * kMs);
  failure_log.went_on(&channel[0], "NIC c of x to NIC c of y", 3 * kMs);
  const auto lines = failure_log.due(100 * kMs);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("port error (detected by event); 1 channel migrated after 1.0 ms"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("silent (detected by watchdog); 1 channel migrated after 1.0 ms"),
            std::string::npos)
      << lines[1];
}

TEST(FailureLog, one_that_lasts_is_told_before_it_is_over_and_once) {
  FailureLog failure_log;
  failure_log.left(&channel[0], 0, kRail, "event", "port error", 0);
  EXPECT_TRUE(failure_log.due(FailureLog::kLong - 1).empty());
  const auto first = failure_log.due(FailureLog::kLong);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_NE(first[0].find("1 channel without a path"), std::string::npos) << first[0];
  EXPECT_TRUE(failure_log.due(2 * FailureLog::kLong).empty());
  failure_log.went_on(&channel[0], "NIC b of x to NIC b of y", 3 * FailureLog::kLong);
  EXPECT_EQ(failure_log.due(4 * FailureLog::kLong).size(), 1u);
}

TEST(FailureLog, channels_that_fail_or_end_meanwhile_do_not_keep_it_open) {
  FailureLog failure_log;
  failure_log.left(&channel[0], 0, kRail, "event", "port error", 0);
  failure_log.left(&channel[1], 0, kRail, "event", "port error", 0);
  failure_log.gave_up(&channel[0]);
  failure_log.went_on(&channel[1], "NIC b of x to NIC b of y", kMs);
  failure_log.gave_up(&channel[1]);  // is closed afterwards: nothing to tell
  const auto lines = failure_log.due(100 * kMs);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("1 channel migrated"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("1 channel failed or closed before another path was found"), std::string::npos)
      << lines[0];
}

TEST(FailureLog, what_is_open_when_the_process_ends_is_told) {
  FailureLog failure_log;
  failure_log.left(&channel[0], 0, kRail, "event", "port error", 0);
  const auto lines = failure_log.due(FailureLog::kAll);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("had no path when the process ended"), std::string::npos) << lines[0];
  EXPECT_FALSE(failure_log.open());
}

TEST(FailureLog, a_channel_that_has_left_nothing_changes_nothing) {
  FailureLog failure_log;
  failure_log.replayed(&channel[0], 5);
  failure_log.went_on(&channel[0], kRail, 1);
  failure_log.gave_up(&channel[0]);
  EXPECT_FALSE(failure_log.open());
  EXPECT_TRUE(failure_log.due(FailureLog::kAll).empty());
}

}  // namespace
}  // namespace r2ccl
