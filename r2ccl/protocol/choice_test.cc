// SPDX-License-Identifier: Apache-2.0
// choose_path(): which path the sender takes behind both fences, and what becomes of those it does not take.
#include "r2ccl/protocol/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace r2ccl {
namespace {

struct Path {
  PathState state = PathState::kStandby;
  ProbeSight probe = ProbeSight::kAnswered;
  bool usable = true;
  bool failed = false;
};

/// Writes down what the choice wants done.
struct Host {
  std::map<uint32_t, Path> has;
  std::vector<std::string> did;
  uint32_t is_active = 0;
  bool is_opening = false;
  uint32_t opens_path = 0;

  void note(const char* what, uint32_t path) { did.push_back(what + (" " + std::to_string(path))); }
  bool holds(Rule) const { return true; }
  std::optional<PathState> state(uint32_t path) const {
    const auto it = has.find(path);
    return it == has.end() ? std::nullopt : std::optional(it->second.state);
  }
  bool marked_failed(uint32_t path) const { return has.at(path).failed; }
  uint32_t active() const { return is_active; }
  std::vector<uint32_t> all() const {
    std::vector<uint32_t> ids;
    for (const auto& [id, path] : has) ids.push_back(id);
    return ids;
  }
  std::vector<uint32_t> paths() const { return all(); }
  // Each path has NICs of its own, which have its number.
  std::vector<uint32_t> paths_on(int nic) const {
    return has.contains(uint32_t(nic)) ? std::vector{uint32_t(nic)} : std::vector<uint32_t>();
  }
  std::vector<uint32_t> paths_to(int nic) const { return paths_on(nic); }
  bool opening(uint32_t path) const { return is_opening && path == opens_path; }
  uint32_t opening_over(int nic) const { return opening(uint32_t(nic)) ? uint32_t(nic) : 0; }
  bool usable(uint32_t path) const { return has.at(path).usable; }
  ProbeSight probe(uint32_t path) const { return has.at(path).probe; }
  bool opens() const { return is_opening; }
  void prove(uint32_t path) { note("prove", path); }
  void unanswered(uint32_t path) { note("unanswered", path); }
  void open() { did.push_back("open"); }
  void mark(uint32_t path) {
    note("mark", path);
    has.at(path).failed = true;
  }
  void drop(uint32_t path, bool tell) {
    EXPECT_TRUE(tell);
    note("drop", path);
    has.erase(path);
  }
  void send_use(uint32_t path) { note("say", path); }
  bool connected() const { return is_connected; }
  bool any_marked() const { return has_marked; }
  bool failed() const { return has_failed; }
  bool is_over(uint32_t) const { return over; }
  template <typename F>
  auto owning(F&& f) {
    owns = true;
    const auto result = f();
    owns = false;
    return result;
  }
  void activate(uint32_t path, bool first, bool moved) {
    note("carry", path);
    was_first = first, was_moved = moved;
  }
  void carries_on(bool) { detail("carries on", is_active); }
  void look_for_marked() { detail("look for marked", is_active); }
  bool resume() {
    detail("resume", is_active);
    return resumes;
  }
  void carried(uint32_t path, bool) {
    EXPECT_FALSE(owns);
    detail("carried", path);
  }
  void stand_by(uint32_t path) { note("stand by", path); }
  void send_rest(uint32_t path) { note("rest", path); }
  bool another_stands_by(uint32_t) const { return false; }
  void detail(const char* what, uint32_t path) {
    if (in_detail) note(what, path);
  }
  bool in_detail = false, owns = false, begins = true, over = true, resumes = true;
  bool is_connected = true, has_marked = false, has_failed = false, was_first = false, was_moved = false;
  // What a choice never does.
  bool may_leave() const { return true; }
  void leaving(uint32_t, uint32_t) {}
  void told(uint32_t path) { note("told", path); }
  void hear() {
    did.push_back("hear");
    has_traffic = has_traffic && !closes_when_heard;
  }
  bool carries_traffic() const { return has_traffic; }
  bool has_traffic = true, closes_when_heard = false;
  void as_marked(uint32_t path) { note("as marked", path); }
  bool begin_fence(uint32_t path) {
    EXPECT_TRUE(owns);
    detail("begin", path);
    return begins;
  }
  void send_migrate(uint32_t path) { detail("migrate", path); }
  void take_out(uint32_t path) {
    detail("take out", path);
    has.at(path).state = PathState::kFencing;
    if (is_active == path) is_active = 0;
  }
  void stop(uint32_t path) {
    EXPECT_TRUE(owns);
    note("fence", path);
  }
  void fence_given_up(uint32_t path) { note("fence given up", path); }
  void send_drop(uint32_t path) { note("send drop", path); }
  void prove_anew(uint32_t path) { note("prove anew", path); }
  void opening_refused(uint32_t path) {
    note("opening fails", path);
    is_opening = false;
    has.erase(path);
  }
  void send_nic_lost(int nic) { note("NIC lost", uint32_t(nic)); }
  int home_nic() const { return 1; }
  int peer_home_nic() const { return 2; }
  void send_nic_back(int nic) { note("NIC back", uint32_t(nic)); }
  void home_may_work() { did.push_back("home may work"); }
  void rails_changed() { did.push_back("rails change"); }
};

/// A sender that has left path 1 and has both fences.
MigrationEnd choosing(uint32_t target = 0) {
  MigrationEnd end(true);
  end.leave(1, target);
  end.fenced();
  end.peer_has_fenced(1, 1, true);
  EXPECT_EQ(end.phase(), Phase::kChoosing);
  return end;
}

using Did = std::vector<std::string>;

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

// --- what an end does when one of its paths, or a NIC, has failed

/// A sender: 1 carries, 2 is a lane, 3 stands by, 4 is being opened, 5 is being fenced.
Host with_paths() {
  Host host{{{1, {PathState::kActive}},
             {2, {PathState::kLane}},
             {3, {PathState::kStandby}},
             {4, {PathState::kOpening}},
             {5, {PathState::kFencing}}},
            {},
            1,
            true};
  host.opens_path = 4;
  return host;
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

}  // namespace
}  // namespace r2ccl
