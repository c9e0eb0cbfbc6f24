// SPDX-License-Identifier: Apache-2.0
// StallTimer and AdaptiveBound: what silence leads to, and when.
#include "r2ccl/protocol/stall_timer.h"

#include <gtest/gtest.h>

#include <vector>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSuspect = 10 * kMs, kStuck = 400 * kMs;

/// An end with something open that never moves, looked at every millisecond.
struct Silent {
  StallTimer timer{kSuspect, kStuck};
  uint64_t now = 0;
  Silent() { timer.tick(0), timer.restart(1); }
  /// Goes on until `f` says true, or for a minute; returns the silence in ms.
  template <typename F>
  uint64_t until(F&& f) {
    for (const uint64_t last = now + 60'000 * kMs; now < last;) {
      timer.tick(now += kMs);
      if (timer.suspicious() && f()) break;
    }
    return timer.silence() / kMs;
  }
};

TEST(AdaptiveBound, follows_the_usual_within_limits) {
  AdaptiveBound bound(5, 100, 1000);
  EXPECT_EQ(bound.ns(), 100u);
  bound.ended_after(400);
  EXPECT_EQ(bound.ns(), 500u);
  bound.ended_after(100'000);
  EXPECT_EQ(bound.ns(), 1000u);
  for (int i = 0; i < 200; ++i) bound.ended_after(1);
  EXPECT_EQ(bound.ns(), 100u) << "what was long once is forgotten";
}

TEST(AdaptiveBound, doubles_while_it_is_acted_on_in_vain) {
  AdaptiveBound bound(80, 100, 400);
  bound.acted_on();
  bound.acted_on();
  EXPECT_EQ(bound.ns(), 400u);
  bound.acted_on();
  EXPECT_EQ(bound.ns(), 800u) << "beyond the limit of what is usual";
  bound.moved();
  EXPECT_EQ(bound.ns(), 100u);
}

TEST(AdaptiveBound, each_action_in_vain_doubles_the_least_within_the_limits) {
  AdaptiveBound bound(16, 100, 1000);
  EXPECT_EQ(bound.ns(0), 100u);
  EXPECT_EQ(bound.ns(2), 400u);
  EXPECT_EQ(bound.ns(63), 1000u);
  bound.ended_after(200);
  EXPECT_EQ(bound.ns(2), 800u) << "four times the usual, which is more";
  EXPECT_EQ(AdaptiveBound(16, 100, 50).ns(1), 100u) << "the least is above the most";
}

TEST(AdaptiveBound, fades) {
  AdaptiveBound bound(16, 100, 1000);
  bound.ended_after(200);
  bound.fade(1);
  EXPECT_EQ(bound.ns(), 400u);
  bound.fade(64);
  EXPECT_EQ(bound.usual(), 0u);
}

TEST(StallTimer, is_suspicious_after_the_bound) {
  Silent s;
  EXPECT_EQ(s.until([] { return true; }), kSuspect / kMs);
}

// A channel comes to be when its process has run for long, and what is opened at once has waited for nothing.
TEST(StallTimer, time_before_the_first_look_is_no_silence) {
  StallTimer timer(kSuspect, kStuck);
  timer.tick(3'600'000 * kMs);
  EXPECT_FALSE(timer.suspicious());
  EXPECT_FALSE(timer.slow_peer());
  EXPECT_FALSE(timer.stuck());
  timer.answered();
  EXPECT_FALSE(timer.probe_due()) << "the first pause is as long as after anything moved";
  timer.tick(3'600'000 * kMs + StallTimer::kFirstProbePauseNs);
  EXPECT_TRUE(timer.probe_due());
}

TEST(StallTimer, what_the_progress_thread_has_waited_counts) {
  Silent s;
  s.timer.polled_in_vain(1);
  s.timer.tick(s.now += kMs);
  EXPECT_TRUE(s.timer.suspicious());
}

TEST(StallTimer, time_in_which_nobody_waits_does_not_count) {
  Silent s;
  s.timer.tick(s.now += 1000 * kMs);
  s.timer.restart(1);
  EXPECT_EQ(s.until([] { return true; }), kSuspect / kMs);
}

TEST(StallTimer, a_usual_silence_is_not_suspicious) {
  Silent s;
  s.until([&] { return s.timer.silence() >= 12 * kMs; });
  s.timer.restart(2);
  EXPECT_EQ(s.until([] { return true; }), 15u) << "five quarters of it";
  s.until([&] { return s.timer.silence() >= 900 * kMs; });
  s.timer.restart(3);
  EXPECT_EQ(s.until([] { return true; }), 2 * kSuspect / kMs) << "at most twice the bound";
}

TEST(StallTimer, requests_retransmission_at_once_and_then_with_each_probe) {
  Silent s;
  std::vector<uint64_t> requested;
  s.until([&] {
    s.timer.answered();
    if (s.timer.request_retransmit_due()) requested.push_back(s.timer.silence() / kMs);
    (void)s.timer.probe_due();
    return s.timer.silence() >= 200 * kMs;
  });
  EXPECT_EQ(requested, (std::vector<uint64_t>{10, 18, 35, 68, 133}));  // 8, 16, 32, 64 ms from the answer on
}

TEST(StallTimer, is_patient_before_it_calls_anything_stuck) {
  Silent s;
  EXPECT_EQ(s.until([&] { return s.timer.patient(); }), kStuck / 4 / kMs + 1);
  EXPECT_EQ(s.until([&] { return s.timer.stuck(); }), kStuck / kMs + 1);
}

TEST(StallTimer, work_that_was_not_open_all_the_while_is_not_stuck) {
  Silent s;
  s.until([&] {
    if (s.timer.silence() < 1000 * kMs) s.timer.nothing_open();
    return s.timer.stuck();
  });
  EXPECT_EQ(s.timer.silence() / kMs, 999 + kStuck / 2 / kMs + 1);
}

TEST(StallTimer, work_that_takes_long_must_have_been_open_for_long) {
  Silent s;
  s.until([&] {
    if (s.timer.silence() < 1000 * kMs) s.timer.nothing_open();
    return s.timer.stuck(700 * kMs);
  });
  EXPECT_EQ(s.timer.silence() / kMs, 999 + 700 + kStuck / 2 / kMs + 1);
}

TEST(StallTimer, a_work_request_may_take_eight_times_as_long_as_on_an_idle_port) {
  EXPECT_EQ(longest_work_ns(uint64_t{1} << 30, 25'000), 2'748'779'069u);  // 0.34 s over a NIC of 25 Gbit/s
  EXPECT_EQ(longest_work_ns(0, 400'000), 0u);
}

TEST(StallTimer, a_slow_rail_is_waited_for_twice_as_long_each_time) {
  Silent s;
  const auto stuck = [&] { return s.timer.stuck(); };
  EXPECT_EQ(s.until(stuck), 401u);
  s.timer.left_standing_still();
  s.timer.carries_on(1);
  EXPECT_EQ(s.until(stuck), 801u);
  s.timer.restart(2);
  s.timer.restart(2);
  EXPECT_GT(s.until(stuck), 401u) << "such a silence is usual now";
}

TEST(StallTimer, says_once_that_the_peer_is_slow) {
  Silent s;
  int told = 0;
  s.until([&] { return told += s.timer.slow_peer(), s.timer.silence() > 3000 * kMs; });
  EXPECT_EQ(told, 1);
}

TEST(StallTimer, counts_leaves_while_nothing_arrives) {
  Silent s;
  s.timer.left(7);
  s.timer.left(7);
  EXPECT_EQ(s.timer.leaves(7), 2u);
  EXPECT_EQ(s.timer.leaves(8), 0u);
  s.timer.left(8);
  EXPECT_EQ(s.timer.leaves(8), 1u);
}

}  // namespace
}  // namespace r2ccl
