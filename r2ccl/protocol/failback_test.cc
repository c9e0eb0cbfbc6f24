// SPDX-License-Identifier: Apache-2.0
// Failback: when the home rail is tried, and when traffic returns to it.
#include "r2ccl/protocol/failback.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSettle = 500 * kMs, kFirstWait = Failback::kFirstWaitNs;

struct Away {
  Failback failback{{kSettle, kFirstWait, 8000 * kMs}};
  uint64_t now = 10'000 * kMs;
  Away() { failback.rail_failed(now); }
  bool home_may_work = true;
  FailbackAct looks(const FailbackSight& seen) {
    return failback.look(seen, now, [this] { return home_may_work; });
  }
};

TEST(Failback, the_home_rail_is_tried_after_a_while_and_once) {
  Away a;
  EXPECT_FALSE(a.failback.is_up());
  EXPECT_EQ(a.looks({}), FailbackAct::kNone);
  EXPECT_TRUE(a.failback.is_near(a.now));
  a.now += kFirstWait;
  EXPECT_EQ(a.looks({.opens = true}), FailbackAct::kNone) << "one path at a time";
  EXPECT_EQ(a.looks({.away = false}), FailbackAct::kNone);
  a.home_may_work = false;
  EXPECT_EQ(a.looks({}), FailbackAct::kNone);
  a.home_may_work = true;
  EXPECT_EQ(a.looks({}), FailbackAct::kOpen);
  EXPECT_EQ(a.looks({}), FailbackAct::kNone) << "it is being opened";
}

TEST(Failback, a_port_that_says_that_it_is_active_is_tried_at_once) {
  Away a;
  a.failback.rail_active(a.now);
  EXPECT_EQ(a.looks({}), FailbackAct::kOpen);
}

TEST(Failback, traffic_returns_when_probes_have_been_answered_for_the_settling_time) {
  Away a;
  a.failback.opened(7, a.now);
  EXPECT_TRUE(a.failback.has(7));
  EXPECT_EQ(a.looks({.has_path = true}), FailbackAct::kProbe);
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kAwaited}), FailbackAct::kNone);
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kAnswered, .probe_age = kMs}),
            FailbackAct::kNone);
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kAnswered, .probe_age = Failback::kProbeEveryNs}),
            FailbackAct::kProbe);
  a.now += kSettle;
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kAwaited}), FailbackAct::kNone)
      << "not before that one is answered";
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kAnswered}), FailbackAct::kReturn);
  a.failback.carries(7, true, a.now);
  EXPECT_TRUE(a.failback.is_up());
  EXPECT_FALSE(a.failback.has(7));
}

TEST(Failback, a_path_that_fails_on_probation_is_given_up_and_the_next_waits_longer) {
  Away a;
  a.failback.opened(7, a.now);
  EXPECT_EQ(a.looks({.has_path = true, .probe = ProbeSight::kFailed}), FailbackAct::kGiveUp);
  a.failback.dropped(8, a.now);
  EXPECT_TRUE(a.failback.has(7)) << "that was another path";
  a.failback.dropped(7, a.now);
  EXPECT_EQ(a.failback.path(), 0u);
  a.now += kFirstWait;
  EXPECT_EQ(a.looks({}), FailbackAct::kNone);
  a.now += kFirstWait;
  EXPECT_EQ(a.looks({}), FailbackAct::kOpen);
}

TEST(Failback, traffic_elsewhere_leaves_the_path_on_probation) {
  Away a;
  a.failback.opened(7, a.now);
  a.failback.carries(9, false, a.now);
  EXPECT_TRUE(a.failback.has(7));
  EXPECT_FALSE(a.failback.is_up());
}

TEST(Failback, at_home_nobody_asks_for_the_home_rail) {
  Away a;
  a.now += kFirstWait;
  int asked = 0;
  const auto ask = [&asked] { return ++asked > 0; };
  EXPECT_EQ(a.failback.look({.away = false}, a.now, ask), FailbackAct::kNone);
  EXPECT_EQ(a.failback.look({.opens = true}, a.now, ask), FailbackAct::kNone);
  EXPECT_EQ(a.failback.look({}, a.now - kMs, ask), FailbackAct::kNone);
  EXPECT_EQ(asked, 0) << "it costs a look at both NICs, in each turn of each channel";
}

TEST(Failback, zero_is_no_path) { EXPECT_FALSE(Away().failback.has(0)); }

TEST(Failback, a_path_that_cannot_be_opened_is_tried_again_later) {
  Away a;
  a.now += kFirstWait;
  EXPECT_EQ(a.looks({}), FailbackAct::kOpen);
  a.failback.opening_failed(a.now);
  EXPECT_EQ(a.looks({}), FailbackAct::kNone);
  a.now += 2 * kFirstWait;
  EXPECT_EQ(a.looks({}), FailbackAct::kOpen);
}

TEST(Failback, nothing_is_asked_of_a_path_that_is_gone) {
  Away a;
  a.failback.opened(7, a.now);
  EXPECT_EQ(a.looks({}), FailbackAct::kNone);
}

// As a rail does that comes back and fails again: it waits for twice as long.
TEST(Failback, traffic_that_moves_over_a_home_rail_that_has_not_failed_is_no_return) {
  Failback failback{{kSettle, kFirstWait, 8000 * kMs}};
  const uint64_t now = 10'000 * kMs;
  failback.carries(7, true, now);
  failback.rail_failed(now + kMs);
  EXPECT_EQ(failback.look({}, now + kMs + kFirstWait, [] { return true; }), FailbackAct::kOpen);
}

TEST(Failback, comes_home_when_another_path_was_left_for_a_home_path) {
  Away a;
  EXPECT_FALSE(a.failback.carries(7, CarrySight{.home = false, .moved = true}, a.now));
  EXPECT_FALSE(a.failback.is_up());
  EXPECT_TRUE(a.failback.carries(8, CarrySight{.home = true, .moved = true}, a.now));
  EXPECT_TRUE(a.failback.is_up());
  EXPECT_FALSE(a.failback.carries(8, CarrySight{.home = true, .moved = false}, a.now))
      << "a lane was left, and the active path goes on";
}

TEST(Failback, a_channel_that_starts_away_from_home_looks_for_the_way_back) {
  Failback failback{{kSettle, kFirstWait, 8000 * kMs}};
  const uint64_t now = 10'000 * kMs;
  const CarrySight first{.home = false, .moved = true, .first = true};
  CarrySight without = first;
  without.resilient = false;
  EXPECT_FALSE(failback.carries(1, without, now));
  EXPECT_TRUE(failback.is_up()) << "there is nothing to come back from";
  EXPECT_FALSE(failback.carries(1, CarrySight{.home = true, .moved = true, .first = true}, now));
  EXPECT_TRUE(failback.is_up());
  EXPECT_FALSE(failback.carries(1, first, now));
  EXPECT_FALSE(failback.is_up());
}

TEST(Failback, a_first_path_over_home_is_no_return_either) {
  Away a;
  EXPECT_FALSE(a.failback.carries(7, CarrySight{.home = true, .moved = true, .first = true}, a.now));
  EXPECT_FALSE(a.failback.is_up()) << "home has failed before, and settles first";
}

TEST(Failback, only_a_failure_of_the_home_rail_makes_it_wait) {
  Failback failback{{kSettle, kFirstWait, 8000 * kMs}};
  failback.left(false, false, 10'000 * kMs);
  EXPECT_TRUE(failback.is_up()) << "another rail";
  failback.left(true, true, 10'000 * kMs);
  EXPECT_TRUE(failback.is_up()) << "it works";
  failback.left(true, false, 10'000 * kMs);
  EXPECT_FALSE(failback.is_up());
}

}  // namespace
}  // namespace r2ccl
