// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/idle_time.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Looks every 0.1 ms; the time at which help is asked for, in ms; -1: it is not.
double asked_after(IdleTime& idle, uint64_t from_ms, uint64_t progress, uint64_t bound_ms, uint64_t for_ms) {
  for (uint64_t at = from_ms * kMs; at < (from_ms + for_ms) * kMs; at += kMs / 10)
    if (idle.look(at, progress, bound_ms * kMs)) return double(at - from_ms * kMs) / double(kMs);
  return -1;
}

TEST(IdleTime, help_is_asked_for_once_after_the_bound) {
  IdleTime idle;
  EXPECT_FALSE(idle.asks());
  EXPECT_NEAR(asked_after(idle, 1000, 7, 4, 20), 4.0, 0.2);
  EXPECT_TRUE(idle.asks());
  EXPECT_TRUE(idle.asks_at(7));
  EXPECT_FALSE(idle.asks_at(8)) << "something has moved since";
  EXPECT_EQ(asked_after(idle, 1020, 7, 4, 20), -1) << "twice for one silence";
  idle.helped();
  EXPECT_FALSE(idle.asks());
  EXPECT_EQ(asked_after(idle, 1040, 7, 4, 20), 0) << "it lasts: at once";
}

TEST(IdleTime, whatever_moves_begins_it_anew) {
  IdleTime idle;
  EXPECT_EQ(asked_after(idle, 0, 1, 4, 3), -1);
  EXPECT_EQ(asked_after(idle, 3, 2, 4, 3), -1);
  idle.begin();
  EXPECT_EQ(asked_after(idle, 6, 2, 4, 3), -1);
  EXPECT_NEAR(asked_after(idle, 9, 2, 4, 3), 1.0, 0.2);
}

TEST(IdleTime, a_thread_that_was_off_the_cpu_has_not_waited) {
  IdleTime idle;
  EXPECT_FALSE(idle.look(0, 1, 4 * kMs));
  EXPECT_FALSE(idle.look(10'000 * kMs, 1, 4 * kMs)) << "ten seconds asleep";
}

TEST(IdleTime, not_every_empty_test_looks_at_the_clock) {
  IdleTime idle;
  int looks = 0;
  for (int i = 0; i < 800; ++i) looks += idle.empty_test();
  EXPECT_EQ(looks, 100);
}

}  // namespace
}  // namespace r2ccl
