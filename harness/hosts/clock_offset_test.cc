// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace r2bench {
namespace {

TEST(ClockOffset, is_the_middle_of_what_a_round_trip_allows) {
  ClockOffset clock;
  EXPECT_FALSE(clock.known());
  // The host is 1000 ahead; 30 there, 10 in the host, 50 back.
  clock.add({100, 1130, 1140, 190});
  ASSERT_TRUE(clock.known());
  EXPECT_EQ(clock.offset_ns(), 990);
  EXPECT_EQ(clock.bound_ns(190), 40u) << "half of the time on the way";
  EXPECT_EQ(clock.to_runner(1190), 200u);
  EXPECT_EQ(clock.to_runner(0), 0u) << "never stays never";
}

TEST(ClockOffset, a_host_that_is_behind_has_a_negative_one) {
  ClockOffset clock;
  clock.add({5'000, 1'010, 1'020, 5'030});
  EXPECT_EQ(clock.offset_ns(), -4'000);
  EXPECT_EQ(clock.to_runner(1'500), 5'500u);
}

TEST(ClockOffset, a_slow_answer_does_not_replace_a_quick_one) {
  ClockOffset clock;
  clock.add({1'000, 2'010, 2'010, 1'020});
  clock.add({2'000, 3'900, 3'900, 3'000});
  EXPECT_EQ(clock.offset_ns(), 1'000);
  EXPECT_EQ(clock.bound_ns(1'020), 10u);
}

TEST(ClockOffset, what_is_known_gets_old) {
  ClockOffset clock;
  clock.add({1'000, 2'010, 2'010, 1'020});
  EXPECT_EQ(clock.bound_ns(1'020 + 1'000'000'000), 10u + 1'001'001);
  // A slower answer is then the better one.
  clock.add({1'000'000'000, 1'000'401'000, 1'000'401'000, 1'000'800'000});
  EXPECT_EQ(clock.bound_ns(1'000'800'000), 400'800u + 401);
}

TEST(ClockOffset, a_time_before_the_answer_has_the_bound_of_its_distance) {
  constexpr uint64_t kMinute = 60'000'000'000;
  ClockOffset clock;
  // The host's clock is 1000 ppm faster, and shows 200 s when the runner's shows 100 s.
  const auto host = [](uint64_t now) {
    return 200'000'000'000 + uint64_t(1.001 * double(now)) - 100'100'000'000;
  };
  const uint64_t now = 100'000'000'000;
  clock.add({now, host(now + 10), host(now + 10), now + 20});
  const uint64_t event = now - kMinute, seen = clock.to_runner(host(event));
  EXPECT_NEAR(double(seen) - double(event), -60e6, 1e3) << "one sample cannot tell the rate";
  EXPECT_GE(clock.bound_ns(seen), event - seen);
  EXPECT_LE(clock.bound_ns(seen), 61'000'000u);
}

TEST(ClockOffset, an_old_time_is_converted_by_the_answer_next_to_it) {
  ClockOffset clock;
  const auto host = [](uint64_t now) { return 7'000'000'000 + now + now / 1000; };
  for (uint64_t now = 1'000'000'000; now <= 100'000'000'000; now += 100'000'000)
    clock.add({now, host(now + 10'000), host(now + 10'000), now + 20'000});
  for (const uint64_t event :
       std::initializer_list<uint64_t>{2'000'000'000, 40'030'000'000, 40'070'000'000, 98'990'000'000}) {
    const auto [seen, bound] = clock.convert(host(event));
    EXPECT_LE(std::abs(double(seen) - double(event)), double(bound));
    EXPECT_LE(bound, 120'000u) << "half a round trip, and the drift of 100 ms at most";
  }
  const auto [seen, bound] = clock.convert(host(500'000'000));
  EXPECT_LE(std::abs(double(seen) - 5e8), double(bound)) << "before the first answer";
  EXPECT_LE(bound, 600'000u);
}

// A host that was suspended: its clock stood still for 3 s.
TEST(ClockOffset, a_jump_is_part_of_every_bound) {
  constexpr uint64_t kJump = 3'000'000'000;
  ClockOffset clock;
  const auto ask = [&](uint64_t now, uint64_t behind) {
    const uint64_t host = 50'000'000'000 + now - behind;
    clock.add({now, host + 10'000, host + 10'000, now + 20'000});
  };
  for (uint64_t now = 10'000'000'000; now <= 12'000'000'000; now += 100'000'000) ask(now, 0);
  EXPECT_EQ(clock.beyond_ns(), 0u);
  ask(16'000'000'000, kJump);
  EXPECT_EQ(clock.beyond_ns(), kJump);
  EXPECT_GE(clock.bound_ns(16'000'100'000), clock.beyond_ns());
  for (uint64_t now = 16'100'000'000; now <= 20'000'000'000; now += 100'000'000) ask(now, kJump);
  const auto [seen, bound] = clock.convert(50'000'000'000 + 13'000'000'000);  // before it stood still
  EXPECT_LE(std::abs(double(seen) - 13e9), double(bound));
}

// As chrony corrects a large error: by 8 %, for half a minute.
TEST(ClockOffset, a_clock_that_is_corrected_fast_is_within_its_bound) {
  constexpr uint64_t kBegin = 1'000'000'000'000, kMs = 1'000'000;
  ClockOffset clock;
  const auto host = [](uint64_t now) { return now + (now - kBegin) / 12; };
  for (uint64_t now = kBegin; now <= kBegin + 30'000 * kMs; now += 100 * kMs)
    clock.add({now, host(now + 10'000), host(now + 10'000), now + 20'000});
  EXPECT_GT(clock.beyond_ns(), 0u);
  for (const uint64_t after_ms : {500, 20'030, 29'100, 29'990}) {
    const uint64_t event = kBegin + after_ms * kMs;
    const auto [seen, bound] = clock.convert(host(event));
    EXPECT_LE(std::abs(double(seen) - double(event)), double(bound));
  }
}

TEST(ClockOffset, an_answer_before_its_question_is_no_sample) {
  ClockOffset clock;
  clock.add({1'000, 2'000, 3'000, 1'500});
  EXPECT_FALSE(clock.known());
}

TEST(ClockOffset, the_truth_is_always_within_the_bound) {
  std::mt19937_64 random(7);
  const auto up_to = [&](uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random); };
  for (int run = 0; run < 200; ++run) {
    // The host's clock runs apart by up to 1000 ppm, in either direction.
    const double rate = 1 + (double(up_to(2000)) - 1000) * 1e-6;
    const double ahead = double(up_to(2'000'000'000)) - 1e9;
    const auto host = [&](uint64_t now) { return uint64_t(2e9 + ahead + rate * double(now)); };
    ClockOffset clock;
    uint64_t now = 1'000'000'000;
    for (int i = 0; i < 100; ++i) {
      ClockSample sample;
      sample.sent_ns = now;
      sample.received_ns = host(now += 1 + up_to(300'000));
      sample.answered_ns = host(now += up_to(2'000'000));
      sample.returned_ns = now += 1 + up_to(300'000);
      clock.add(sample);
      now += up_to(200'000'000);
      const double truth = double(now), seen = double(clock.to_runner(host(now)));
      ASSERT_LE(std::abs(seen - truth), double(clock.bound_ns(now)) + 2) << "run " << run << ", sample " << i;
    }
  }
}

}  // namespace
}  // namespace r2bench
