// SPDX-License-Identifier: Apache-2.0
// turn.h: what the service thread does with a channel in which state, in which order, and how soon again.
#include "r2ccl/protocol/turn.h"

#include <gtest/gtest.h>

#include <vector>

namespace r2ccl {
namespace {

using enum TurnAct;
using Acts = std::vector<TurnAct>;

/// All that is due while nothing changes.
Acts due(const TurnSight& seen) {
  Acts acts;
  for (size_t i = 0; i < kTurnActs; ++i) {
    if (!is_due(TurnAct(i), seen)) continue;
    acts.push_back(TurnAct(i));
    if (ends_turn(TurnAct(i))) break;
  }
  return acts;
}

/// A channel in mode 1 whose traffic flows.
TurnSight running() {
  TurnSight seen;
  seen.greeted = seen.resilient = seen.active = true;
  return seen;
}
TurnSight in(Phase phase, MigrationEnd::Fence own = MigrationEnd::Fence::kPending, bool lane = false) {
  TurnSight seen = running();
  seen.active = lane;  // a lane is left, and the active path goes on
  seen.phase = phase;
  seen.own_fence = own;
  return seen;
}

TEST(Turn, of_a_channel_that_carries) {
  EXPECT_EQ(due(running()), (Acts{kHalves, kPaths, kTime, kWatch, kProbes, kComeHome, kSpread, kRetired}));
}

TEST(Turn, modes_that_balance_spread_traffic_over_lanes_instead) {
  TurnSight seen = running();
  seen.balances = true;
  EXPECT_EQ(due(seen), (Acts{kHalves, kPaths, kTime, kWatch, kProbes, kComeHome, kBalance, kRetired}));
  seen.phase = Phase::kFencing;
  EXPECT_FALSE(is_due(kBalance, seen)) << "lanes change when the migration is over";
}

TEST(Turn, a_path_that_is_marked_failed_is_left_before_anything_is_watched) {
  TurnSight seen = running();
  seen.suspected = true;
  EXPECT_EQ(due(seen), (Acts{kHalves, kPaths, kTime, kLeave, kProbes, kComeHome, kSpread, kRetired}));
}

TEST(Turn, without_resilience_there_is_nothing_to_watch) {
  TurnSight seen = running();
  seen.resilient = false;
  EXPECT_EQ(due(seen), (Acts{kHalves, kPaths}));
}

TEST(Turn, of_a_migration) {
  EXPECT_EQ(due(in(Phase::kFencing)),
            (Acts{kHalves, kPaths, kTime, kProbes, kFence, kUnfenced, kChoose, kSearch, kRetired}));
  EXPECT_EQ(due(in(Phase::kUnfenced)),
            (Acts{kHalves, kPaths, kTime, kProbes, kUnfenced, kChoose, kSearch, kRetired}));
  EXPECT_EQ(due(in(Phase::kWaitingForPeer, MigrationEnd::Fence::kCannot)),
            (Acts{kHalves, kPaths, kTime, kProbes, kRemoval, kUnfenced, kChoose, kSearch, kRetired}));
  for (const TurnAct act : {kWatch, kLeave, kComeHome, kSpread, kBalance})
    EXPECT_FALSE(is_due(act, in(Phase::kFencing, MigrationEnd::Fence::kPending, true)))
        << "also while the active path goes on";
}

TEST(Turn, of_a_channel_that_is_set_up) {
  TurnSight seen;
  seen.setting_up = seen.resilient = true;
  EXPECT_EQ(due(seen), (Acts{kSetUp})) << "no welcome yet";
  seen.outage = true;
  EXPECT_EQ(due(seen), (Acts{kSetUp, kOutage}));
  seen.outage = false;
  seen.greeted = true;
  EXPECT_EQ(due(seen), (Acts{kSetUp, kHalves, kPaths, kRetired}));
  seen.late = true;
  EXPECT_TRUE(is_due(kTooLate, seen));
  seen.setting_up = false;
  EXPECT_FALSE(is_due(kTooLate, seen)) << "a channel that carries is never too late";
}

TEST(Turn, an_end_is_the_end) {
  TurnSight seen = running();
  seen.peer_closed = true;
  EXPECT_EQ(due(seen), (Acts{kPeerClosed}));
  seen.peer_ended = true;
  EXPECT_EQ(due(seen), (Acts{kPeerEnded, kPeerClosed}));
  seen.failed = true;
  EXPECT_EQ(due(seen), (Acts{kAfterError}));
  seen.closes = true;
  EXPECT_EQ(due(seen), (Acts{kClose}));
}

TEST(Turn, what_fails_or_closes_in_mid_turn_does_nothing_more) {
  TurnSight failed = running(), closed = running();
  failed.failed = closed.peer_closed = true;
  for (size_t i = size_t(kHalves); i < kTurnActs; ++i) {
    EXPECT_FALSE(is_due(TurnAct(i), failed)) << i;
    EXPECT_FALSE(is_due(TurnAct(i), closed)) << i;
  }
}

TEST(Urgency, nothing_is_due_of_a_channel_that_rests_and_soon_something_of_others) {
  const auto of = [](const TurnSight& turn, auto&& change) {
    UrgencySight seen{turn};
    change(seen);
    return urgency(seen);
  };
  const auto as_it_is = [](UrgencySight&) {};
  EXPECT_EQ(of(running(), as_it_is), Urgency::kIdle);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.asked = true; }), Urgency::kBusy);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.awaited = true; }), Urgency::kBusy);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.keeps = true; }), Urgency::kBusy);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.looks_soon = true; }), Urgency::kBusy);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.turn.outage = true; }), Urgency::kBusy);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.turn.failed = true; }), Urgency::kBusy)
      << "its next turn tells the peer";
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.turn.suspected = true; }), Urgency::kHot);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.probing = true; }), Urgency::kWatching);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.settles = true; }), Urgency::kWatching);
  EXPECT_EQ(of(running(), [](UrgencySight& s) { s.turn.resilient = false; }), Urgency::kIdle);
}

TEST(Urgency, a_fence_is_looked_at_at_once_until_it_takes_long) {
  UrgencySight seen{in(Phase::kFencing)};
  EXPECT_EQ(urgency(seen), Urgency::kHot);
  seen.migrates_for_ns = Bounds::kHotNs;
  EXPECT_EQ(urgency(seen), Urgency::kWatching);
  seen = UrgencySight{in(Phase::kChoosing)};
  EXPECT_EQ(urgency(seen), Urgency::kWatching);
  seen.probing = true;
  EXPECT_EQ(urgency(seen), Urgency::kHot);
  for (const Phase phase : {Phase::kWaitingForPeer, Phase::kUnfenced})
    EXPECT_EQ(urgency(UrgencySight{in(phase)}), Urgency::kBusy) << "its socket wakes it";
}

TEST(Turn, what_happens_to_paths_concerns_a_channel_from_the_greeting_to_the_end_of_either_end) {
  TurnSight seen = running();
  EXPECT_TRUE(turn::minds_paths(seen));
  seen.setting_up = true;
  EXPECT_TRUE(turn::minds_paths(seen)) << "the path that is being opened may be the one";
  for (bool TurnSight::*over : {&TurnSight::failed, &TurnSight::peer_closed, &TurnSight::closes}) {
    TurnSight ended = running();
    ended.*over = true;
    EXPECT_FALSE(turn::minds_paths(ended));
    EXPECT_FALSE(turn::is_load(ended));
  }
  for (bool TurnSight::*lacks : {&TurnSight::greeted, &TurnSight::resilient}) {
    TurnSight other = running();
    other.*lacks = false;
    EXPECT_FALSE(turn::minds_paths(other));
    EXPECT_TRUE(turn::is_load(other)) << "it is about to send";
  }
}

TEST(Turn, only_a_path_that_carries_is_left_and_only_while_both_ends_go_on) {
  EXPECT_TRUE(turn::may_leave(running()));
  for (bool TurnSight::*over : {&TurnSight::failed, &TurnSight::peer_closed}) {
    TurnSight ended = running();
    ended.*over = true;
    EXPECT_FALSE(turn::may_leave(ended));
  }
  TurnSight seen = running();
  seen.active = false;
  EXPECT_FALSE(turn::may_leave(seen));
}

TEST(Turn, a_peer_that_closes_during_set_up_ends_it) {
  TurnSight seen = running();
  seen.peer_closed = seen.setting_up = true;
  EXPECT_TRUE(is_due(kClosedEarly, seen));
  seen.setting_up = false;
  EXPECT_FALSE(is_due(kClosedEarly, seen)) << "what it has sent may still come";
  seen.setting_up = seen.failed = true;
  EXPECT_FALSE(is_due(kClosedEarly, seen)) << "for another reason, which counts";
}

TEST(Turn, a_device_ends_a_channel_only_without_resilience) {
  TurnSight seen = running();
  EXPECT_FALSE(turn::ends_by_device(seen));
  seen.resilient = false;
  EXPECT_TRUE(turn::ends_by_device(seen));
  for (bool TurnSight::*over : {&TurnSight::closes, &TurnSight::peer_closed}) {
    TurnSight ended = seen;
    ended.*over = true;
    EXPECT_FALSE(turn::ends_by_device(ended));
  }
  seen.active = false;
  EXPECT_FALSE(turn::ends_by_device(seen));
}

TEST(Urgency, of_an_end_that_is_over) {
  EXPECT_EQ(urgency_of_ended(true, true), Urgency::kBusy);
  EXPECT_EQ(urgency_of_ended(true, false), Urgency::kIdle);
  EXPECT_EQ(urgency_of_ended(false, false), Urgency::kBusy)
      << "it is still torn down, or something is lacking";
}

TEST(Turn, is_ready_while_its_path_carries_and_nothing_is_marked_failed) {
  EXPECT_TRUE(turn::is_ready(running()));
  for (bool TurnSight::*not_ready :
       {&TurnSight::failed, &TurnSight::closes, &TurnSight::setting_up, &TurnSight::suspected}) {
    TurnSight seen = running();
    seen.*not_ready = true;
    EXPECT_FALSE(turn::is_ready(seen));
  }
  EXPECT_FALSE(turn::is_ready(in(Phase::kChoosing)));
}

/// Counts the answers that take long.
struct NearHost {
  bool probation = false, opening = false, moving = false, is_away = false, near = false, works = false,
       due = false;
  mutable int asked_rail = 0, asked_standby = 0;
  bool on_probation() const { return probation; }
  bool opens() const { return opening; }
  bool moves() const { return moving; }
  bool away() const { return is_away; }
  bool home_is_near() const { return near; }
  bool home_may_work() const { return ++asked_rail, works; }
  bool standby_due() const { return ++asked_standby, due; }
};

TEST(Near, what_a_sender_may_have_to_do_soon) {
  EXPECT_FALSE(is_near(NearHost{}));
  EXPECT_TRUE(is_near(NearHost{.probation = true}));
  EXPECT_TRUE(is_near(NearHost{.opening = true}));
  EXPECT_TRUE(is_near(NearHost{.moving = true}));
  EXPECT_TRUE(is_near(NearHost{.due = true}));
  EXPECT_TRUE(is_near(NearHost{.is_away = true, .near = true, .works = true}));
  EXPECT_FALSE(is_near(NearHost{.near = true, .works = true})) << "it is at home";
  EXPECT_FALSE(is_near(NearHost{.is_away = true, .near = true})) << "its event comes first";
  EXPECT_FALSE(is_near(NearHost{.is_away = true, .works = true}));
}

TEST(Near, asks_for_what_takes_long_only_where_it_matters) {
  for (const NearHost& host : {NearHost{.near = true}, NearHost{.is_away = true},
                               NearHost{.opening = true, .is_away = true, .near = true}}) {
    is_near(host);
    EXPECT_EQ(host.asked_rail, 0);
    EXPECT_EQ(host.asked_standby, host.opening ? 0 : 1);
  }
}

}  // namespace
}  // namespace r2ccl
