// SPDX-License-Identifier: Apache-2.0
// LanePlan: which rails a channel uses, and for how much.
#include "r2ccl/balance/lane_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace r2ccl::balance {
namespace {

/// Two nodes of NICs that carry 100 each; a channel for every home.
struct Nodes {
  size_t ours = 4, theirs = 4, home = 0;
  int shift = 0;  // of the peer's NICs: 0 works with this one
  std::set<int> local_down, remote_down;
  std::set<std::pair<int, int>> barred;
  std::set<int> far_nics, far_there;
  double far_cost = 2;
  std::vector<double> carries = std::vector<double>(8, 100);
  bool at_home = true, follows_plan = false, minds_far = false;
  Demand demand;
  uint64_t version = 1;
  LanePlan plan;

  size_t locals() const { return ours; }
  size_t remotes() const { return theirs; }
  int straight(int l) const { return int(size_t(l + shift) % theirs); }
  bool local_usable(int l) const { return !local_down.count(l); }
  bool remote_usable(int r) const { return !remote_down.count(r); }
  bool rail_usable(int l, int r) const { return !barred.count({l, r}); }
  bool far(int l, int r) const { return far_nics.count(l) != 0 || far_there.count(r) != 0; }
  double capacity(int l) const { return carries[size_t(l)]; }
  double nominal(int) const { return 100; }
  bool gray(int l) const { return carries[size_t(l)] < 100; }

  Nodes() {
    for (size_t l = 0; l < ours; ++l) demand.add(0, l, 1);
  }
  void look() { plan.look(*this, {demand, version, far_cost}, {home, at_home, follows_plan, minds_far}); }
  double share(int l) const { return plan.share(l, plan.partner(l)); }
  double sum() const {
    double all = 0;
    for (size_t l = 0; l < ours; ++l) all += share(int(l));
    return all;
  }
};

TEST(LanePlan, is_due_every_10_ms_for_a_channel_that_can_send_and_does) {
  LanePlan plan;
  const uint64_t now = 1'000'000'000;
  EXPECT_FALSE(plan.due(false, true, now)) << "it is not ready";
  EXPECT_FALSE(plan.due(true, false, now)) << "it has not sent of late";
  EXPECT_TRUE(plan.due(true, true, now));
  EXPECT_FALSE(plan.due(true, true, now + LanePlan::kLookEveryNs - 1));
  plan.look_soon();
  EXPECT_TRUE(plan.due(true, true, now + 1));
  EXPECT_TRUE(plan.due(true, true, now + 1 + LanePlan::kLookEveryNs));
}

TEST(LanePlan, all_is_well_and_everything_stays_at_home) {
  Nodes n;
  n.home = 2;
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  EXPECT_EQ(n.share(2), 1);
  EXPECT_EQ(n.sum(), 1);
  EXPECT_FALSE(n.plan.wants(0, 0));
}

TEST(LanePlan, a_dead_nic_s_channel_is_spread_over_the_others) {
  Nodes n;
  n.local_down = {0};
  n.at_home = false;
  n.look();
  EXPECT_TRUE(n.plan.spreads());
  EXPECT_EQ(n.plan.partner(0), -1);
  EXPECT_EQ(n.share(0), 0);
  for (int l = 1; l < 4; ++l) EXPECT_NEAR(n.share(l), 1.0 / 3, 1e-9) << l;
}

TEST(LanePlan, dead_nics_of_both_sides_leave_a_cross_rail) {
  Nodes n;
  n.ours = n.theirs = 2;
  n.local_down = {0};
  n.remote_down = {1};
  n.at_home = false;
  n.look();
  EXPECT_EQ(n.plan.partner(1), 0);
  EXPECT_TRUE(n.plan.wants(1, 0));
  EXPECT_FALSE(n.plan.wants(1, 1));
  EXPECT_EQ(n.share(1), 1);
}

TEST(LanePlan, a_rail_that_is_barred_carries_nothing) {
  Nodes n;
  n.local_down = {0};
  n.barred = {{1, 1}};
  n.at_home = false;
  n.look();
  EXPECT_EQ(n.share(1), 0);
  EXPECT_NEAR(n.share(2), 0.5, 1e-9);
  EXPECT_NEAR(n.sum(), 1, 1e-9);
}

TEST(LanePlan, a_slow_home_keeps_what_it_can_carry) {
  Nodes n;
  n.carries[0] = 25;
  n.look();
  EXPECT_TRUE(n.plan.spreads());
  EXPECT_GT(n.share(0), 0.2);
  EXPECT_LT(n.share(0), 0.5);
  EXPECT_NEAR(n.sum(), 1, 1e-9);
}

TEST(LanePlan, a_peer_with_fewer_nics_is_no_failure) {
  Nodes n;
  n.theirs = 2;
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  n.remote_down = {0};
  n.look();
  EXPECT_TRUE(n.plan.spreads()) << "but a NIC that it has lost is one";
}

TEST(LanePlan, a_home_without_a_partner_is_no_rail) {
  Nodes n;
  n.ours = 2;
  n.theirs = 1;
  n.home = 1;
  n.look();
  EXPECT_EQ(n.plan.partner(1), -1) << "NIC 0 works with the peer's only one";
  EXPECT_FALSE(n.plan.spreads());
  EXPECT_FALSE(n.plan.wants(1, n.plan.partner(1)));
  EXPECT_EQ(n.share(1), 0);
}

TEST(LanePlan, a_channel_that_follows_a_plan_stays_where_that_has_it_unless_a_nic_is_slow) {
  Nodes n;
  n.home = 1;
  n.local_down = {3};
  n.follows_plan = true;
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  EXPECT_EQ(n.share(1), 1);
  n.carries[1] = 50;
  n.look();
  EXPECT_TRUE(n.plan.spreads());
}

TEST(LanePlan, a_channel_away_from_home_spreads_and_is_in_nobody_s_plan) {
  Nodes n;
  n.at_home = false;
  n.look();
  EXPECT_TRUE(n.plan.spreads()) << "all is well, but not where it is";
  EXPECT_EQ(n.share(0), 1);
  n.local_down = {0};
  n.follows_plan = true;
  n.look();
  EXPECT_EQ(n.share(0), 0);
  EXPECT_NEAR(n.sum(), 1, 1e-9);
}

TEST(LanePlan, every_nic_across_sockets_is_far) {
  Nodes n;
  n.local_down = {0};
  n.at_home = false;
  n.far_nics = {1, 2};
  n.look();
  EXPECT_NEAR(n.share(1), n.share(2), 1e-9);
  EXPECT_GT(n.share(3), n.share(1));
}

TEST(LanePlan, crossing_sockets_is_a_reason_to_spread_only_when_its_cost_is_known) {
  Nodes n;
  n.far_nics = {0};
  n.demand = {};
  n.demand.add(1, 0, 1);
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  n.minds_far = true;
  n.look();
  EXPECT_TRUE(n.plan.spreads());
  EXPECT_LT(n.share(0), 1);
}

TEST(LanePlan, nics_are_counted_from_home_at_both_ends) {
  Nodes n;
  n.shift = 1;
  n.look();
  EXPECT_TRUE(n.plan.wants(0, 1));
  n.remote_down = {1};  // which works with NIC 0
  n.at_home = false;
  n.look();
  EXPECT_EQ(n.share(0), 0);
  EXPECT_TRUE(n.plan.wants(1, 2));
  EXPECT_TRUE(n.plan.wants(3, 0));
}

TEST(LanePlan, a_cross_rail_is_as_far_as_its_own_two_nics) {
  Nodes n;
  n.ours = n.theirs = 3;
  n.at_home = false;
  n.local_down = {0};
  n.remote_down = {2};
  n.far_there = {2};
  n.look();
  ASSERT_EQ(n.plan.partner(2), 0);
  EXPECT_NEAR(n.share(2), 0.5, 1e-9) << "who would be far is not used";
  n.far_there = {0};
  n.look();
  EXPECT_LT(n.share(2), 0.4);
}

TEST(LanePlan, a_home_rail_that_may_not_be_opened_is_a_loss) {
  Nodes n;
  n.barred = {{0, 0}};
  n.look();
  EXPECT_TRUE(n.plan.spreads());
  EXPECT_EQ(n.share(0), 0);
}

TEST(LanePlan, comes_home_with_everything) {
  Nodes n;
  n.carries[0] = 25;
  n.look();
  ASSERT_TRUE(n.plan.spreads());
  n.carries[0] = 100;
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  EXPECT_EQ(n.share(0), 1);
  EXPECT_EQ(n.sum(), 1);
}

TEST(LanePlan, is_computed_anew_when_a_nic_changes_or_the_buffers_lie_elsewhere) {
  Nodes n;
  n.local_down = {0};
  n.at_home = false;
  n.look();
  const double near = n.share(1);
  n.carries[1] = 50;
  n.look();
  EXPECT_LT(n.share(1), near);
  n.carries[1] = 100;
  n.look();
  EXPECT_EQ(n.share(1), near);
  n.far_nics = {1};
  n.look();
  EXPECT_LT(n.share(1), near);
}

TEST(LanePlan, what_crossing_costs_counts) {
  Nodes n;
  n.far_nics = {0};
  n.minds_far = true;
  n.demand = {};
  for (size_t l = 0; l < 4; ++l) n.demand.add(0b0001, l, l == 0 ? 1 : 0.9);
  n.far_cost = 1;
  n.look();
  const double cheap = n.share(0);
  ++n.version;
  n.far_cost = 4;
  n.look();
  EXPECT_LT(n.share(0), cheap);
}

TEST(LanePlan, is_computed_anew_when_traffic_changes) {
  Nodes n;
  n.local_down = {0};
  n.at_home = false;
  n.look();
  const double before = n.share(1);
  n.demand.add(0, 1, 5);  // without another version nobody is to look
  n.look();
  EXPECT_EQ(n.share(1), before);
  ++n.version;
  n.look();
  EXPECT_LT(n.share(1), before);
}

TEST(LanePlan, a_path_that_stands_by_becomes_the_lane_or_one_is_opened) {
  using Lane = LanePlan::Lane;
  EXPECT_EQ(LanePlan::add({.has_path = true, .stands_by = true}), Lane::kStart);
  EXPECT_EQ(LanePlan::add({.has_path = true, .may_take = true}), Lane::kNothing)
      << "it carries, or is opened";
  EXPECT_EQ(LanePlan::add({.may_take = true}), Lane::kOpen);
  EXPECT_EQ(LanePlan::add({.opens = true, .may_take = true}), Lane::kNothing) << "one at a time";
  EXPECT_EQ(LanePlan::add({}), Lane::kNothing);
}

TEST(LanePlan, a_lane_rests_when_it_has_not_been_wanted_for_a_while) {
  using Keep = LanePlan::Keep;
  Nodes n;
  n.local_down = {1};
  n.home = 1, n.at_home = false;
  n.look();
  ASSERT_TRUE(n.plan.wants(0, n.plan.partner(0)));
  const uint64_t rest = LanePlan::kRestAfterNs;
  EXPECT_EQ(n.plan.keep(0, n.plan.partner(0), 5, 5 + 2 * rest), Keep::kWanted);
  EXPECT_EQ(n.plan.keep(0, n.plan.partner(0) + 1, 5, 5 + rest), Keep::kWaits) << "another rail of that NIC";
  EXPECT_EQ(n.plan.keep(0, n.plan.partner(0) + 1, 5, 6 + rest), Keep::kRests);
}

TEST(LanePlan, lanes_are_looked_at_once_more_when_everything_is_back_at_home) {
  Nodes n;
  n.look();
  EXPECT_FALSE(n.plan.applies(false));
  EXPECT_TRUE(n.plan.applies(true)) << "they are to rest";
  n.local_down = {1};
  n.home = 1, n.at_home = false;
  n.look();
  EXPECT_TRUE(n.plan.applies(false));
  n.local_down = {};
  n.home = 0, n.at_home = true;
  n.look();
  EXPECT_FALSE(n.plan.spreads());
  EXPECT_TRUE(n.plan.applies(false)) << "the shares are still those of the look before";
  n.look();
  EXPECT_FALSE(n.plan.applies(false));
}

TEST(LanePlan, rails_without_a_path_leave_their_share_to_the_others) {
  Nodes n;
  n.local_down = {1};
  n.home = 1, n.at_home = false;
  n.look();
  const auto carrier = [&](int l, bool gray = false, bool far = false) {
    return LanePlan::Carrier{l, n.plan.partner(l), gray, far};
  };
  const double share0 = n.share(0), share2 = n.share(2);
  ASSERT_GT(share0, 0);
  ASSERT_GT(share2, 0);
  const LanePlan::Carrier two[] = {carrier(0), carrier(2, true, false)};
  const auto parts = n.plan.parts(two);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_DOUBLE_EQ(parts[0].share, share0 / (share0 + share2));
  EXPECT_DOUBLE_EQ(parts[0].share + parts[1].share, 1);
  EXPECT_FALSE(parts[0].slow);
  EXPECT_TRUE(parts[1].slow) << "its NIC carries less than others do";
  const LanePlan::Carrier across[] = {carrier(0, false, true), carrier(2)};
  EXPECT_TRUE(n.plan.parts(across)[0].slow) << "what is sent crosses sockets";
  const LanePlan::Carrier none[] = {carrier(1)};
  EXPECT_TRUE(n.plan.parts(none).empty()) << "nothing is meant for it: all goes over the active path";
}

}  // namespace
}  // namespace r2ccl::balance
