// SPDX-License-Identifier: Apache-2.0
// Who wanted a path learns what has become of it, and nobody else does.
#include "r2ccl/protocol/wishes.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kNow = 1'000'000 * kMs;
constexpr Rail kRail{1, 2};
constexpr auto kWorks = [] { return true; };  // the home rail may

/// A sender; `has_room`, where it lacks a path that stands by.
struct Standby {
  bool has_room;
  Phase phase() const { return Phase::kRunning; }
  bool resilient() const { return true; }
  bool room() const { return has_room; }
  bool has_lanes() const { return false; }
  bool stands_by() const { return false; }
};
constexpr Standby kLacks{true};

struct Sender {
  OpeningRetries retries;
  RailRecord rails;
  Failback failback{{200 * kMs, Failback::kFirstWaitNs, 10'000 * kMs}};
  SpreadMove move{200 * kMs, 10'000 * kMs, 7};
  Wishes wishes{retries, rails, failback, move};

  /// Home has failed, and is being tried again.
  void tries_home() {
    failback.rail_failed(kNow - 1000 * kMs);
    ASSERT_EQ(failback.look({}, kNow, kWorks), FailbackAct::kOpen);
  }
};

TEST(Wishes, the_first_path_is_used_at_once) {
  Sender s;
  EXPECT_EQ(s.wishes.opened(Purpose::kFirst, 1, kRail, kNow), Opened::kUse);
  EXPECT_EQ(s.wishes.opened(Purpose::kRescue, 2, kRail, kNow), Opened::kStandsBy) << "the choice takes it";
  EXPECT_EQ(s.wishes.opened(Purpose::kLane, 3, kRail, kNow), Opened::kLookLanes);
  EXPECT_EQ(s.failback.path(), 0u);
  EXPECT_EQ(s.move.path(), 0u);
}

TEST(Wishes, a_standby_that_is_open_ends_the_waiting_and_what_failed_counts_no_more) {
  Sender s;
  for (int i = 0; i < 3; ++i) s.wishes.failed(Purpose::kStandby, kRail, kNow);
  EXPECT_EQ(s.rails.count(1, 2), 3u);
  EXPECT_FALSE(s.retries.standby_due(kLacks, kNow + OpeningRetries::kStandbyNs));
  EXPECT_EQ(s.wishes.opened(Purpose::kStandby, 4, kRail, kNow), Opened::kStandsBy);
  EXPECT_EQ(s.rails.count(1, 2), 0u);
  s.wishes.failed(Purpose::kStandby, kRail, kNow);
  EXPECT_TRUE(s.retries.standby_due(kLacks, kNow))
      << "the first failure since: another rail is tried at once";
}

TEST(Wishes, a_path_home_is_on_probation_and_one_for_a_move_is_moved_to) {
  Sender s;
  s.tries_home();
  EXPECT_EQ(s.wishes.opened(Purpose::kFailback, 5, kRail, kNow), Opened::kStandsBy);
  EXPECT_TRUE(s.failback.has(5));
  EXPECT_EQ(s.wishes.opened(Purpose::kSpread, 6, kRail, kNow), Opened::kStandsBy);
  EXPECT_TRUE(s.move.has(6));
  s.wishes.dropped(6, kNow);
  EXPECT_EQ(s.move.path(), 0u);
  EXPECT_TRUE(s.failback.has(5)) << "another path was given up";
  s.wishes.dropped(5, kNow);
  EXPECT_EQ(s.failback.path(), 0u);
}

TEST(Wishes, a_rail_that_failed_is_left_alone_for_a_while) {
  for (const Purpose purpose :
       {Purpose::kFirst, Purpose::kStandby, Purpose::kRescue, Purpose::kFailback, Purpose::kSpread}) {
    Sender s;
    if (purpose == Purpose::kFailback) s.tries_home();
    s.wishes.failed(purpose, kRail, kNow);
    EXPECT_EQ(s.rails.count(1, 2), 1u);
    EXPECT_TRUE(s.rails.barred(1, 2, kNow + OpeningRetries::kRailNs - 1));
    EXPECT_FALSE(s.rails.barred(1, 2, kNow + OpeningRetries::kRailNs));
    EXPECT_FALSE(s.rails.barred(2, 1, kNow));
  }
}

TEST(Wishes, a_lane_that_fails_again_is_left_alone_for_longer) {
  Sender s;
  s.wishes.failed(Purpose::kLane, kRail, kNow);
  EXPECT_FALSE(s.rails.barred(1, 2, kNow + OpeningRetries::kRailNs));
  s.wishes.failed(Purpose::kLane, kRail, kNow);
  EXPECT_TRUE(s.rails.barred(1, 2, kNow + OpeningRetries::kRailNs));
  s.wishes.opened(Purpose::kLane, 3, kRail, kNow);
  s.wishes.failed(Purpose::kLane, kRail, kNow);
  EXPECT_FALSE(s.rails.barred(1, 2, kNow + OpeningRetries::kRailNs)) << "it has worked meanwhile";
}

TEST(Wishes, a_nic_that_cannot_be_moved_to_is_not_tried_again_soon) {
  Sender s;
  s.wishes.failed(Purpose::kStandby, kRail, kNow);
  EXPECT_TRUE(s.move.may_go_to(1, kNow)) << "nobody wanted to move";
  s.wishes.failed(Purpose::kSpread, kRail, kNow);
  EXPECT_FALSE(s.move.may_go_to(1, kNow + 9'999 * kMs));
  EXPECT_TRUE(s.move.may_go_to(1, kNow + 10'000 * kMs));
  EXPECT_TRUE(s.move.may_go_to(2, kNow));
}

TEST(Wishes, home_that_could_not_be_opened_is_tried_later_each_time) {
  Sender s;
  s.tries_home();
  s.wishes.failed(Purpose::kFailback, kRail, kNow);
  EXPECT_EQ(s.failback.look({}, kNow, kWorks), FailbackAct::kNone);
  EXPECT_EQ(s.failback.look({}, kNow + 1000 * kMs, kWorks), FailbackAct::kOpen);
}

TEST(Wishes, without_a_rail_a_standby_waits) {
  Sender s;
  s.wishes.no_rail(Purpose::kFirst, kNow);
  EXPECT_TRUE(s.retries.standby_due(kLacks, kNow)) << "of a first path nothing follows";
  s.wishes.no_rail(Purpose::kStandby, kNow);
  EXPECT_FALSE(s.retries.standby_due(kLacks, kNow + OpeningRetries::kStandbyNs - 1));
  EXPECT_TRUE(s.retries.standby_due(kLacks, kNow + OpeningRetries::kStandbyNs));
}

TEST(Wishes, when_a_path_carries_a_standby_is_wanted_at_once_and_no_move_goes_on) {
  Sender s;
  s.wishes.no_rail(Purpose::kStandby, kNow);
  s.move.takes(6);
  s.wishes.carries(kNow + kMs);
  EXPECT_TRUE(s.retries.standby_due(kLacks, kNow + kMs)) << "the one that stood by may carry now";
  EXPECT_EQ(s.move.path(), 0u);
}

TEST(OpeningRetries, says_what_is_opened_next) {
  const OpeningRetries retries;
  EXPECT_EQ(retries.due(true, Standby{false}, kNow), Purpose::kFirst);
  EXPECT_EQ(retries.due(false, Standby{false}, kNow), std::nullopt);
  EXPECT_EQ(retries.due(false, kLacks, kNow), Purpose::kStandby);
}

}  // namespace
}  // namespace r2ccl
