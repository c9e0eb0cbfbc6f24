// SPDX-License-Identifier: Apache-2.0
// choose_path(): which path the sender takes behind both fences, and what becomes of those it does not take.
#include "r2ccl/protocol/choice.h"

#include "r2ccl/protocol/testing/recording_host.h"

namespace r2ccl {
namespace {

using namespace testing_support;

TEST(Choice, takes_a_path_whose_probe_is_answered_and_says_so_first) {
  Host host{{{2, {}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2"}));
}

TEST(Choice, waits_for_a_probe_and_opens_nothing_meanwhile) {
  Host host{{{2, {.probe = ProbeSight::kNone}}, {3, {.probe = ProbeSight::kAwaited}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kWait);
  EXPECT_EQ(host.did, (Did{"prove 2"}));
}

TEST(Choice, takes_the_first_that_answers_of_several) {
  Host host{{{2, {.probe = ProbeSight::kAwaited}}, {3, {}}, {4, {}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 3", "carry 3"}));
}

TEST(Choice, gives_a_standby_up_whose_probe_failed_and_opens_a_path) {
  Host host{{{2, {.probe = ProbeSight::kFailed}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kOpen);
  EXPECT_EQ(host.did, (Did{"unanswered 2", "drop 2", "open"}));
}

TEST(Choice, opens_one_path_at_a_time) {
  Host host{{}, {}};
  host.is_opening = true;
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kOpen);
  EXPECT_EQ(host.did, Did{});
}

TEST(Choice, gives_a_standby_up_whose_nic_is_down_without_a_probe) {
  Host host{{{2, {.usable = false}}, {3, {}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"drop 2", "say 3", "carry 3"}));
}

TEST(Choice, a_lane_is_marked_failed_and_not_given_up) {
  Host host{{{2, {.state = PathState::kLane, .probe = ProbeSight::kFailed}},
             {3, {.state = PathState::kLane, .usable = false}},
             {4, {}}},
            {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"unanswered 2", "mark 2", "say 4", "carry 4"}))
      << "what it carries is fenced later";
}

TEST(Choice, a_lane_may_become_the_active_path) {
  Host host{{{2, {.state = PathState::kLane}}}, {}};
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2"}));
}

TEST(Choice, the_active_path_goes_on_when_a_lane_was_left) {
  Host host{{{2, {.state = PathState::kActive, .probe = ProbeSight::kNone}}, {3, {}}}, {}};
  host.is_active = 2;
  MigrationEnd end = choosing();
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2"}));
}

TEST(Choice, a_planned_migration_goes_to_its_destination) {
  Host host{{{2, {}}, {3, {.probe = ProbeSight::kNone}}}, {}};
  MigrationEnd end = choosing(3);
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 3", "carry 3"}));
}

TEST(Choice, a_destination_that_is_gone_is_no_destination) {
  Host host{{{2, {}}}, {}};
  MigrationEnd end = choosing(3);
  EXPECT_EQ(choose_path(end, host), Choice::kUse);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2"}));
}

TEST(IsStale, an_answer_that_a_sender_asked_for_before_a_path_carried_again) {
  EXPECT_TRUE(is_stale(true, Phase::kRunning, PathState::kStandby, false));
  EXPECT_FALSE(is_stale(false, Phase::kRunning, PathState::kStandby, false)) << "a receiver answers";
  EXPECT_FALSE(is_stale(true, Phase::kChoosing, PathState::kStandby, false)) << "it is what is waited for";
  EXPECT_FALSE(is_stale(true, Phase::kRunning, PathState::kLane, false));
  EXPECT_FALSE(is_stale(true, Phase::kRunning, PathState::kStandby, true)) << "asked of its own accord";
}

TEST(StandsBy, a_path_that_waits_for_nothing_else) {
  EXPECT_TRUE(stands_by(PathState::kStandby, false));
  EXPECT_FALSE(stands_by(PathState::kStandby, true)) << "it is on probation";
  for (const PathState state :
       {PathState::kOpening, PathState::kProving, PathState::kActive, PathState::kLane, PathState::kFencing})
    EXPECT_FALSE(stands_by(state, false));
}

TEST(Choice, a_probe_is_pushed_when_half_its_time_is_over) {
  EXPECT_FALSE(wants_push(0, 8));
  EXPECT_FALSE(wants_push(4, 8));
  EXPECT_TRUE(wants_push(5, 8));
  EXPECT_EQ(awaits(5, 8), ProbeSight::kAwaited) << "there is time left for what the push brings";
  EXPECT_TRUE(wants_push(1, 0));
}

TEST(Choice, a_probe_whose_stall_has_ended_is_pushed_too) {
  for (const PathState state : {PathState::kActive, PathState::kLane, PathState::kStandby}) {
    EXPECT_FALSE(wants_push_unasked(state, 4, 8));
    EXPECT_TRUE(wants_push_unasked(state, 5, 8));
  }
  EXPECT_FALSE(wants_push_unasked(PathState::kProving, 5, 8)) << "its first answer may take longer";
  EXPECT_FALSE(wants_push_unasked(PathState::kFencing, 5, 8)) << "nobody will ask for its answer";
}

}  // namespace
}  // namespace r2ccl
