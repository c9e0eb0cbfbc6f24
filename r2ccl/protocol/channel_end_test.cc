// SPDX-License-Identifier: Apache-2.0
// ChannelEnd: what an end does when one of its paths, or a NIC, has failed, and when its peer says something
// of them. How two ends of it get along is protocol_model_test's matter.
#include "r2ccl/protocol/channel_end.h"

#include <algorithm>
#include <utility>

#include "r2ccl/protocol/testing/recording_host.h"

namespace r2ccl {
namespace {

using namespace testing_support;

// --- one end

TEST(Leave, only_while_no_other_is_left_and_both_ends_go_on) {
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(5);
  ChannelEnd(end, host).leave(1);
  EXPECT_EQ(end.leaving(), 5u);
  EXPECT_EQ(host.did, Did{});
  MigrationEnd other(true);
  host.leaves = false;
  ChannelEnd(other, host).leave(1);
  EXPECT_EQ(other.phase(), Phase::kRunning) << "the peer has closed";
  EXPECT_EQ(host.did, Did{});
}

TEST(Leave, a_planned_migration_has_a_target) {
  Host host = with_paths();
  MigrationEnd end(true);
  ChannelEnd(end, host).leave(1, 3);
  EXPECT_EQ(end.target(), 3u);
}

TEST(MarkFailed, concerns_only_what_carries) {
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(5);
  for (const uint32_t path : {3, 4, 5, 6}) ChannelEnd(end, host).mark_failed(path);
  EXPECT_EQ(host.did, Did{});
}

TEST(Suspect, is_what_carries_and_is_marked_failed) {
  for (const PathState state : {PathState::kActive, PathState::kLane}) {
    EXPECT_TRUE(is_suspect(state, true));
    EXPECT_FALSE(is_suspect(state, false));
  }
  for (const PathState state :
       {PathState::kOpening, PathState::kProving, PathState::kStandby, PathState::kFencing})
    EXPECT_FALSE(is_suspect(state, true)) << "nothing is posted there, whatever it is marked as";
}

TEST(LeaveMarked, what_is_being_fenced_is_not_left_again) {
  Host host = with_paths();
  host.in_detail = true;
  host.has.at(5).failed = true;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave_marked();
  EXPECT_EQ(host.did, (Did{"hear", "look for marked 1", "resume 1"}));
}

TEST(Fenced, the_peer_learns_whether_this_end_has_fenced_or_cannot) {
  Host host = with_paths();
  MigrationEnd can(false), cannot(false);
  can.leave(5), cannot.leave(5);
  ChannelEnd(can, host).fenced();
  EXPECT_EQ(can.own_fence(), MigrationEnd::Fence::kDone);
  ChannelEnd(cannot, host).cannot_fence();
  EXPECT_EQ(cannot.own_fence(), MigrationEnd::Fence::kCannot);
  EXPECT_EQ(host.did, (Did{"fenced", "cannot fence"}));
}

TEST(NicLost, what_carries_waits_until_what_is_being_left_is_over) {
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(5);
  ChannelEnd(end, host).nic_lost(1);
  EXPECT_EQ(host.did, (Did{"mark 1", "NIC lost 1"})) << "what it carries is fenced, not given up";
}

TEST(StartLane, it_is_one_when_the_receiver_hears_of_it) {
  Host host = with_paths();
  MigrationEnd end(true);
  ChannelEnd(end, host).start_lane(3);
  EXPECT_EQ(host.did, (Did{"lane 3", "say lane 3"}));
}

TEST(RestLane, is_given_up_where_another_path_stands_by) {
  Host host = with_paths();
  host.another = 3;
  MigrationEnd end(true);
  EXPECT_TRUE(ChannelEnd(end, host).rest_lane(2));
  EXPECT_EQ(host.did, (Did{"stand by 2", "rest 2", "drop 2"}));
}

// --- the peer

TEST(OnMigrate, a_sender_leaves_the_receivers_path_when_its_own_is_left) {
  const std::pair<uint32_t, Did> cases[] = {
      {2, {"mark 2"}},       // it carries
      {3, {"drop 3"}},       // it stands by: the receiver will not take it into use
      {6, {"send drop 6"}},  // given up before: the receiver retires it
      {4, {}},
      {5, {}},
  };
  for (const auto& [path, did] : cases) {
    Host host = with_paths();
    MigrationEnd end(true);
    end.leave(1);
    ChannelEnd(end, host).on_migrate(1, path);
    EXPECT_EQ(host.did, did) << path;
    EXPECT_EQ(end.leaving(), 1u);
  }
}

TEST(OnMigrate, what_does_not_carry_here_is_fenced_as_one_that_was_given_up) {
  Host host = with_paths();
  MigrationEnd end(false);
  ChannelEnd(end, host).on_migrate(1, 6);
  EXPECT_EQ(host.did, (Did{"fence given up 6"}));
  ChannelEnd(end, host).on_migrate(1, 6);
  EXPECT_EQ(host.did.size(), 1u) << "said before";
  EXPECT_FALSE(end.planned());
  ChannelEnd(end, host).on_migrate(2, 1, true);
  EXPECT_TRUE(end.planned()) << "what the peer leaves has not failed";
}

TEST(OnFenced, counts_for_the_path_and_the_epoch_that_it_names) {
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(1);
  end.fenced();
  ChannelEnd channel_end(end, host);
  EXPECT_FALSE(channel_end.on_fenced(2, 1, true));
  EXPECT_FALSE(channel_end.on_fenced(1, 2, true));
  EXPECT_EQ(end.phase(), Phase::kWaitingForPeer);
  EXPECT_TRUE(channel_end.on_fenced(1, 1, false));
  EXPECT_EQ(end.phase(), Phase::kUnfenced);
  EXPECT_TRUE(channel_end.on_fenced(1, 1, true));
  EXPECT_EQ(end.phase(), Phase::kChoosing);
}

TEST(OnUse, the_receiver_uses_what_stands_by_or_carries_and_leaves_what_it_has_given_up) {
  const auto uses = [](uint32_t path) {
    Host host = with_paths();
    host.in_detail = true;
    MigrationEnd end(false);
    end.leave(5);
    end.fenced();
    ChannelEnd(end, host).on_use(1, path);
    return host.did;
  };
  EXPECT_EQ(uses(3).front(), "carry 3");
  EXPECT_EQ(uses(2).front(), "carry 2") << "a lane";
  EXPECT_EQ(uses(6), (Did{"migrate 6", "fence given up 6"})) << "the next epoch";
  Host host = with_paths();
  MigrationEnd end(false);
  end.leave(5);
  end.fenced();
  ChannelEnd(end, host).on_use(2, 3);
  EXPECT_EQ(host.did, Did{}) << "of another epoch";
}

TEST(OnDrop, by_what_the_path_is_here) {
  const std::pair<uint32_t, Did> cases[] = {
      {1, {"fence 1", "prove anew 2", "prove anew 3"}},
      {2, {"fence 2"}},
      {3, {"drop untold 3"}},  // the peer knows
      {4, {"opening fails 4"}},
      {5, {"forget 5"}},
      {6, {}},
  };
  for (const auto& [path, did] : cases) {
    Host host = with_paths();
    MigrationEnd end(true);
    ChannelEnd(end, host).on_drop(path);
    EXPECT_EQ(host.did, did) << path;
  }
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(5);
  ChannelEnd(end, host).on_drop(5);
  EXPECT_EQ(host.did, Did{}) << "its fence goes on";
}

TEST(OnLane, the_receiver_follows_with_a_path_that_stands_by) {
  for (const bool sender : {false, true})
    for (const uint32_t path : {1, 2, 3, 4, 5, 6}) {
      Host host = with_paths();
      MigrationEnd end(sender);
      ChannelEnd(end, host).on_lane(path);
      EXPECT_EQ(host.did, !sender && path == 3 ? Did{"lane 3"} : Did{}) << path;
    }
}

TEST(OnRest, the_receiver_follows_with_a_lane) {
  for (const bool sender : {false, true})
    for (const uint32_t path : {1, 2, 3, 4, 5, 6}) {
      Host host = with_paths();
      MigrationEnd end(sender);
      ChannelEnd(end, host).on_rest(path);
      EXPECT_EQ(host.did, !sender && path == 2 ? Did{"stand by 2"} : Did{}) << path;
    }
}

TEST(PathFailed, what_carries_is_left_and_what_may_take_over_is_asked_unless_another_carries) {
  Host host = with_paths();
  MigrationEnd end(true);
  ChannelEnd(end, host).path_failed(1);
  EXPECT_EQ(host.did, (Did{"fence 1", "prove anew 2", "prove anew 3"}));
  EXPECT_EQ(end.leaving(), 1u);

  Host lane = with_paths();
  MigrationEnd other(true);
  ChannelEnd(other, lane).path_failed(2);
  EXPECT_EQ(lane.did, (Did{"fence 2"})) << "1 goes on";

  Host receiver = with_paths();
  MigrationEnd receivers(false);
  ChannelEnd(receivers, receiver).path_failed(1);
  EXPECT_EQ(receiver.did, (Did{"fence 1"})) << "the sender chooses";
}

TEST(Fence, the_peer_is_told_before_the_path_is_stopped_and_others_are_asked_afterwards) {
  Host host = with_paths();
  host.in_detail = true;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave(1);
  EXPECT_EQ(host.did, (Did{"begin 1", "migrate 1", "take out 1", "fence 1", "prove anew 2", "prove anew 3"}));
}

TEST(Fence, a_peer_that_leaves_a_path_is_not_told_of_it) {
  Host host = with_paths();
  host.in_detail = true;
  MigrationEnd end(false);
  ChannelEnd(end, host).on_migrate(1, 1);
  EXPECT_EQ(host.did, (Did{"told 1", "begin 1", "take out 1", "fence 1"}));
}

TEST(Fence, a_channel_that_has_failed_meanwhile_fences_nothing) {
  Host host = with_paths();
  host.in_detail = true;
  host.begins = false;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave(1);
  EXPECT_EQ(host.did, (Did{"begin 1"}));
}

TEST(LeaveMarked, the_peer_is_heard_and_then_the_first_that_is_marked_is_left) {
  Host host = with_paths();
  host.has.at(1).failed = host.has.at(2).failed = host.has.at(5).failed = true;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave_marked();
  EXPECT_EQ(host.did, (Did{"hear", "as marked 1", "fence 1", "prove anew 2", "prove anew 3"}));
  Host lane = with_paths();
  lane.has.at(2).failed = true;
  MigrationEnd other(true);
  ChannelEnd(other, lane).leave_marked();
  EXPECT_EQ(lane.did, (Did{"hear", "as marked 2", "fence 2"}));
}

TEST(LeaveMarked, not_when_the_peer_has_closed) {
  Host host = with_paths();
  host.has.at(1).failed = true;
  host.closes_when_heard = true;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave_marked();
  EXPECT_EQ(host.did, (Did{"hear"}));
  EXPECT_EQ(end.phase(), Phase::kRunning);
}

TEST(LeaveMarked, posts_are_allowed_again_where_nothing_is_marked_any_more) {
  Host host = with_paths();
  host.in_detail = true;
  MigrationEnd end(true);
  ChannelEnd(end, host).leave_marked();
  EXPECT_EQ(host.did, (Did{"hear", "look for marked 1", "resume 1"}));
}

TEST(Carry, what_is_missing_is_sent_before_the_program_may_post) {
  Host host{{{2, {}}}, {}};
  host.in_detail = true;
  MigrationEnd end = choosing();
  ChannelEnd(end, host).use(2);
  EXPECT_EQ(host.did,
            (Did{"say 2", "carry 2", "carries on 0", "look for marked 0", "resume 0", "carried 2"}));
  EXPECT_EQ(end.phase(), Phase::kRunning);
  EXPECT_TRUE(host.was_moved);
  EXPECT_FALSE(host.was_first);
}

TEST(Carry, a_receiver_says_nothing_of_it) {
  Host host{{{2, {}}}, {}};
  MigrationEnd end(false);
  ChannelEnd(end, host).use(2);
  EXPECT_EQ(host.did, (Did{"carry 2"}));
}

TEST(Carry, the_active_path_goes_on_where_a_lane_was_left) {
  Host host{{{2, {.state = PathState::kActive}}}, {}, 2};
  host.in_detail = true;
  MigrationEnd end = choosing();
  ChannelEnd(end, host).use(2);
  EXPECT_FALSE(host.was_moved);
  EXPECT_EQ(host.did[2], "carries on 2");
}

TEST(Carry, nothing_is_missing_when_the_first_path_carries) {
  Host host{{{2, {}}}, {}};
  host.in_detail = true;
  host.is_connected = false;
  MigrationEnd end(true);
  ChannelEnd(end, host).use(2);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2", "look for marked 0", "resume 0", "carried 2"}));
  EXPECT_TRUE(host.was_first);
}

TEST(Carry, nothing_is_posted_while_something_that_carries_is_to_be_left) {
  Host host{{{2, {}}}, {}};
  host.in_detail = true;
  host.has_marked = true;
  MigrationEnd end = choosing();
  ChannelEnd(end, host).use(2);
  EXPECT_EQ(host.did, (Did{"say 2", "carry 2", "carries on 0", "look for marked 0", "carried 2"}));
}

TEST(Carry, a_channel_that_has_failed_carries_nothing) {
  for (const bool by_then : {true, false}) {
    Host host{{{2, {}}}, {}};
    host.in_detail = true;
    host.has_failed = by_then;
    host.resumes = false;
    MigrationEnd end = choosing();
    ChannelEnd(end, host).use(2);
    EXPECT_NE(host.did.back(), "carried 2");
    EXPECT_EQ(std::count(host.did.begin(), host.did.end(), "resume 0"), by_then ? 0 : 1);
  }
}

TEST(RestLane, unless_it_is_marked_failed_or_something_is_still_waited_for) {
  Host host = with_paths();
  MigrationEnd end(true);
  EXPECT_TRUE(ChannelEnd(end, host).rest_lane(2));
  EXPECT_EQ(host.did, (Did{"stand by 2", "rest 2"}));
  Host failed = with_paths();
  failed.has.at(2).failed = true;
  EXPECT_FALSE(ChannelEnd(end, failed).rest_lane(2));
  EXPECT_TRUE(failed.did.empty());
  Host waits = with_paths();
  waits.over = false;
  EXPECT_FALSE(ChannelEnd(end, waits).rest_lane(2));
  EXPECT_TRUE(waits.did.empty());
}

TEST(PathFailed, what_carries_is_marked_while_another_is_left) {
  Host host = with_paths();
  MigrationEnd end(true);
  end.leave(5);
  ChannelEnd(end, host).path_failed(1);
  ChannelEnd(end, host).path_failed(1);
  EXPECT_EQ(host.did, (Did{"mark 1"})) << "once";
}

TEST(PathFailed, others_are_given_up_and_what_is_fenced_already_is_left_alone) {
  Host host = with_paths();
  MigrationEnd end(true);
  for (const uint32_t path : {3, 4, 5, 6}) ChannelEnd(end, host).path_failed(path);
  EXPECT_EQ(host.did, (Did{"drop 3", "opening fails 4"}));
}

TEST(NicLost, the_peer_hears_of_it_behind_the_epoch_and_before_paths_are_given_up) {
  const std::pair<int, Did> cases[] = {
      {1, {"fence 1", "prove anew 2", "prove anew 3", "NIC lost 1"}},
      {3, {"NIC lost 3", "drop 3"}},
      {4, {"NIC lost 4", "opening fails 4"}},
      {5, {"NIC lost 5"}},
      {6, {"NIC lost 6"}},
  };
  for (const auto& [nic, did] : cases) {
    Host host = with_paths();
    MigrationEnd end(true);
    ChannelEnd(end, host).nic_lost(nic);
    EXPECT_EQ(host.did, did) << nic;
  }
}

TEST(NicLost, of_the_peers_only_what_carries_is_left) {
  const std::pair<int, Did> cases[] = {
      {1, {"fence 1", "prove anew 2", "prove anew 3"}}, {2, {"fence 2"}}, {3, {}}, {4, {}}, {5, {}}};
  for (const auto& [nic, did] : cases) {
    Host host = with_paths();
    MigrationEnd end(true);
    ChannelEnd(end, host).peer_nic_lost(nic);
    EXPECT_EQ(host.did, did) << nic;
  }
}

TEST(NicBack, the_peer_is_told_and_home_is_tried_if_it_is_its_nic) {
  Host host;
  MigrationEnd end(true);
  ChannelEnd channel_end(end, host);
  channel_end.nic_back(3);
  EXPECT_EQ(host.did, (Did{"NIC back 3", "rails change"}));
  host.did.clear();
  channel_end.nic_back(host.home_nic());
  EXPECT_EQ(host.did, (Did{"NIC back 1", "home may work", "rails change"}));
  host.did.clear();
  channel_end.peer_nic_back(host.home_nic());
  EXPECT_EQ(host.did, (Did{"rails change"})) << "it says so itself";
  host.did.clear();
  channel_end.peer_nic_back(host.peer_home_nic());
  EXPECT_EQ(host.did, (Did{"home may work", "rails change"}));
}

TEST(FailedWork, is_the_end_only_where_there_is_no_other_path) {
  EXPECT_EQ(failed_work(false, false, true), FailedWork::kLeave);
  EXPECT_EQ(failed_work(false, false, false), FailedWork::kFail);
  for (const bool resilient : {false, true}) {
    EXPECT_EQ(failed_work(true, false, resilient), FailedWork::kNothing) << "the first error counts";
    EXPECT_EQ(failed_work(false, true, resilient), FailedWork::kNothing) << "its peer's queue pairs are gone";
  }
}

}  // namespace
}  // namespace r2ccl
