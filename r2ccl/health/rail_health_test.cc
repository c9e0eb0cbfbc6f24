// SPDX-License-Identifier: Apache-2.0
// Failback's patience, with a clock that the test owns.
#include "r2ccl/health/rail_health.h"

#include <gtest/gtest.h>

namespace r2ccl::health {
namespace {

constexpr RailPolicy kPolicy{200, 100, 1000};

TEST(RailHealth, is_tried_again_after_its_wait_and_not_before) {
  RailHealth rail(kPolicy);
  EXPECT_EQ(rail.state(), RailState::kUp);
  rail.failed(10);
  EXPECT_FALSE(rail.should_try(109));
  EXPECT_TRUE(rail.should_try(110));
}

TEST(RailHealth, returns_only_after_the_settling_time) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  rail.trying();
  rail.try_succeeded(150);
  EXPECT_FALSE(rail.settled(349));
  EXPECT_TRUE(rail.settled(350));
  rail.restored(350);
  EXPECT_EQ(rail.state(), RailState::kUp);
}

TEST(RailHealth, waits_twice_as_long_after_each_failed_try_up_to_the_ceiling) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  uint64_t now = 0, previous = rail.wait_ns();
  for (int i = 0; i < 10; ++i) {
    now += rail.wait_ns();
    ASSERT_TRUE(rail.should_try(now));
    rail.trying();
    rail.try_failed(now);
    EXPECT_EQ(rail.wait_ns(), std::min<uint64_t>(previous * 2, kPolicy.ceiling_ns));
    previous = rail.wait_ns();
  }
  EXPECT_EQ(previous, kPolicy.ceiling_ns);
}

TEST(RailHealth, a_rail_that_fails_soon_after_failback_is_flapping) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  rail.trying();
  rail.try_succeeded(100);
  rail.restored(300);
  rail.failed(400);
  EXPECT_EQ(rail.wait_ns(), 200u);
  rail.trying();
  rail.try_succeeded(600);
  rail.restored(800);
  rail.failed(900);
  EXPECT_EQ(rail.wait_ns(), 400u);
}

TEST(RailHealth, a_long_time_without_failure_is_forgiven) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  rail.trying();
  rail.try_failed(100);
  rail.trying();
  rail.try_succeeded(300);
  rail.restored(500);
  rail.failed(500 + 50 * kPolicy.settle_ns);
  EXPECT_EQ(rail.wait_ns(), kPolicy.first_wait_ns);
}

TEST(RailHealth, a_port_that_is_said_to_be_active_is_tried_at_once) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  EXPECT_FALSE(rail.should_try(20));
  rail.hint_active(20);
  EXPECT_TRUE(rail.should_try(20));
}

TEST(RailHealth, a_hint_while_it_is_up_changes_nothing) {
  RailHealth rail(kPolicy);
  rail.hint_active(20);
  EXPECT_EQ(rail.state(), RailState::kUp);
  EXPECT_FALSE(rail.should_try(1000));
}

TEST(RailHealth, says_that_a_try_is_near) {
  RailHealth rail(kPolicy);
  EXPECT_FALSE(rail.should_try_soon(0, ~0ull / 2)) << "it works";
  rail.failed(0);
  const uint64_t wait = rail.wait_ns();
  EXPECT_FALSE(rail.should_try_soon(0, wait - 1));
  EXPECT_TRUE(rail.should_try_soon(0, wait));
  EXPECT_TRUE(rail.should_try_soon(wait, 0));
  rail.trying();
  EXPECT_FALSE(rail.should_try_soon(wait, wait)) << "it is being tried";
}

TEST(RailHealth, it_never_gives_up) {
  RailHealth rail(kPolicy);
  rail.failed(0);
  uint64_t now = 0;
  for (int i = 0; i < 10000; ++i) {
    now += kPolicy.ceiling_ns;
    ASSERT_TRUE(rail.should_try(now));
    rail.trying();
    rail.try_failed(now);
  }
}

}  // namespace
}  // namespace r2ccl::health
