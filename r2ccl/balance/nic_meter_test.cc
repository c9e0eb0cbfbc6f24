// SPDX-License-Identifier: Apache-2.0
// What one NIC has counted.
#include "r2ccl/balance/meter.h"

#include <gtest/gtest.h>

namespace r2ccl::balance {
namespace {

TEST(NicMeter, counts_what_is_under_way_at_each_completion) {
  NicMeter meter;
  uint64_t now = 1;
  const auto clock = [&] { return now++; };
  for (int i = 0; i < 3; ++i) meter.posted(NicMeter::kLeastBytes, clock);
  for (int i = 0; i < 3; ++i) meter.done(NicMeter::kLeastBytes, NicMeter::kLeastBytes, clock);
  EXPECT_EQ(meter.read().depth, 6u);
  EXPECT_EQ(meter.read().completions, 3u);
}

TEST(NicMeter, counts_what_is_busy_and_what_is_idle) {
  NicMeter meter;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  EXPECT_EQ(meter.posted(NicMeter::kLeastBytes - 1, now), 0) << "small ones do not count";
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 2000;
  EXPECT_EQ(meter.done(1 << 20, 2 << 20, now), 1);
  clock = 3000;
  EXPECT_EQ(meter.done(1 << 20, 2 << 20, now), 1);
  clock = 8000;  // 5000 idle
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 9000;
  meter.done(1 << 20, 2 << 20, now);
  meter.abandoned(1, clock);
  const NicMeter::Reading reading = meter.read();
  EXPECT_EQ(reading.bytes, 3u << 20);
  EXPECT_EQ(reading.work, 6u << 20);
  EXPECT_EQ(reading.completions, 3u);
  EXPECT_EQ(reading.idle_ns, 5000u);
  EXPECT_EQ(reading.last_done, 9000u);
  clock = 10000;
  EXPECT_EQ(meter.posted(1 << 20, now), 1);
  clock = 11000;
  meter.done(1 << 20, 1 << 20, now);
  EXPECT_EQ(meter.read().idle_ns, 6000u) << "abandoned writes do not keep a NIC busy";
}

TEST(NicMeter, counts_idle_time_to_the_span_in_which_it_lies) {
  NicMeter meter;
  uint64_t clock = 1000;
  const auto now = [&] { return clock; };
  meter.posted(1 << 20, now);
  clock = 2000;
  meter.done(1 << 20, 1 << 20, now);
  clock = 9000;  // 7000 idle behind the last completion; what is posted now is still under way
  meter.posted(1 << 20, now);
  const NicMeter::Reading first = meter.read();
  EXPECT_EQ(first.last_done, 2000u);
  EXPECT_EQ(first.idle_ns, 0u) << "from 1000 to 2000 it was busy, all the time";
  clock = 10000;
  meter.done(1 << 20, 1 << 20, now);
  const NicMeter::Reading second = meter.read();
  EXPECT_EQ(second.last_done - first.last_done, 8000u);
  EXPECT_EQ(second.idle_ns - first.idle_ns, 7000u) << "and here 1000 of 8000";
}

}  // namespace
}  // namespace r2ccl::balance
