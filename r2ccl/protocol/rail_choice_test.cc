// SPDX-License-Identifier: Apache-2.0
// Which rail comes next.
#include "r2ccl/protocol/rail_choice.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <vector>

namespace r2ccl {

void PrintTo(const Rail& rail, std::ostream* out) { *out << rail.local << " to " << rail.remote; }

namespace {

using Pair = std::pair<int, int>;

/// A channel whose home is NIC 1 of four, at both ends.
struct Node {
  std::vector<int> order{1, 0, 2, 3};
  int theirs = 4;
  std::set<Pair> unusable;
  std::set<int> dead;  // local NICs
  std::optional<Rail> active;
  std::map<Pair, unsigned> failed;

  int locals() const { return int(order.size()); }
  int remotes() const { return theirs; }
  int wanted(int k) const { return order[size_t(k)]; }
  int straight(int l) const { return l % theirs; }
  int home_remote() const { return 1; }
  bool usable(int l, int r) const { return !dead.count(l) && !unusable.count({l, r}); }
  bool shares(int l, int r) const { return active && (active->local == l || active->remote == r); }
  unsigned count(int l, int r) const {
    const auto it = failed.find({l, r});
    return it == failed.end() ? 0 : it->second;
  }
  std::pair<unsigned, unsigned> failures(int l, int r) const {
    unsigned near = 0;
    for (const auto& [rail, times] : failed)
      if (rail.first == l || rail.second == r) near += times;
    return {count(l, r), near};
  }
  std::optional<Rail> choice() const { return choose_rail(*this); }
};

TEST(RailChoice, home_comes_first) { EXPECT_EQ(Node().choice(), (Rail{1, 1})); }

TEST(RailChoice, then_straight_rails_in_the_order_in_which_nics_are_wanted) {
  Node n;
  n.dead = {1};
  EXPECT_EQ(n.choice(), (Rail{0, 0}));
  n.order = {1, 3, 2, 0};
  EXPECT_EQ(n.choice(), (Rail{3, 3}));
}

TEST(RailChoice, a_path_shares_no_nic_with_the_active_one) {
  Node n;
  n.active = Rail{1, 1};
  EXPECT_EQ(n.choice(), (Rail{0, 0}));
  n.active = Rail{0, 2};  // a cross rail: neither 0 to 0 nor 2 to 2
  n.dead = {1};
  EXPECT_EQ(n.choice(), (Rail{3, 3}));
}

TEST(RailChoice, unless_there_is_no_other_way) {
  Node n;
  n.order = {1, 0};
  n.theirs = 2;
  n.active = Rail{1, 1};
  n.dead = {0};
  n.unusable = {{1, 1}};
  EXPECT_EQ(n.choice(), (Rail{1, 0}));
}

TEST(RailChoice, a_rail_that_has_failed_comes_after_those_that_have_not) {
  Node n;
  n.failed = {{{1, 1}, 1}};
  EXPECT_EQ(n.choice(), (Rail{0, 0}));
  n.failed = {{{1, 1}, 1}, {{0, 0}, 1}};
  EXPECT_EQ(n.choice(), (Rail{2, 2}));
}

TEST(RailChoice, rails_of_a_nic_that_fails_often_come_later) {
  Node n;
  n.failed = {{{0, 1}, 1}};  // NIC 0, or the peer's NIC 1
  EXPECT_EQ(n.choice(), (Rail{2, 2}));
}

TEST(RailChoice, when_all_straight_rails_have_failed_a_cross_rail_that_has_not_is_taken) {
  Node n;
  n.order = {1, 0};
  n.theirs = 2;
  n.failed = {{{1, 1}, 2}, {{0, 0}, 1}};
  EXPECT_EQ(n.choice(), (Rail{1, 0}));
}

TEST(RailChoice, of_rails_that_have_all_failed_the_one_that_failed_least) {
  Node n;
  n.order = {1, 0};
  n.theirs = 2;
  n.failed = {{{1, 1}, 3}, {{0, 0}, 2}, {{1, 0}, 4}, {{0, 1}, 1}};
  EXPECT_EQ(n.choice(), (Rail{0, 1}));
}

TEST(RailChoice, a_straight_rail_that_has_not_failed_comes_before_cross_rails_whatever_its_nics_did) {
  Node n;
  n.order = {1, 0};
  n.theirs = 3;
  n.failed = {{{1, 0}, 1}};  // near 1 to 1 and 0 to 0, not 0 to 2
  EXPECT_EQ(n.choice(), (Rail{1, 1}));
}

TEST(RailChoice, a_peer_with_fewer_nics_shares_them) {
  Node n;
  n.theirs = 2;
  n.dead = {0, 1};
  EXPECT_EQ(n.choice(), (Rail{2, 0}));
}

TEST(RailChoice, cross_rails_begin_at_the_peer_s_home) {
  Node n;
  n.order = {1, 0};
  n.theirs = 3;
  n.unusable = {{0, 0}, {1, 1}};
  EXPECT_EQ(n.choice(), (Rail{1, 2}));
}

TEST(RailChoice, there_may_be_none) {
  Node n;
  n.dead = {0, 1, 2, 3};
  EXPECT_EQ(n.choice(), std::nullopt);
}

TEST(Rail, works_when_both_nics_do_and_the_driver_answers) {
  EXPECT_TRUE(rail::may_work({}));
  EXPECT_FALSE(rail::may_work({.local_up = false}));
  EXPECT_FALSE(rail::may_work({.remote_up = false}));
  EXPECT_FALSE(rail::may_work({.driver_late = true}));
  EXPECT_TRUE(rail::is_up({.driver_late = true})) << "a path that is there needs no driver";
  EXPECT_FALSE(rail::is_up({.local_up = false}));
  EXPECT_FALSE(rail::is_up({.remote_up = false}));
}

TEST(Rail, takes_traffic_unless_it_is_barred_or_home_and_not_back) {
  EXPECT_TRUE(rail::may_take({}));
  EXPECT_FALSE(rail::may_take({.barred = true}));
  EXPECT_FALSE(rail::may_take({.remote_up = false}));
  EXPECT_FALSE(rail::may_take({.driver_late = true}));
  EXPECT_TRUE(rail::may_take({.home_is_up = false})) << "another rail than home";
  EXPECT_FALSE(rail::may_take({.home = true, .home_is_up = false})) << "failback's business";
  EXPECT_TRUE(rail::may_take({.home = true}));
  EXPECT_TRUE(rail::may_carry({}, false));
  EXPECT_FALSE(rail::may_carry({.barred = true}, false));
  EXPECT_TRUE(rail::may_carry({.home = true, .barred = true, .home_is_up = false}, true))
      << "what carries goes on until it is left";
}

TEST(Rail, a_path_is_opened_where_there_is_none_and_none_has_failed_of_late) {
  EXPECT_TRUE(rail::may_open({}, Purpose::kStandby, true, false));
  EXPECT_FALSE(rail::may_open({}, Purpose::kStandby, true, true)) << "there is one";
  EXPECT_FALSE(rail::may_open({.barred = true}, Purpose::kStandby, true, false));
  EXPECT_FALSE(rail::may_open({.driver_late = true}, Purpose::kStandby, true, false));
}

TEST(Rail, without_resilience_only_home_is_opened) {
  EXPECT_FALSE(rail::may_open({}, Purpose::kFirst, false, false));
  EXPECT_TRUE(rail::may_open({.home = true}, Purpose::kFirst, false, false));
}

TEST(Rail, a_home_that_has_failed_stands_by_for_nobody_but_may_rescue) {
  const RailSight seen{.home = true, .home_is_up = false};
  EXPECT_FALSE(rail::may_open(seen, Purpose::kStandby, true, false));
  EXPECT_TRUE(rail::may_open(seen, Purpose::kRescue, true, false));
  EXPECT_TRUE(rail::may_open(seen, Purpose::kFailback, true, false));
}

TEST(Rail, what_stands_by_or_carries_a_share_takes_over_where_its_nics_are_up) {
  EXPECT_TRUE(takes_over(PathState::kStandby, false, {}));
  EXPECT_TRUE(takes_over(PathState::kLane, false, {}));
  EXPECT_FALSE(takes_over(PathState::kFencing, false, {}));
  EXPECT_FALSE(takes_over(PathState::kStandby, true, {})) << "it is on probation, to come home over it";
  EXPECT_FALSE(takes_over(PathState::kStandby, false, {.local_up = false}));
  EXPECT_TRUE(takes_over(PathState::kStandby, false, {.driver_late = true})) << "that needs no driver";
  EXPECT_TRUE(takes_over(PathState::kStandby, false, {.barred = true}))
      << "it is open, so it has worked since";
}

TEST(Rail, a_path_that_has_failed_does_not_keep_its_rail) {
  EXPECT_TRUE(rail::occupies({1, 2}, false, {1, 2}));
  EXPECT_FALSE(rail::occupies({1, 2}, true, {1, 2})) << "its fence may take for ever, and the rail be back";
  EXPECT_FALSE(rail::occupies({1, 3}, false, {1, 2}));
  EXPECT_FALSE(rail::occupies({2, 2}, false, {1, 2}));
}

TEST(Rail, straight_ones_are_at_the_same_distance_from_home_at_both_ends) {
  for (int local = 0; local < 4; ++local) EXPECT_EQ(rail::straight(local, 4, {1, 1}, 4), local);
  EXPECT_EQ(rail::straight(1, 4, {1, 3}, 4), 3) << "the home rail";
  EXPECT_EQ(rail::straight(2, 4, {1, 3}, 4), 0);
  EXPECT_EQ(rail::straight(0, 4, {1, 3}, 4), 2);
  EXPECT_EQ(rail::straight(0, 4, {3, 0}, 4), 1) << "a home of a higher number here";
  EXPECT_EQ(rail::straight(3, 4, {0, 0}, 2), 1) << "a peer with fewer NICs";
  EXPECT_EQ(rail::straight(0, 2, {1, 0}, 8), 7) << "… with more";
}

}  // namespace
}  // namespace r2ccl
