// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/ticker.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using namespace std::chrono_literals;

/// Until about `ticks` of 100 µs must have passed.
Distribution lateness_of(int ticks) {
  Ticker ticker(100us);
  std::this_thread::sleep_for(ticks * 100us);
  return ticker.stop();
}

TEST(Ticker, says_by_how_much_each_deadline_was_missed) {
  const Distribution late = lateness_of(200);
  EXPECT_GT(late.n, 0u);
  EXPECT_LE(late.n, 100'000u) << "it sleeps between them";
  EXPECT_GE(late.p50, 0) << "no thread wakes before its deadline";
  EXPECT_LE(late.p50, late.p99);
  EXPECT_LE(late.p99, late.max);
}

TEST(Ticker, that_is_not_stopped_ends_with_its_owner) { Ticker ticker(100us); }

}  // namespace
}  // namespace r2bench
