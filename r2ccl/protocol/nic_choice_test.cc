// SPDX-License-Identifier: Apache-2.0
// Mode 1: which NIC a channel is bound for, how it counts, and which NIC it is to take.
#include "r2ccl/protocol/nic_choice.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr auto kNobody = [](auto&&) {};
constexpr auto kAnywhere = [](int) { return true; };

/// A channel that sends, with its home on NIC 1.
TrafficSight home() {
  TrafficSight seen;
  seen.home = seen.active = 1;
  seen.in_demand = true;
  return seen;
}
TrafficSight without_a_path() {
  TrafficSight seen = home();
  seen.active = TrafficSight::kNone;
  return seen;
}

void opens(TrafficSight& seen, Purpose purpose, int nic) {
  seen.opened = nic;
  seen.purpose = purpose;
}

TEST(BoundFor, the_nic_that_carries_unless_it_moves) {
  TrafficSight seen = home();
  seen.standby = 2, seen.target = 3;
  for (const Purpose purpose :
       {Purpose::kFirst, Purpose::kStandby, Purpose::kRescue, Purpose::kFailback, Purpose::kLane}) {
    opens(seen, purpose, 0);
    EXPECT_EQ(bound_for(seen), 1) << "what stands by, or is opened to, does not carry";
  }
  opens(seen, Purpose::kSpread, 3);
  EXPECT_EQ(bound_for(seen), 3) << "a path is being opened for the move";
  seen.move = 0;
  EXPECT_EQ(bound_for(seen), 0) << "it is open, and waits for its probe";
}

TEST(BoundFor, without_a_path_the_one_that_takes_over_first) {
  TrafficSight seen = without_a_path();
  EXPECT_EQ(bound_for(seen), 1) << "nothing else is known: home";
  opens(seen, Purpose::kSpread, 3);
  seen.move = 3;
  EXPECT_EQ(bound_for(seen), 1) << "a move ends with the path that it left";
  opens(seen, Purpose::kRescue, 3);
  EXPECT_EQ(bound_for(seen), 3);
  seen.standby = 2;
  EXPECT_EQ(bound_for(seen), 2) << "it is taken at once";
  seen.target = 0;
  EXPECT_EQ(bound_for(seen), 0) << "of a planned migration";
}

TEST(CountIn, at_home_it_counts_once) {
  NicLoad load;
  EXPECT_FALSE(count_in(load, home(), kNobody));
  EXPECT_EQ(load.own[1], 1);
  EXPECT_EQ(load.own[0] + load.own[2], 0);
  EXPECT_EQ(load.leaving[1], 0);
}

TEST(CountIn, away_it_counts_on_its_home_as_well) {
  NicLoad load;
  TrafficSight seen = home();
  seen.active = 2;
  EXPECT_TRUE(count_in(load, seen, kNobody));
  EXPECT_EQ(load.own[1], 1);
  EXPECT_EQ(load.own[2], 1);
}

TEST(CountIn, on_its_way_it_counts_where_it_goes_and_is_leaving_where_it_is) {
  NicLoad load;
  TrafficSight seen = home();
  seen.active = 2;
  opens(seen, Purpose::kSpread, 0);
  EXPECT_TRUE(count_in(load, seen, kNobody));
  EXPECT_EQ(load.own[0], 1);
  EXPECT_EQ(load.own[2], 0);
  EXPECT_EQ(load.leaving[2], 1);
  EXPECT_EQ(load.leaving[0], 0);
}

TEST(CountIn, without_a_path_it_is_away_when_another_nic_takes_over) {
  NicLoad load;
  TrafficSight seen = without_a_path();
  EXPECT_FALSE(count_in(load, seen, kNobody)) << "it waits for its home";
  seen.standby = 2;
  EXPECT_TRUE(count_in(load, seen, kNobody));
  EXPECT_EQ(load.own[2], 1);
}

TEST(CountIn, what_would_take_over_is_behind_the_nic_that_carries) {
  NicLoad load;
  TrafficSight seen = home();
  opens(seen, Purpose::kStandby, 3);
  count_in(load, seen, [](auto&& f) { f(2); });
  EXPECT_EQ(load.behind[1][2], 1);
  EXPECT_EQ(load.behind[1][3], 1) << "one that is being opened, too";
  EXPECT_EQ(load.behind[1][0], 0);
  seen.in_demand = false;
  count_in(load, seen, kNobody);
  EXPECT_EQ(load.own[1], 1 + NicLoad::kIdle) << "who sends nothing hardly counts";
}

TEST(WantedNics, home_then_those_with_the_least_to_carry_then_the_nearest) {
  const Backup backups[] = {{0, 1}, {2, 1}, {3, 2}};
  NicLoad load;
  EXPECT_EQ(wanted_nics(load, home(), backups, 1), (std::vector{1, 0, 2, 3}));
  load.own = {1, 1, 0, 0};
  EXPECT_EQ(wanted_nics(load, home(), backups, 1), (std::vector{1, 2, 3, 0}));
  load.own = {5 * NicLoad::kIdle, 1, 9 * NicLoad::kIdle, 0};
  EXPECT_EQ(wanted_nics(load, home(), backups, 1), (std::vector{1, 0, 2, 3}))
      << "idle channels count only among equally near NICs";
  load.own[2] = 0;
  EXPECT_EQ(wanted_nics(load, home(), backups, 1), (std::vector{1, 2, 0, 3}));
}

TEST(WantedNics, those_that_would_leave_the_active_nic_together_with_it_count) {
  const Backup backups[] = {{0, 1}, {2, 1}};
  NicLoad load;
  load.behind[1][0] = 2;
  EXPECT_EQ(wanted_nics(load, home(), backups, 1), (std::vector{1, 2, 0}));
  EXPECT_EQ(wanted_nics(load, without_a_path(), backups, 1), (std::vector{1, 0, 2}))
      << "they have left it already, and are counted where they go";
}

TEST(WantedNics, its_own_share_of_the_load_does_not_count_against_a_nic) {
  const Backup backups[] = {{0, 1}, {2, 1}};
  NicLoad load;
  load.own = {1, 1, 1};
  TrafficSight seen = without_a_path();
  seen.standby = 2;
  EXPECT_EQ(wanted_nics(load, seen, backups, 1), (std::vector{1, 2, 0}));
}

TEST(WantedNics, an_idle_channel_s_own_share_is_as_small_as_it_was_counted) {
  const Backup backups[] = {{0, 1}, {2, 1}};
  NicLoad load;
  load.own = {1, 1, 1 + NicLoad::kIdle};
  TrafficSight seen = without_a_path();
  seen.standby = 2, seen.in_demand = false;
  EXPECT_EQ(wanted_nics(load, seen, backups, 1), (std::vector{1, 0, 2}));
}

TEST(CountIn, a_channel_at_home_that_moves_leaves_its_home) {
  NicLoad load;
  TrafficSight seen = home();
  seen.move = 2;
  EXPECT_FALSE(count_in(load, seen, kNobody)) << "it is at home still";
  EXPECT_EQ(load.leaving[1], 1);
  seen = home();
  seen.active = 2;
  count_in(load, seen, kNobody);
  EXPECT_EQ(load.leaving[2], 0) << "away, but it stays there";
}

TEST(WantedNics, across_sockets_a_channel_weighs_what_crossing_costs) {
  const Backup backups[] = {{0, 1, true}, {2, 2}};
  NicLoad load;
  load.own = {0, 1, 1};
  EXPECT_EQ(wanted_nics(load, without_a_path(), backups, 1), (std::vector{1, 0, 2}));
  EXPECT_EQ(wanted_nics(load, without_a_path(), backups, 3), (std::vector{1, 2, 0}));
}

TEST(LessLoaded, a_nic_with_clearly_less_to_carry_and_of_those_the_least) {
  const Backup backups[] = {{0, 1}, {2, 1}, {3, 1}};
  NicLoad load;
  load.own = {1, 3, 0, 2};
  EXPECT_EQ(less_loaded(load, 1, backups, 1, kAnywhere), 2);
  EXPECT_EQ(less_loaded(load, 1, backups, 1, [](int nic) { return nic != 2; }), 0);
  EXPECT_EQ(less_loaded(load, 1, backups, 1, [](int nic) { return nic == 3; }), std::nullopt)
      << "with one fewer nothing is gained";
  EXPECT_EQ(less_loaded(load, 2, backups, 1, kAnywhere), std::nullopt);
}

TEST(LessLoaded, the_least_wherever_it_stands_in_the_list) {
  NicLoad load;
  load.own = {2, 5, 0, 1};
  const Backup backups[] = {{2, 1}, {0, 1}, {3, 1}};
  EXPECT_EQ(less_loaded(load, 1, backups, 1, kAnywhere), 2);
  const Backup others[] = {{3, 1}, {0, 1}, {2, 1}};
  EXPECT_EQ(less_loaded(load, 1, others, 1, kAnywhere), 2);
}

TEST(LessLoaded, not_while_another_one_leaves) {
  const Backup backups[] = {{0, 1}, {2, 1}};
  NicLoad load;
  load.own = {3, 1, 0};
  ASSERT_EQ(less_loaded(load, 0, backups, 1, kAnywhere), 2);
  load.leaving[0] = 1;
  EXPECT_EQ(less_loaded(load, 0, backups, 1, kAnywhere), std::nullopt);
}

TEST(LessForTiny, only_away_from_home_and_only_where_they_may_travel) {
  const Backup backups[] = {{0, 1}, {2, 1}, {3, 1}};
  TrafficSight seen = home();
  seen.active = 2;
  NicLoad load;
  load.own = {0, 3, 3, 1};
  EXPECT_EQ(less_for_tiny(load, seen, false, backups, 1, kAnywhere), 0);
  EXPECT_EQ(less_for_tiny(load, seen, false, backups, 1, [](int nic) { return nic == 3; }), 3);
  EXPECT_EQ(less_for_tiny(load, seen, false, backups, 1, [](int nic) { return nic == 1; }), std::nullopt);
  EXPECT_EQ(less_for_tiny(load, seen, true, backups, 1, kAnywhere), std::nullopt) << "home";
  seen.active = TrafficSight::kNone;
  EXPECT_EQ(less_for_tiny(load, seen, false, backups, 1, kAnywhere), std::nullopt) << "nothing carries";
}

TEST(LessLoaded, across_sockets_it_must_gain_more) {
  const Backup backups[] = {{2, 2, true}};
  NicLoad load;
  load.own = {2, 0, 0};
  EXPECT_EQ(less_loaded(load, 0, backups, 1, kAnywhere), 2);
  EXPECT_EQ(less_loaded(load, 0, backups, 1.6, kAnywhere), std::nullopt);
}

}  // namespace
}  // namespace r2ccl
