// SPDX-License-Identifier: Apache-2.0
// Jobs with several faults at a time, of different kinds: whose fence is whose, each strike's own t0 and
// heal, and what the mode can carry from one change of the NICs to the next.
#include <cmath>

#include "harness/judge/nics_left.h"
#include "harness/judge/testing/several_faults_fixture.h"

namespace r2bench {
namespace {

using faultinject::Effect;

// The fence of the lost NIC comes only after the throttle of another one.
TEST_F(SeveralFaults, a_late_fence_answers_no_fault_that_came_in_between) {
  scenario.faults = {fault("port_down", "node2/nic1"), fault("throttle", "node0/nic0", kGbit)};
  go_on(1000, 1600);
  strike(1305, 0);
  strike(1403.5, 1);
  fence(1502, 2, 1, 1, "watchdog");
  go_on(1600, 3600, {5}, 20);
  const ModeResult evaluated = result();
  EXPECT_FALSE(evaluated.faults[1].detect_ms);
  EXPECT_EQ(evaluated.faults[1].detected_by, "");
  EXPECT_DOUBLE_EQ(evaluated.faults[0].detect_ms.value_or(0), 197);
  // Nor does that of the same NIC of another node, or of another NIC of the same node.
  for (const auto& [node, nic] : {std::pair<uint16_t, uint16_t>{1, 1}, {2, 0}}) {
    job.record.fences.clear();
    fence(1502, node, nic, 0, "watchdog");
    EXPECT_FALSE(result().faults[0].detect_ms) << "node" << node << "/nic" << nic;
  }
}

TEST_F(SeveralFaults,
       of_two_faults_of_one_rail_the_later_one_is_answered_unless_the_operation_was_still_open) {
  scenario.faults = {fault("throttle", "node1/nic0", kGbit / 2), fault("port_down", "node0/nic0")};
  go_on(1000, 1600);
  strike(1305, 0);
  strike(1455, 1);
  fence(1460, 1, 0, 0, "completion");
  go_on(1600, 3600, {2}, 20);
  EXPECT_FALSE(result().faults[0].detect_ms) << "a slow NIC asks for no fence";
  EXPECT_DOUBLE_EQ(result().faults[1].detect_ms.value_or(0), 5);
  scenario.faults[0].kind = &faultinject::fault_kind("blackhole");
  EXPECT_FALSE(result().faults[0].detect_ms) << "the operation that it met was over long before";
  job.firings[0].t0_ns = at(1452);
  EXPECT_DOUBLE_EQ(result().faults[0].detect_ms.value_or(0), 8) << "one fence for both";
  EXPECT_DOUBLE_EQ(result().faults[1].detect_ms.value_or(0), 5);
}

TEST_F(SeveralFaults, a_strike_that_finds_its_nic_taken_is_no_sample) {
  scenario.faults = {fault("port_down", "node2/nic1"), fault("port_down", "node2/nic1"),
                     fault("blackhole", "node2/*")};
  go_on(1000, 1300);
  operation(1300, 1560);
  for (uint32_t s : {0, 1, 2, 3}) deliver(s, 1300, 1560, 10, uint16_t(s % 2));
  deliver(4, 1300, 1560, 10, 0);
  deliver(5, 1300, 1350, 10, 1);
  deliver(5, 1370, 1560, 20, 0);
  go_on(1560, 5560, {5}, 20);
  fence(1360, 2, 1, 1, "completion");
  strike(1355, 0);
  strike(1355, 1);
  for (const double again : {1355.0, 1357.0, 2005.0}) {
    job.firings[1].t0_ns = at(again);
    const ModeResult evaluated = result();
    EXPECT_TRUE(evaluated.faults[0].sampled) << again << ": " << evaluated.faults[0].why_not_sampled;
    EXPECT_DOUBLE_EQ(evaluated.faults[0].detect_ms.value_or(0), 5);
    EXPECT_FALSE(evaluated.faults[1].sampled) << again;
    EXPECT_EQ(evaluated.faults[1].why_not_sampled, "it took nothing from its NIC");
    EXPECT_EQ(evaluated.faults_sampled, 1u);
    EXPECT_EQ(evaluated.detect_ms.n, 1u);
  }
  // One that outlasts the first takes something, and so does one that takes another NIC beside it.
  job.firings[1].t0_ns = at(1357);
  job.firings[0].healed_ns = at(3000);
  EXPECT_TRUE(result().faults[1].sampled) << result().faults[1].why_not_sampled;
  job.firings[0].healed_ns = 0;
  job.firings.pop_back();
  strike(1357, 2);
  EXPECT_TRUE(result().faults[1].sampled) << result().faults[1].why_not_sampled;
}

// Of posts that are refused, which takes no NIC away, the first one is answered by nobody.
TEST_F(SeveralFaults, a_fence_that_a_later_failed_call_explains_does_not_answer_an_earlier_fault) {
  scenario.faults = {fault("post_fail", "node2/nic1"), fault("blackhole", "node2/nic1"),
                     fault("post_fail", "node2/nic1")};
  for (const size_t first : {0, 1}) {
    job.firings.clear();
    job.record = {};
    job.record.streams = {{2, 0, 2, 1}, {2, 1, 2, 1}};
    for (double t = 1000; t < 4000; t += 100) operation(t, t + 100);
    for (uint32_t s : {0, 1}) deliver(s, 1000, 4000, 10, uint16_t(s));
    job.record.fences.clear();
    fence(1656, 2, 1, 1, "completion");
    strike(1355, first);
    strike(1655, 2);
    const ModeResult evaluated = result();
    EXPECT_FALSE(evaluated.faults[0].detect_ms) << scenario.faults[first].kind->name;
    EXPECT_DOUBLE_EQ(evaluated.faults[1].detect_ms.value_or(0), 1);
  }
}

TEST_F(LostAndSlow, a_fence_of_the_lost_nic_does_not_answer_the_slow_one) {
  fence(1460, 0, 0, 1, "watchdog");
  for (const char* kind : {"throttle", "delay"}) {
    scenario.faults[1].kind = &faultinject::fault_kind(kind);
    const ModeResult evaluated = result();
    EXPECT_DOUBLE_EQ(evaluated.faults[0].detect_ms.value_or(0), 105) << kind;
    EXPECT_FALSE(evaluated.faults[1].detect_ms) << kind;
    EXPECT_FALSE(evaluated.faults[1].migrate_ms) << kind;
    EXPECT_LT(evaluated.faults[1].recover_ms.value_or(HUGE_VAL), 60) << kind << ": no stream has to leave it";
  }
}

TEST_F(LostAndSlow, a_fence_that_only_the_slow_nic_explains_answers_it) {
  fence(1460, 0, 0, 1, "watchdog");
  fence(1470, 2, 0, 0, "watchdog");
  EXPECT_DOUBLE_EQ(result().faults[1].detect_ms.value_or(0), 15) << "the other one is that of the lost NIC";
  // The same where the slow NIC came first.
  job.firings[0].t0_ns = at(1455);
  job.firings[1].t0_ns = at(1355);
  EXPECT_DOUBLE_EQ(result().faults[1].detect_ms.value_or(0), 115);
  EXPECT_DOUBLE_EQ(result().faults[0].detect_ms.value_or(0), 5);
}

TEST_F(LostAndSlow, what_was_lost_before_explains_a_fence_only_while_it_can) {
  fence(1600, 0, 0, 1, "watchdog");
  EXPECT_FALSE(result().faults[1].detect_ms) << "still lost";
  job.firings[0].healed_ns = at(1500);
  EXPECT_DOUBLE_EQ(result().faults[1].detect_ms.value_or(0), 145)
      << "healed, and the operation that it met had ended";
  job.record.fences[0].time_ns = at(1540);
  EXPECT_FALSE(result().faults[1].detect_ms) << "that operation was still open";
  EXPECT_DOUBLE_EQ(result().faults[0].detect_ms.value_or(0), 185);
}

TEST_F(LostAndSlow, a_later_loss_of_the_slow_nic_is_answered) {
  scenario.faults.push_back(fault("port_down", "node0/nic0"));
  strike(1600, 2);
  fence(1460, 0, 0, 1, "watchdog");
  fence(1605, 2, 0, 0, "completion");
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].detect_ms.value_or(0), 105);
  EXPECT_FALSE(evaluated.faults[1].detect_ms) << "either fence has another reason";
  EXPECT_DOUBLE_EQ(evaluated.faults[2].detect_ms.value_or(0), 5);
}

TEST_F(SeveralFaults, each_round_of_a_repeating_fault_is_a_strike) {
  repeat_port_down(3);
  go_on(1000, 6000);
  Firing& firing = strike(1505);
  firing.board_id = 7;
  firing.rounds = 3;
  firing.healed_ns = at(3605);
  for (uint32_t round = 0; round < 3; ++round) {
    const double t0 = 1505 + 1000 * round;
    witness(7, t0, Effect::kPortErrDelivered, round);
    witness(7, t0 + 0.3, Effect::kQpToErr, round);
    witness(7, t0 + 100, Effect::kPortActiveDelivered, round);
    witness(7, t0 + 120, Effect::kWcShown, round);
  }
  for (const auto every : {0, 1000}) {
    scenario.faults[0].every = std::chrono::milliseconds(every);
    const ModeResult evaluated = result();
    ASSERT_EQ(evaluated.faults.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(evaluated.faults[i].t0_ns, at(1505 + 1000 * double(i)));
      EXPECT_EQ(evaluated.faults[i].healed_ns, at(1605 + 1000 * double(i)));
    }
  }
}

// Three at a time on a node of four NICs: nic1 slow, then nic0 lost, then nic2 lost for a while.
TEST_F(SeveralFaults, the_limit_follows_the_nics_that_are_left_in_each_interval) {
  scenario.fabric.nodes = 2;
  scenario.fabric.nics_per_node = 4;
  mode.kind = ModeKind::kBalance;
  scenario.faults = {fault("throttle", "node1/nic1", kGbit / 2), fault("port_down"),
                     fault("port_down", "node1/nic2")};
  job.record.streams = {{1, 0, 1, 0}};
  run(1000, 9000, 100, 10);
  job.record.streams.push_back({1, 1, 1, 0});
  strike(2005, 0).healed_ns = at(6000);
  strike(3005, 1);
  strike(4005, 2).healed_ns = at(5000);
  const ModeResult evaluated = result();
  std::vector<std::pair<uint64_t, double>> limits;
  for (const LimitPoint& point : evaluated.timeline.limits) limits.emplace_back(point.time_ns, point.limit);
  EXPECT_EQ(limits, (std::vector<std::pair<uint64_t, double>>{{at(2005), 3.5 / 4},
                                                              {at(3005), 2.5 / 4},
                                                              {at(4005), 1.5 / 4},
                                                              {at(5000), 2.5 / 4},
                                                              {at(6000), 0.75}}));
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit_before, 3.5 / 4);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 2.5 / 4);
  EXPECT_DOUBLE_EQ(evaluated.throughput.limit, 1.5 / 4) << "behind the last strike";
}

TEST_F(SeveralFaults, a_heal_asks_for_nothing_more_and_a_further_strike_for_less) {
  scenario.fabric.nics_per_node = 4;
  mode.kind = ModeKind::kBalance;
  scenario.faults = {fault("port_down"), fault("port_down", "node1/nic2")};
  strike(1000, 0).healed_ns = at(2000);
  strike(3000, 1);
  const std::vector<Firing> strikes = strikes_of(scenario, job);
  const NicsLeft left(scenario, mode, strikes, job.record);
  const auto steps = left.limits_for(strikes[0], at(9000));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_DOUBLE_EQ(steps[0].limit, 0.75);
  EXPECT_EQ(steps[1].from_ns, at(3000));
  EXPECT_DOUBLE_EQ(steps[1].limit, 0.5) << "nic0 as long as it may be away, and nic2";
}

// Two NICs of a card that die within a millisecond, and a plugin that moves both to one backup.
TEST_F(SeveralFaults, two_nics_that_die_together_are_both_measured_against_what_both_leave) {
  scenario.fabric.nodes = 2;
  scenario.fabric.nics_per_node = 4;
  scenario.faults = {fault("port_down"), fault("port_down", "node1/nic1")};
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}, {1, 2, 1, 0}, {1, 3, 1, 0}};
  for (double t = 1000; t < 1500; t += 100) operation(t, t + 100);
  for (uint32_t s = 0; s < 4; ++s) deliver(s, 1000, 1550, 10, uint16_t(s));
  strike(1555, 0);
  strike(1555.8, 1);
  for (uint16_t nic : {0, 1}) fence(1557, 1, nic, 0, "event");
  for (double t = 1500; t < 6000; t += 300) operation(t, t + 300);
  for (uint32_t s = 0; s < 4; ++s) deliver(s, 1560, 6000, 30, uint16_t(s < 2 ? 2 : s));  // a third each
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults_sampled, 2u);
  EXPECT_EQ(evaluated.faults_unrecovered, 2u);
  EXPECT_DOUBLE_EQ(evaluated.throughput.limit, 0.5) << "nic2 and nic3 take one each";
  EXPECT_NEAR(evaluated.throughput.retained, 1 / 3., 0.02);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 1u);
  EXPECT_EQ(evaluated.throughput.rounds_settled, 0u);
}

// The first fault stalls its stream until after the second one has struck: the rate that comes back is what
// both leave.
TEST_F(SeveralFaults, a_recovery_after_a_further_strike_is_held_against_what_that_leaves) {
  scenario.fabric.nodes = 2;
  scenario.faults = {fault("port_down"), fault("throttle", "node1/nic1", kGbit / 2)};
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  run(1000, 1500, 100, 10);
  operation(1500, 2000);
  deliver(0, 1500, 1550, 10, 0);
  deliver(1, 1500, 1550, 10, 1);
  strike(1555, 0);
  strike(1655, 1);
  fence(1755, 1, 0, 0, "watchdog");
  deliver(0, 1760, 2000, 40, 1);  // both on a NIC of half the rate
  deliver(1, 1760, 2000, 40, 1);
  run(2000, 6000, 400, 40, 1);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 0.5) << "at t0";
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.25);
  EXPECT_DOUBLE_EQ(evaluated.faults[0].recover_ms.value_or(0), 1800 - 1555);
  EXPECT_EQ(evaluated.faults_unrecovered, 0u);
}

// nic1 is slow, and heals long before nic0 does, whose loss is the round's last strike.
TEST_F(SeveralFaults, the_retained_rate_is_that_of_the_time_in_which_the_same_nics_are_left) {
  scenario.fabric.nodes = 2;
  scenario.faults = {fault("throttle", "node1/nic1", kGbit / 2), fault("port_down")};
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  run(3500, 9000, 100, 10, 1);
  strike(1550, 0).healed_ns = at(3500);
  strike(1555, 1);
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds_measured, 1u) << t.why_not;
  EXPECT_NEAR(t.retained, 0.5, 0.01) << "not the mean of that and of the time after it";
}

// A queue pair is replaced on its own NIC: what is retained is what the backup carried until then.
TEST_F(SeveralFaults, a_queue_pair_takes_its_nic_away_until_its_channel_is_back) {
  scenario.fabric.nodes = 2;
  job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  scenario.faults = {fault("qp_error")};
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  run(3500, 6000, 100, 10);
  strike(1555);
  r2ccl::trace::Event event{};
  event.type = r2ccl::trace::EventType::kFailback;
  event.time_ns = at(3450);
  event.nic = 0;
  job.trace.push_back({1, event});
  const ModeResult evaluated = result();
  EXPECT_NEAR(evaluated.throughput.retained, 0.5, 0.01) << "not the mean of that and of the time after it";
  ASSERT_EQ(evaluated.timeline.limits.size(), 2u);
  EXPECT_EQ(evaluated.timeline.limits[1].time_ns, at(3450));
}

}  // namespace
}  // namespace r2bench
