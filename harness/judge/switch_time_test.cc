// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/switch_time.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using r2ccl::trace::EventType;

RankEvent event(uint32_t rank, uint32_t channel, EventType type, double ms, uint64_t c = 0) {
  RankEvent e;
  e.rank = rank;
  e.event.channel = channel;
  e.event.type = type;
  e.event.time_ns = uint64_t(ms * 1e6);
  e.event.c = c;
  return e;
}

TEST(SwitchTime, ends_with_the_last_channel_end_that_was_fenced) {
  const std::vector<RankEvent> trace = {
      event(0, 0, EventType::kFenceStarted, 100),  event(1, 0, EventType::kFenceStarted, 100.4),
      event(0, 0, EventType::kMigrationDone, 101), event(1, 0, EventType::kMigrationDone, 102.5),
      event(1, 0, EventType::kMigrationDone, 150),   // a failback
      event(1, 3, EventType::kMigrationDone, 110)};  // was not fenced
  EXPECT_DOUBLE_EQ(switch_ms(trace, 100'000'000, 400'000'000).value(), 2.5);
}

TEST(SwitchTime, planned_fences_and_those_of_other_times_do_not_count) {
  const std::vector<RankEvent> trace = {
      event(0, 0, EventType::kFenceStarted, 50),     event(0, 0, EventType::kMigrationDone, 51),
      event(0, 1, EventType::kFenceStarted, 100),    event(0, 1, EventType::kMigrationDone, 101),
      event(0, 2, EventType::kFenceStarted, 105, 1), event(0, 2, EventType::kMigrationDone, 130),
      event(0, 4, EventType::kFenceStarted, 400),    event(0, 4, EventType::kMigrationDone, 401)};
  EXPECT_DOUBLE_EQ(switch_ms(trace, 100'000'000, 300'000'000).value(), 1);
}

TEST(SwitchTime, a_channel_that_found_no_path_never_switched) {
  const std::vector<RankEvent> trace = {event(0, 0, EventType::kFenceStarted, 100),
                                        event(0, 0, EventType::kMigrationDone, 101),
                                        event(1, 0, EventType::kFenceStarted, 101)};
  EXPECT_FALSE(switch_ms(trace, 100'000'000, 300'000'000));
  EXPECT_FALSE(switch_ms({}, 100'000'000, 300'000'000));
}

}  // namespace
}  // namespace r2bench
