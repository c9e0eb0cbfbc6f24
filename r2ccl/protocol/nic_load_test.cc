// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/nic_load.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "r2ccl/protocol/spread_move.h"

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1'000'000 * kMs;

TEST(NicLoad, a_channel_moves_only_when_the_busier_nic_gets_less_to_carry) {
  NicLoad load;
  load.own = {3, 1, 2};
  EXPECT_TRUE(load.better(0, 1));   // 3 and 1 become 2 and 2
  EXPECT_FALSE(load.better(0, 2));  // 3 and 2 would become 2 and 3
  EXPECT_FALSE(load.better(1, 0));
  load.others = {0, 2, 0};
  EXPECT_FALSE(load.better(0, 1)) << "the node's other processes count, too";
}

TEST(NicLoad, idle_channels_do_not_outweigh_one_that_sends) {
  NicLoad load;
  load.own = {2, 1 + 1000 * NicLoad::kIdle};
  EXPECT_FALSE(load.better(0, 1));
  load.own = {3, 1 + 1000 * NicLoad::kIdle};
  EXPECT_TRUE(load.better(0, 1));
}

TEST(SpreadTimer, waits_for_a_better_nic_to_last) {
  SpreadTimer timer(200 * kMs, 10'000 * kMs, 7);
  EXPECT_FALSE(timer.due(true, kStart));
  EXPECT_TRUE(timer.waits());
  EXPECT_FALSE(timer.due(true, kStart + 199 * kMs));
  EXPECT_FALSE(timer.due(false, kStart + 200 * kMs)) << "it was better for a moment only";
  EXPECT_FALSE(timer.due(true, kStart + 401 * kMs));
  EXPECT_TRUE(timer.due(true, kStart + 801 * kMs)) << "twice the settling time is the longest wait";
}

TEST(SpreadTimer, channels_do_not_all_move_at_the_same_time) {
  uint64_t earliest = ~uint64_t{0}, latest = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SpreadTimer timer(200 * kMs, 10'000 * kMs, seed * 0x9e3779b97f4a7c15);
    uint64_t at = kStart;
    while (!timer.due(true, at)) at += kMs;
    earliest = std::min(earliest, at);
    latest = std::max(latest, at);
  }
  EXPECT_GE(earliest, kStart + 200 * kMs);
  EXPECT_GT(latest - earliest, 100 * kMs);
  EXPECT_LE(latest, kStart + 401 * kMs);
}

TEST(SpreadTimer, rails_that_come_and_go_make_it_move_ever_more_rarely) {
  SpreadTimer timer(200 * kMs, 10'000 * kMs, 3);
  int moves = 0;
  for (uint64_t at = kStart; at < kStart + 60'000 * kMs; at += kMs) {
    if (!timer.due(true, at)) continue;
    timer.moved(at);
    ++moves;
  }
  EXPECT_LE(moves, 12) << "in a minute in which each place turns out to be the wrong one";
  EXPECT_GE(moves, 6);
  uint64_t at = kStart + 80'000 * kMs;  // long after the last move the first wait counts again
  const uint64_t from = at;
  while (!timer.due(true, at)) at += kMs;
  EXPECT_LE(at - from, 401 * kMs);
}

TEST(SpreadMove, looks_now_and_then_and_has_one_path_at_a_time) {
  SpreadMove move(100, 1000, 1);
  SpreadSight seen;
  seen.ready = seen.away = seen.in_demand = true;
  EXPECT_EQ(move.look(seen, false, 1000), SpreadAct::kLook);
  EXPECT_EQ(move.look(seen, false, 1000 + SpreadMove::kLookEveryNs - 1), SpreadAct::kNone);
  EXPECT_EQ(move.look(seen, false, 1000 + SpreadMove::kLookEveryNs), SpreadAct::kLook);
  EXPECT_FALSE(move.has(0)) << "0 is no path";
  move.takes(5);
  move.dropped(4);
  EXPECT_TRUE(move.has(5));
  move.dropped(5);
  EXPECT_EQ(move.path(), 0u);
  move.takes(6);
  move.carries();
  EXPECT_EQ(move.path(), 0u);
}

TEST(SpreadMove, looks_only_for_a_channel_away_that_sends_and_does_nothing_else) {
  const auto act = [](auto&& change, bool has_path = false) {
    SpreadMove move(100, 1000, 1);
    SpreadSight seen;
    seen.ready = seen.away = seen.in_demand = true;
    change(seen);
    return move.look(seen, has_path, 1000);
  };
  EXPECT_EQ(act([](SpreadSight&) {}), SpreadAct::kLook);
  EXPECT_EQ(act([](SpreadSight&) {}, true), SpreadAct::kMove);
  EXPECT_EQ(act([](SpreadSight& s) { s.ready = false; }, true), SpreadAct::kNone);
  EXPECT_EQ(act([](SpreadSight& s) { s.away = false; }), SpreadAct::kNone);
  EXPECT_EQ(act([](SpreadSight& s) { s.comes_home = true; }), SpreadAct::kNone);
  EXPECT_EQ(act([](SpreadSight& s) { s.in_demand = false; }), SpreadAct::kNone);
  EXPECT_EQ(act([](SpreadSight& s) { s.opens = true; }), SpreadAct::kNone);
}

TEST(SpreadMove, takes_its_path_when_that_has_answered_and_still_stands_by) {
  EXPECT_EQ(SpreadMove::look_at_path(true, ProbeSight::kNone), MoveAct::kProve);
  EXPECT_EQ(SpreadMove::look_at_path(true, ProbeSight::kAwaited), MoveAct::kWait);
  EXPECT_EQ(SpreadMove::look_at_path(true, ProbeSight::kFailed), MoveAct::kGiveUp);
  EXPECT_EQ(SpreadMove::look_at_path(true, ProbeSight::kAnswered), MoveAct::kGo);
  EXPECT_EQ(SpreadMove::look_at_path(false, ProbeSight::kAnswered), MoveAct::kEnd);
}

/// Writes down what is done.
struct MoveHost {
  std::optional<int> less = 2, less_shared = 2;
  uint32_t standby = 0;
  std::string did;
  std::optional<int> less_loaded(bool shared) const { return shared ? less_shared : less; }
  uint32_t standby_over(int nic) const { return nic == 2 ? standby : 0; }
  void moves_to(int nic) { did += "to " + std::to_string(nic) + " "; }
  void forget_probe(uint32_t path) { did += "forget " + std::to_string(path) + " "; }
  void open(int nic) { did += "open " + std::to_string(nic) + " "; }
  void share_load() { did += "share"; }
};

TEST(SpreadMove, takes_the_path_that_stands_by_there_or_opens_one_and_tells_the_others) {
  MoveHost host;
  SpreadMove move(100, 1000, 1);
  move.look_for_less(host, kStart);
  EXPECT_EQ(host.did, "") << "not before it has been better for a while";
  move.look_for_less(host, kStart + 300);
  EXPECT_EQ(host.did, "to 2 open 2 share");
  EXPECT_EQ(move.path(), 0u) << "it is not open yet";
  MoveHost has{.standby = 7};
  SpreadMove another(100, 1000, 1);
  another.look_for_less(has, kStart);
  another.look_for_less(has, kStart + 300);
  EXPECT_EQ(has.did, "to 2 forget 7 share");
  EXPECT_TRUE(another.has(7));
}

TEST(SpreadMove, stays_where_another_process_has_moved_first) {
  MoveHost host{.less_shared = std::nullopt};
  SpreadMove move(100, 1000, 1);
  move.look_for_less(host, kStart);
  move.look_for_less(host, kStart + 300);
  EXPECT_EQ(host.did, "");
  host.less = std::nullopt;
  host.less_shared = 2;
  move.look_for_less(host, kStart + 301);
  EXPECT_EQ(host.did, "") << "of this process, nothing speaks for it";
}

TEST(SpreadMove, a_nic_that_turned_out_not_to_work_is_left_alone_for_a_while) {
  SpreadMove move(100, 1000, 1);
  move.takes(5);
  move.failed(2, 5000);
  EXPECT_EQ(move.path(), 0u);
  EXPECT_FALSE(move.may_go_to(2, 5999));
  EXPECT_TRUE(move.may_go_to(2, 6000));
  EXPECT_TRUE(move.may_go_to(1, 5000));
}

TEST(SpreadMove, moves_when_another_nic_has_been_better_for_a_while_without_a_rest) {
  SpreadMove move(100, 1000, 1);
  const auto waits = [&](uint64_t from) {
    uint64_t at = from;
    while (!move.due(true, at)) ++at;
    return at - from;
  };
  EXPECT_FALSE(move.due(true, kStart));
  move.rests(kStart + 190);
  const uint64_t first = waits(kStart + 190);
  EXPECT_GE(first, 100u) << "what was before it rested does not count";
  EXPECT_LE(first, 201u);
  move.ended(kStart + 500);
  EXPECT_GE(waits(kStart + 500), 200u) << "it has moved of late";
  move.failed(1, kStart + 1000);
  EXPECT_GE(waits(kStart + 1000), 400u) << "a move that failed was one";
}

}  // namespace
}  // namespace r2ccl
