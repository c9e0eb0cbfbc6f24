// SPDX-License-Identifier: Apache-2.0
// choose_path(): which path the sender takes behind both fences, and what becomes of those it does not take.
#include "r2ccl/protocol/choice.h"

#include <gtest/gtest.h>

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
  void carry(uint32_t path) { note("carry", path); }
  // What a choice never does.
  bool may_leave() const { return true; }
  void leaving(uint32_t, uint32_t) {}
  void fence(uint32_t path, bool) {
    note("fence", path);
    has.at(path).state = PathState::kFencing;
    if (is_active == path) is_active = 0;
  }
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
