// SPDX-License-Identifier: Apache-2.0
// Jobs with several faults at a time, of different kinds: whose fence is whose, each strike's own t0 and
// heal, and what the mode can carry from one change of the NICs to the next.
#include "harness/judge/nics_left.h"
#include "harness/judge/testing/evaluate_fixture.h"
#include "harness/judge/verdict.h"
#include "harness/report/story.h"

namespace r2bench {
namespace {

using faultinject::Effect;

/// Three nodes in a ring with two NICs each, a stream per NIC into each node.
class SeveralFaults : public EvaluateTest {
 protected:
  SeveralFaults() {
    scenario.fabric.nodes = 3;
    job.labels = {"node0/rank0", "node1/rank0", "node2/rank0"};
    job.record.streams.clear();
    for (uint16_t node = 0; node < 3; ++node)
      for (uint32_t channel = 0; channel < 2; ++channel)
        job.record.streams.push_back({node, channel, node, uint16_t((node + 2) % 3)});
  }
  /// Every stream at its rate on its own NIC, but those of `moved`, which are on the other.
  void go_on(double from, double until, const std::vector<uint32_t>& moved = {}, double gap = 10) {
    for (double t = from; t < until; t += 10 * gap) operation(t, std::min(t + 10 * gap, until));
    for (uint32_t s = 0; s < 6; ++s) {
      const bool away = std::find(moved.begin(), moved.end(), s) != moved.end();
      deliver(s, from, until, gap, uint16_t(away ? 1 - s % 2 : s % 2));
    }
  }
  void fence(double time, uint16_t node, uint16_t nic, uint16_t peer, const char* by) {
    FenceStart start{at(time), node, nic, std::nullopt, by};
    start.peer_node = peer;
    start.peer_nic = nic;
    job.record.fences.push_back(start);
  }
  std::vector<StoryLine> told(const ModeResult& evaluated) const {
    RunResult whole;
    whole.modes = {evaluated};
    return tell(scenario, whole);
  }
  void witness(uint32_t id, double ms, Effect effect, uint64_t value = 0) {
    faultinject::Witness w;
    w.fault_id = id;
    w.time_ns = at(ms);
    w.effect = effect;
    w.value = value;
    job.witnesses.push_back(w);
  }
};

// A throttle of node0/nic0 that changes nothing, and 98.5 ms later a NIC of node 2 that is lost.
TEST_F(SeveralFaults, a_fence_answers_no_fault_of_another_nic) {
  scenario.faults = {fault("throttle", "node0/nic0", kGbit), fault("port_down", "node2/nic1")};
  go_on(1000, 1600);
  strike(1305, 0);
  strike(1403.5, 1);
  fence(1404, 2, 1, 1, "event");
  go_on(1600, 3600, {1, 5}, 20);  // what the lost NIC received, and what it sent
  const ModeResult evaluated = result();
  EXPECT_FALSE(evaluated.faults[0].detect_ms);
  EXPECT_EQ(evaluated.faults[0].detected_by, "");
  EXPECT_DOUBLE_EQ(evaluated.faults[1].detect_ms.value_or(0), 0.5);
  EXPECT_EQ(evaluated.faults[1].detected_by, "event");
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 1);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit_before, 1);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.5);
  std::vector<std::string> story;
  for (const StoryLine& line : told(evaluated)) story.push_back(line.text);
  const auto first_with = [&](const std::string& text, size_t from) {
    while (from < story.size() && story[from].find(text) == std::string::npos) ++from;
    return from;
  };
  const std::string went_on = "continued at the rate that the remaining NICs can carry";
  const size_t lost = first_with("node2/nic1 lost its link", 0), said = first_with(went_on, 0);
  ASSERT_LT(said, story.size()) << "of the NIC that was lost";
  EXPECT_LT(lost, said);
  EXPECT_EQ(first_with(went_on, said + 1), story.size()) << "and of no other";
}

/// A strike just before an operation whose data come 25 ms late, so that the first good interval begins 40 ms
/// after t0: uneven, as operations are.
class ChangesNothing : public SeveralFaults {
 protected:
  static constexpr double kStruck = 1595;
  void uneven(uint64_t rate, const char* target = "node0/nic0") {
    scenario.faults = {fault("throttle", target, rate)};
    go_on(1000, 1600);
    operation(1600, 1725);
    for (uint32_t s = 0; s < 6; ++s) deliver(s, 1625, 1725, 10, uint16_t(s % 2));
    strike(kStruck);
  }
  bool tells_of_recovery(const ModeResult& evaluated) const {
    const std::vector<StoryLine> lines = told(evaluated);
    return std::any_of(lines.begin(), lines.end(), [](const StoryLine& line) {
      return line.text == "continued at the rate that the remaining NICs can carry";
    });
  }
};

TEST_F(ChangesNothing, a_throttle_above_the_ports_rate_is_no_sample_and_nothing_recovers_from_it) {
  uneven(2 * kGbit);
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults.at(0);
  EXPECT_EQ(sample.why_not_sampled, "it took nothing from its NIC");
  EXPECT_EQ(evaluated.faults_dropped, (std::map<std::string, size_t>{{"it took nothing from its NIC", 1}}));
  EXPECT_FALSE(sample.recover_ms);
  EXPECT_FALSE(sample.recovered_ns);
  EXPECT_EQ(evaluated.recover_ms.n, 0u) << "it would lower the median of others";
  EXPECT_EQ(evaluated.throughput.rounds, 0u) << "what was retained says nothing of it";
  EXPECT_FALSE(tells_of_recovery(evaluated));
}

TEST_F(ChangesNothing, a_throttle_of_a_nic_that_carries_nothing_is_not_recovered_from) {
  scenario.fabric.nics_per_node = 3;
  scenario.workload.channels = 2;
  uneven(kGbit / 2, "node0/nic2");
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults.at(0).why_not_sampled, "no channel used the target");
  EXPECT_FALSE(evaluated.faults.at(0).recover_ms);
  EXPECT_FALSE(evaluated.faults.at(0).recovered_ns);
  EXPECT_FALSE(tells_of_recovery(evaluated));
}

TEST_F(ChangesNothing, the_higher_of_two_throttles_of_a_nic_took_nothing) {
  uneven(kGbit / 2);
  scenario.faults.push_back(fault("throttle", "node0/nic0", kGbit * 3 / 4));
  job.firings[0].t0_ns = at(1105);
  strike(kStruck, 1);
  go_on(1725, 6025);
  const ModeResult evaluated = result();
  EXPECT_TRUE(evaluated.faults.at(0).sampled) << evaluated.faults.at(0).why_not_sampled;
  EXPECT_EQ(evaluated.faults.at(1).why_not_sampled, "it took nothing from its NIC");
  EXPECT_EQ(evaluated.throughput.rounds, 1u) << "of the other";
}

// A send that waits for the throttle first and for the port then may be slow at any rate of the throttle.
TEST_F(ChangesNothing, a_throttle_above_the_ports_rate_that_slows_the_job_nevertheless_is_a_sample) {
  uneven(2 * kGbit);
  go_on(1725, 6025, {}, 14);
  EXPECT_TRUE(result().faults.at(0).sampled)
      << "after a first good interval: " << result().faults[0].why_not_sampled;
  EXPECT_EQ(result().throughput.rounds, 1u);
  job.record.operations.clear();
  job.record.deliveries.clear();
  go_on(1000, 1600);
  go_on(1600, 6080, {}, 14);
  EXPECT_TRUE(result().faults.at(0).sampled) << result().faults[0].why_not_sampled;
  EXPECT_EQ(result().faults_unrecovered, 1u);
}

TEST_F(ChangesNothing, where_ports_have_no_rate_of_their_own_a_throttle_may_take_something) {
  uneven(2 * kGbit);
  scenario.fabric.nic_rate_bits_per_s = 0;
  go_on(1725, 6025);
  EXPECT_TRUE(result().faults.at(0).sampled) << result().faults.at(0).why_not_sampled;
}

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

TEST_F(SeveralFaults, each_outage_of_a_flapping_port_is_a_strike_with_a_heal_of_its_own) {
  scenario.faults = {fault("port_flap", "node2/nic1")};
  go_on(1000, 6000);
  strike(1505).board_id = 7;
  job.firings[0].healed_ns = at(5000);
  for (uint64_t outage : {1, 2, 3}) {
    const double t0 = 505 + 1000 * double(outage);
    witness(7, t0, Effect::kLinkDown, outage);
    witness(7, t0 + 0.2, Effect::kLinkDown, outage);  // another process
    witness(7, t0 + 150 + 50 * double(outage), Effect::kLinkUp, outage);
  }
  fence(3506, 2, 1, 1, "event");
  const ModeResult evaluated = result();
  ASSERT_EQ(evaluated.faults.size(), 3u);
  EXPECT_EQ(evaluated.faults_witnessed, 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(evaluated.faults[i].strike, i);
    EXPECT_EQ(evaluated.faults[i].t0_ns, at(1505 + 1000 * double(i)));
    EXPECT_EQ(evaluated.faults[i].healed_ns, at(1705 + 1050 * double(i)));
  }
  EXPECT_FALSE(evaluated.faults[0].detect_ms) << "it was over when the NIC was left";
  EXPECT_DOUBLE_EQ(evaluated.faults[2].detect_ms.value_or(0), 1);
  std::vector<std::pair<uint64_t, double>> limits;
  for (const LimitPoint& point : evaluated.timeline.limits) limits.emplace_back(point.time_ns, point.limit);
  EXPECT_EQ(
      limits,
      (std::vector<std::pair<uint64_t, double>>{
          {at(1505), 0.5}, {at(1705), 1}, {at(2505), 0.5}, {at(2755), 1}, {at(3505), 0.5}, {at(3805), 1}}));
  std::vector<std::string> healed;
  for (const StoryLine& line : told(evaluated))
    if (line.text == "node2/nic1 was healed") healed.push_back(line.when);
  EXPECT_EQ(healed, (std::vector<std::string>{"+ 200 ms", "+ 250 ms", "+ 300 ms"}));
}

TEST_F(SeveralFaults, each_round_of_a_repeating_fault_is_a_strike) {
  scenario.faults = {fault("port_down", "node2/nic1")};
  scenario.faults[0].repeat = 3;
  scenario.faults[0].duration = std::chrono::milliseconds(100);
  go_on(1000, 6000);
  Firing& firing = strike(1505);
  firing.board_id = 7;
  firing.rounds = 3;
  firing.healed_ns = at(3605);
  for (double t0 : {1505., 2505., 3505.}) {
    witness(7, t0, Effect::kPortErrDelivered);
    witness(7, t0 + 0.3, Effect::kQpToErr);
    witness(7, t0 + 100, Effect::kPortActiveDelivered);
    witness(7, t0 + 120, Effect::kWcShown);
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

// The effects of the third of four rounds were not recorded.
TEST_F(SeveralFaults, rounds_that_fired_without_a_record_are_counted) {
  scenario.faults = {fault("port_down", "node2/nic1")};
  scenario.faults[0].repeat = 10;
  scenario.faults[0].duration = std::chrono::milliseconds(100);
  go_on(1000, 6000);
  Firing& firing = strike(1505);
  firing.board_id = 7;
  firing.rounds = 4;
  firing.triggered_ns = at(1505);
  for (double t0 : {1505., 2505., 4505.}) witness(7, t0, Effect::kQpToErr);
  const auto expect = [&](size_t fired, size_t seen, const char* why) {
    const ModeResult evaluated = result();
    EXPECT_EQ(evaluated.rounds_fired, fired) << why;
    EXPECT_EQ(evaluated.rounds_seen, seen) << why;
  };
  expect(4, 3, "one is missing");
  scenario.faults[0].every = std::chrono::milliseconds(1000);
  expect(4, 3, "one is missing");
  firing.rounds = 9;
  expect(5, 3, "those after 6005 ms came when the job had ended");
  job.outcome = Outcome::kError;
  expect(0, 0, "a job that a fault ended need not see later rounds");
  job.outcome = Outcome::kOk;
  firing.rounds = 3;
  expect(3, 3, "none is missing");
}

/// Without `every`: each round waits for the trigger again. Four rounds, the third struck at 3505 ms; the last
/// operation, of 100 ms, begins at 5900 ms.
class LastRound : public SeveralFaults {
 protected:
  LastRound() {
    scenario.faults = {fault("port_down", "node2/nic1")};
    scenario.faults[0].repeat = 10;
    scenario.faults[0].duration = std::chrono::milliseconds(100);
  }
  void four_rounds(double last_ms, std::vector<double> recorded = {1505, 2505, 3505}) {
    Firing& firing = strike(1505);
    firing.board_id = 7;
    firing.rounds = 4;
    firing.recent_ns = {at(1505), at(2505), at(3505), at(last_ms)};
    for (double t0 : recorded) witness(7, t0, Effect::kQpToErr);
  }
  void expect_rounds(size_t fired, size_t seen, size_t at_end) {
    const ModeResult evaluated = result();
    EXPECT_EQ(evaluated.rounds_fired, fired);
    EXPECT_EQ(evaluated.rounds_seen, seen);
    EXPECT_EQ(evaluated.rounds_at_end, at_end);
    RunResult whole;
    scenario.modes = {mode};
    whole.modes = {evaluated};
    const std::vector<std::string> doubts = judge(scenario, whole).doubts;
    EXPECT_EQ(std::any_of(doubts.begin(), doubts.end(),
                          [](const std::string& doubt) { return doubt.find("rounds of") != doubt.npos; }),
              seen < fired);
  }
};

TEST_F(LastRound, that_fires_when_the_job_has_ended_is_no_missing_one) {
  go_on(1000, 6000);
  four_rounds(6000.1);
  expect_rounds(3, 3, 1);
}

TEST_F(LastRound, that_finds_nothing_to_strike_in_the_last_operation_is_no_missing_one) {
  go_on(1000, 6000);
  four_rounds(5999);
  expect_rounds(3, 3, 1);
}

TEST_F(LastRound, that_strikes_in_the_last_operation_is_neither_missing_nor_without_an_effect) {
  go_on(1000, 6000);
  four_rounds(5950, {1505, 2505, 3505, 5951});
  expect_rounds(3, 3, 0);
  EXPECT_EQ(result().faults_witnessed, 4u);
}

TEST_F(LastRound, that_fires_before_the_last_operation_is_missing_if_it_has_no_record) {
  go_on(1000, 6000);
  four_rounds(5899);
  expect_rounds(4, 3, 0);
}

TEST_F(LastRound, is_missing_if_the_last_operation_stalled) {
  go_on(1000, 5900);
  operation(5900, 6200);
  four_rounds(5950);
  expect_rounds(4, 3, 0);
}

// A stalled last operation must not pass as a usual one because it is compared with itself.
TEST_F(LastRound, is_missing_if_the_last_of_one_or_two_operations_stalled) {
  operation(1000, 6000);
  four_rounds(4505);
  expect_rounds(4, 3, 0);
  job.record.operations.clear();
  operation(1000, 1100);
  operation(1100, 6000);
  expect_rounds(4, 3, 0);
}

// The record of the third round is lost, that of the last one stands in for no other.
TEST_F(LastRound, hides_no_missing_record_of_an_earlier_one) {
  go_on(1000, 6000);
  four_rounds(6000.1, {1505, 2505});
  expect_rounds(3, 2, 1);
}

TEST_F(LastRound, with_an_effect_hides_no_missing_record_of_an_earlier_one) {
  go_on(1000, 6000);
  four_rounds(6000.1, {1505, 2505, 6000.2});
  expect_rounds(3, 2, 0);
  scenario.faults[0].every = std::chrono::milliseconds(1498);  // the last one at 5999 ms
  job.witnesses.clear();
  for (double t0 : {1505., 3003., 5999.1}) witness(7, t0, Effect::kQpToErr);
  expect_rounds(3, 2, 0);
}

/// Two nodes. node1/nic0 is lost for 1500 ms twice, from 1555 ms and from 4555 ms on; and once more at `last_ms`.
class LastStrike : public SeveralFaults {
 protected:
  LastStrike() {
    scenario.fabric.nodes = 2;
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    scenario.faults = {fault("port_down")};
    scenario.faults[0].repeat = 3;
    scenario.faults[0].duration = std::chrono::milliseconds(1500);
    run(300, 1500, 100, 10);
    lose_nic0(1500, 3100);
    run(3100, 4500, 100, 10);
    lose_nic0(4500, 6100);
    run(6100, 7900, 100, 10);
  }
  ModeResult struck_at(double last_ms) {
    Firing& firing = strike(1555);
    firing.board_id = 7;
    firing.rounds = 3;
    firing.recent_ns = {at(1555), at(4555), at(last_ms)};
    for (double t0 : {1555., 4555., last_ms}) witness(7, t0, Effect::kPortErrDelivered);
    return result();
  }
  static void expect_first_two(const ModeResult& evaluated, const std::string& why_not_the_last) {
    ASSERT_EQ(evaluated.faults.size(), 3u);
    EXPECT_EQ(evaluated.faults_sampled, 2u);
    EXPECT_EQ(evaluated.faults_unrecovered, 0u);
    EXPECT_EQ(evaluated.faults[2].why_not_sampled, why_not_the_last);
    EXPECT_EQ(evaluated.throughput.rounds_measured, 1u) << evaluated.throughput.why_not;
    EXPECT_NEAR(evaluated.throughput.retained, 0.5, 0.02);
    EXPECT_NEAR(evaluated.restored.ratio.value_or(0), 1, 0.01) << evaluated.restored.why_not;
    EXPECT_EQ(evaluated.restored.rounds_home, 1u);
  }
};

TEST_F(LastStrike, of_a_job_that_has_ended_leaves_the_others_as_they_were_measured) {
  run(7900, 8000, 100, 10);
  expect_first_two(struck_at(8000.5), "the job's last operation had ended");
}

TEST_F(LastStrike, just_before_the_end_leaves_the_others_as_they_were_measured) {
  run(7900, 8000, 100, 10);
  expect_first_two(struck_at(7985), "the job ended before it could be measured");
}

TEST_F(LastStrike, that_stalls_the_last_operation_is_a_sample_and_leaves_the_retained_rate_unknown) {
  operation(7900, 9000);
  deliver(0, 7900, 7980, 10, 0);
  deliver(1, 7900, 9000, 20, 1);
  deliver(0, 8900, 9000, 10, 1);
  const ModeResult evaluated = struck_at(7985);
  EXPECT_EQ(evaluated.faults_sampled, 3u);
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  EXPECT_GT(evaluated.blackout_ms.max, 900);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 0u) << "it is the last strike";
  EXPECT_FALSE(evaluated.restored.ratio);
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
