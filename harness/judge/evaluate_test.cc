// SPDX-License-Identifier: Apache-2.0
// What a job's record says of its faults: limits, samples, recovery, and the rate that was retained.
#include "harness/judge/testing/evaluate_fixture.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

using Evaluate = EvaluateTest;

// --- limits: four NICs with one channel each ---------------------------------------------------------------

class Limit : public EvaluateTest {
 protected:
  Limit() { scenario.fabric.nics_per_node = 4; }
  double of(ModeKind kind, std::vector<faultinject::FaultSpec> faults) {
    mode.kind = kind;
    scenario.faults = std::move(faults);
    job.firings.clear();
    for (size_t i = 0; i < scenario.faults.size(); ++i) strike(10 + double(i), i);
    return result().faults.back().limit;
  }
};

TEST_F(Limit, of_far_memory_is_what_a_linear_program_gives) {
  scenario.fabric.nics_per_node = 8;
  scenario.fabric.ranks_per_node = 2;
  scenario.fabric.topology = NodeTopology{"", 2, 4, 4, 50};
  scenario.workload.groups = Groups::kLocalRank;
  const auto lost = {fault("port_down", "node1/nic[0-2]")};
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1.0 / 3);
  scenario.fabric.topology->cross_percent = 100;
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 5.0 / 8);
  scenario.fabric.ranks_per_node = 1;  // four channels on near NICs: the far ones are idle
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 1);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1);
  scenario.workload.channels = 8;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5);
}

TEST_F(Limit, a_lost_nic_or_queue_pair_costs_a_nic_in_each_mode) {
  for (const char* kind : {"port_down", "blackhole", "qp_error", "ack_lost"}) {
    EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {fault(kind)}), 0);
    EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(kind)}), 0.5) << "one backup carries two";
    EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {fault(kind)}), 0.75);
    EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {fault(kind)}), 0.75);
  }
}

TEST_F(Limit, a_slow_nic_slows_its_own_channels_or_all_a_little) {
  const auto throttle = fault("throttle", "node1/nic0", kGbit / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {throttle}), 3.25 / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {throttle}), 3.25 / 4);
}

TEST_F(Limit, what_takes_no_bandwidth_leaves_it_whole) {
  for (ModeKind kind : {ModeKind::kBaseline, ModeKind::kMigrate, ModeKind::kBalance}) {
    EXPECT_DOUBLE_EQ(of(kind, {fault("noop")}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault("delay")}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault("throttle", "node1/nic0", 2 * kGbit)}), 1) << "wider than it";
  }
  scenario.fabric.nic_rate_bits_per_s = 0;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("throttle", "node1/nic0", kGbit)}), 1);
}

TEST_F(Limit, faults_of_one_time_add_up_on_a_node_but_not_across_nodes) {
  const auto down = [](const char* target) { return fault("port_down", target); };
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node0/nic1")}), 0.75);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node1/nic1")}), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {down("node1/nic0"), down("node1/nic1"), down("node1/nic2")}),
                   0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic[0-2]")}), 0.25);
  const auto throttle = fault("throttle", "node1/nic0", kGbit / 2);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), throttle}), 0.75) << "one NIC, at its worst";
}

TEST_F(Limit, only_what_acts_at_that_moment_counts) {
  scenario.faults = {fault("port_down"), fault("port_down", "node1/nic1")};
  mode.kind = ModeKind::kBalance;
  strike(10).healed_ns = at(20);
  strike(20, 1);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 0.75) << "the second is still to come";
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.75) << "the first is over";
}

TEST_F(Limit, a_nic_without_channels_is_not_missed) {
  scenario.workload.channels = 2;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down", "node1/nic3")}), 1);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down")}), 1) << "nic2 and nic3 were idle";
}

// --- faults ------------------------------------------------------------------------------------------------

TEST_F(Evaluate, a_fault_in_the_middle_of_an_operation_is_measured) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  strike(1555);
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults.at(0);
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_EQ(sample.kind + " " + sample.target, "port_down node1/nic0");
  EXPECT_DOUBLE_EQ(evaluated.floor_ms, 20);
  EXPECT_DOUBLE_EQ(sample.window_ms, 200);
  EXPECT_EQ(evaluated.detect_ms.n, 1u);
  EXPECT_DOUBLE_EQ(evaluated.detect_ms.max, 5);
  EXPECT_DOUBLE_EQ(evaluated.migrate_ms.max, 30);
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 35);
  EXPECT_DOUBLE_EQ(evaluated.blackout_ms.max, 40);
  EXPECT_EQ(evaluated.detected_by, (std::map<std::string, size_t>{{"completion", 1}}));
  EXPECT_EQ(evaluated.faults_planned + evaluated.faults_witnessed + evaluated.faults_sampled, 3u);
  EXPECT_EQ(evaluated.faults_unrecovered, 0u);
}

TEST_F(Evaluate, of_the_streams_on_a_nic_a_queue_pair_fault_concerns_those_that_were_fenced) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  for (Delivery& d : job.record.deliveries)
    if (d.stream == 1) d.rx_nic = d.tx_nic = 0;
  strike(1555);
  EXPECT_EQ(result().migrate_ms.n, 0u) << "a lost NIC: stream 1 was to move as well";
  for (const char* kind : {"qp_error", "ack_lost"}) {
    scenario.faults[0].kind = &faultinject::fault_kind(kind);
    EXPECT_DOUBLE_EQ(result().migrate_ms.max, 30);
  }
}

TEST_F(Evaluate, a_fault_that_struck_nothing_in_flight_is_no_sample_and_says_why) {
  run(1000, 1500, 100, 10);
  run(1600, 2400, 100, 10);
  strike(1550);
  EXPECT_EQ(result().faults[0].why_not_sampled, "no operation was open");
  scenario.fabric.nics_per_node = 3;
  job.firings[0].nics = {{1, 2}};
  job.firings[0].t0_ns = at(1650);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults[0].why_not_sampled, "no channel used the target");
  EXPECT_EQ(evaluated.faults_witnessed, 1u);
  EXPECT_EQ(evaluated.faults_sampled, 0u);
  EXPECT_EQ(evaluated.faults_dropped, (std::map<std::string, size_t>{{"no channel used the target", 1}}));
  EXPECT_EQ(evaluated.recover_ms.n, 0u);
}

TEST_F(Evaluate, what_was_delivered_before_the_first_operation_is_no_measure_of_a_segment) {
  job.record.deliveries.push_back({at(900), 10 * kSegment, 0, 0, 0, 0});
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  strike(1555);
  EXPECT_DOUBLE_EQ(result().floor_ms, 20);
}

TEST_F(Evaluate, a_signal_to_a_rank_strikes_no_nic) {
  run(1000, 1500, 100, 10);
  run(1500, 2500, 200, 20);
  scenario.rank_faults = {{"stop it", RankFaultKind::kSigstop, 1, 0, 3, std::nullopt, {}}};
  strike(1550, 1).healed_ns = at(1560);
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults.at(0);
  EXPECT_DOUBLE_EQ(evaluated.throughput.before_gbps, 2) << "but it ends the undisturbed time";
  EXPECT_EQ(sample.why_not_sampled, "no NIC was struck");
  EXPECT_EQ(sample.name + ": " + sample.kind + " " + sample.target, "stop it: sigstop node1/rank0");
  EXPECT_EQ(sample.healed_ns, at(1560));
  EXPECT_TRUE(sample.witnessed);
}

TEST_F(Evaluate, a_fault_without_a_witness_never_gives_a_pass) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  job.correctness.checked_elements = 1;
  scenario.modes = {mode};
  scenario.expectations = {{"migrate", "correctness", "exact", 0, 0, Word{false, "exact"}}};
  strike(1555);
  RunResult whole;
  whole.modes = {result()};
  EXPECT_EQ(judge(scenario, whole).verdict, Verdict::kPass);
  strike(0, 0, 1).triggered_ns = at(2000);
  whole.modes = {result()};
  EXPECT_EQ(whole.modes[0].faults_planned, 2u);
  EXPECT_EQ(whole.modes[0].faults_witnessed, 1u);
  EXPECT_EQ(whole.modes[0].faults[1].why_not_sampled, "it never took effect");
  EXPECT_EQ(judge(scenario, whole).verdict, Verdict::kUnknown);
}

TEST_F(Evaluate, a_job_that_ended_early_is_not_blamed_for_faults_it_did_not_live_to_see) {
  strike(0);
  EXPECT_EQ(result().faults_planned, 1u);
  job.outcome = Outcome::kError;
  EXPECT_EQ(result().faults_planned, 0u);
  job.firings[0].triggered_ns = 1;
  EXPECT_EQ(result().faults_planned, 1u) << "fired, but never seen";
}

/// A strike so close to the job's end cannot show whether the rate comes back: W + floor + max(100 ms, an
/// operation at the rate that is left), with operations of 100 ms and a limit of 1/2: 200 + 20 + 200 ms.
class TooLate : public EvaluateTest {
 protected:
  /// After it everything goes on at a third of the rate, and nothing stalls.
  std::string why_when_the_job_ends_after(double ms) {
    job = {};
    job.mode = &mode;
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    run(1000, 1500, 100, 10);
    operation(1500, 1555 + ms);
    deliver(0, 1500, 1550, 10, 0);
    deliver(1, 1500, 1550, 10, 1);
    deliver(0, 1550, 1555 + ms, 60, 1);
    deliver(1, 1550, 1555 + ms, 60, 1);
    job.record.fences.push_back({at(1560), 1, 0, 0u, "completion"});
    strike(1555);
    return result().faults[0].why_not_sampled;
  }
};

TEST_F(TooLate, a_strike_at_the_end_of_the_job_is_no_sample) {
  EXPECT_EQ(why_when_the_job_ends_after(419.9), "the job ended before it could be measured");
  EXPECT_EQ(result().recover_ms.n, 0u);
  EXPECT_EQ(result().faults_dropped,
            (std::map<std::string, size_t>{{"the job ended before it could be measured", 1}}));
  EXPECT_EQ(why_when_the_job_ends_after(420), "");
  EXPECT_EQ(result().faults_unrecovered, 1u);
  job.outcome = Outcome::kError;
  job.record.operations.back().span.end_ns = at(1555 + 300);
  EXPECT_EQ(result().faults[0].why_not_sampled, "") << "what ended in an error had the time it took";
}

TEST_F(TooLate, a_stream_that_stalls_up_to_the_end_is_a_sample_all_the_same) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 1555 + 300);
  strike(1555);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults[0].why_not_sampled, "");
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
}

/// The NIC is gone for 100 ms only, and the plugin looks for it for five seconds.
class StallPastTheHeal : public EvaluateTest {
 protected:
  StallPastTheHeal() {
    run(1000, 1500, 100, 10);
    operation(1500, 7000);
    deliver(0, 1500, 1550, 10, 0);
    deliver(1, 1500, 1550, 10, 1);
    deliver(1, 1540, 1600, 20, 1);
    strike(1555).healed_ns = at(1655);
  }
};

TEST_F(StallPastTheHeal, is_a_sample_with_its_whole_length) {
  job.record.fences.push_back({at(6600), 1, 0, 0u, "watchdog"});
  deliver(0, 6600, 7000, 20, 1);
  deliver(1, 6600, 7000, 20, 1);
  run(7000, 8000, 200, 20, 1);
  const ModeResult evaluated = result();
  const FaultSample& sample = evaluated.faults[0];
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_DOUBLE_EQ(sample.detect_ms.value_or(0), 6600 - 1555);
  EXPECT_DOUBLE_EQ(sample.migrate_ms.value_or(0), 20);
  EXPECT_DOUBLE_EQ(sample.recover_ms.value_or(0), 6620 - 1555);
  EXPECT_DOUBLE_EQ(sample.blackout_ms.value_or(0), 6620 - 1550) << "the heal does not end it";
  EXPECT_TRUE(sample.recovered_after_heal);
  EXPECT_EQ(evaluated.faults_recovered_after_heal, 1u);
  EXPECT_EQ(evaluated.recover_ms.n, 1u);
  EXPECT_TRUE(evaluated.faults_dropped.empty());
}

TEST_F(StallPastTheHeal, that_never_ends_is_unrecovered) {
  job.record.operations.back().complete = false;
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults_sampled, 1u);
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 7000 - 1555);
  EXPECT_DOUBLE_EQ(evaluated.blackout_ms.max, 7000 - 1550) << "the heal does not end it";
}

TEST_F(StallPastTheHeal, without_a_fence_lasts_until_the_stream_is_heard_again) {
  // The NIC came back, and so did the traffic, by itself, after half a second.
  job.record.operations.back().span.end_ns = at(2300);
  deliver(0, 2100, 2300, 10, 0);
  deliver(1, 1600, 2300, 10, 1);
  run(2300, 3300, 100, 10);
  const FaultSample sample = result().faults[0];
  EXPECT_TRUE(sample.sampled) << sample.why_not_sampled;
  EXPECT_DOUBLE_EQ(sample.recover_ms.value_or(0), 2110 - 1555)
      << "not 0, though stream 1 alone has half the rate";
  EXPECT_TRUE(sample.recovered_after_heal);
}

TEST_F(Evaluate, a_fault_between_operations_that_stalls_the_next_one_is_a_sample) {
  run(1000, 1500, 100, 10);
  operation(1600, 7000);
  deliver(0, 6000, 7000, 20, 1);
  deliver(1, 1600, 7000, 20, 1);
  strike(1550).healed_ns = at(2000);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults[0].why_not_sampled, "");
  EXPECT_GT(evaluated.recover_ms.max, 4000);
}

TEST_F(Evaluate, a_fault_that_was_waited_for_in_vain_counts_as_at_least_the_open_time_waited) {
  run(1000, 1500, 100, 10);
  operation(1500, 1700);
  deliver(0, 1500, 1550, 10, 0);
  deliver(1, 1500, 1700, 20, 1);
  deliver(0, 1690, 1700, 10, 0);  // was in flight, but that was all
  operation(1900, 3000, false);
  deliver(1, 1900, 3000, 20, 1);
  strike(1555);
  ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults_sampled, 1u);
  EXPECT_EQ(evaluated.faults_unrecovered, 1u);
  EXPECT_EQ(evaluated.recover_ms.n, 1u);
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 145 + 1100) << "the pause of 200 ms was no waiting";
  EXPECT_FALSE(evaluated.faults[0].recover_ms);
  mode.kind = ModeKind::kBaseline;
  evaluated = result();
  EXPECT_EQ(evaluated.faults_unrecovered, 0u) << "nobody expects the baseline to recover";
  EXPECT_EQ(evaluated.recover_ms.n, 0u);
}

TEST_F(Evaluate, before_ends_with_the_first_fault_of_the_round_and_begins_after_the_last_round) {
  scenario.faults.push_back(fault("noop"));
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  strike(1555);
  Firing& second = strike(2355, 1);
  EXPECT_DOUBLE_EQ(result().faults[1].before_gbps, 2);
  second.repetition = 1;
  second.before_from_ns = at(1700);
  EXPECT_DOUBLE_EQ(result().faults[1].before_gbps, 1);
}

TEST_F(Evaluate, an_error_is_timed_from_the_last_fault_before_it) {
  run(1000, 1500, 100, 10);
  scenario.faults.push_back(fault("port_down", "node1/nic1"));
  strike(1555);
  strike(1600, 1);
  EXPECT_FALSE(result().error_ms) << "there was none";
  job.outcome = Outcome::kError;
  job.error_ns = at(3650);
  EXPECT_DOUBLE_EQ(result().error_ms.value_or(0), 2050);
  job.firings[1].t0_ns = at(3700);
  EXPECT_DOUBLE_EQ(result().error_ms.value_or(0), 2095) << "what strikes later is not its cause";
  job.firings.clear();
  EXPECT_FALSE(result().error_ms);
}

// --- throughput --------------------------------------------------------------------------------------------

TEST_F(Evaluate, the_retained_rate_stands_beside_its_limit) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  strike(1555);
  const Throughput t = result().throughput;
  EXPECT_TRUE(t.settled());
  EXPECT_EQ(t.rounds * 100 + t.rounds_measured * 10 + t.rounds_settled, 111u);
  EXPECT_DOUBLE_EQ(t.bound_ms, 800) << "four W";
  EXPECT_DOUBLE_EQ(t.ports_gbps, 4) << "two nodes with two ports of 1 Gbit/s";
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 1);
  EXPECT_DOUBLE_EQ(t.retained, 0.5);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

TEST_F(Evaluate, rounds_are_averaged_as_ratios) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3100);  // 2 -> 1 Gbit/s
  strike(1555).healed_ns = at(3100);
  run(3100, 3600, 100, 5);
  lose_nic0(3600, 5200, 5, 5);  // 4 -> 4 Gbit/s
  strike(3655, 0, 1).before_from_ns = at(3100);
  const Throughput t = result().throughput;
  EXPECT_DOUBLE_EQ(t.retained, (0.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(t.before_gbps, 3);
  EXPECT_DOUBLE_EQ(t.after_gbps, 2.5);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

class AfterFailback : public EvaluateTest {
 protected:
  AfterFailback() {
    run(0, 1500, 100, 10);
    lose_nic0(1500, 2700);
    strike(1555).healed_ns = at(2100);
    said(EventType::kMigrationStarted, 1560, 1);
    said(EventType::kMigrationDone, 1590, 2);
    said(EventType::kMigrationStarted, 2680, 2);
    said(EventType::kMigrationDone, 2690, 3);
    said(EventType::kFailback, 2695, 0);
  }
  using EventType = r2ccl::trace::EventType;
  void said(EventType type, double ms, uint64_t path) {
    r2ccl::trace::Event event{};
    event.type = type;
    event.time_ns = at(ms);
    event.b = event.c = path;
    job.trace.push_back({1, event});
  }
};

TEST_F(AfterFailback, the_rate_is_held_against_the_rate_before_the_first_fault) {
  run(2700, 4700, 100, 10);
  const Restored restored = result().restored;
  ASSERT_TRUE(restored.ratio) << restored.why_not;
  EXPECT_DOUBLE_EQ(*restored.ratio, 1);
  EXPECT_EQ(restored.operations_before, 15u);
  EXPECT_EQ(restored.operations_after, 20u);
}

TEST_F(AfterFailback, a_job_that_stays_slow_shows) {
  run(2700, 4700, 200, 20);
  EXPECT_DOUBLE_EQ(result().restored.ratio.value_or(0), 0.5);
}

TEST_F(AfterFailback, a_nic_that_never_comes_back_leaves_nothing_to_compare) {
  run(2700, 4700, 200, 20);
  job.trace.resize(2);
  EXPECT_EQ(result().restored.why_not, "1 ends of channels were not home again");
  job.firings[0].healed_ns = 0;
  EXPECT_EQ(result().restored.why_not, "the fault was still there when the job ended");
  EXPECT_FALSE(result().restored.ratio);
}

TEST_F(AfterFailback, what_is_over_with_its_strike_needs_no_heal) {
  run(2700, 4700, 100, 10);
  job.firings[0].healed_ns = 0;
  for (const char* kind : {"qp_error", "ack_lost", "completion_error"}) {
    scenario.faults = {fault(kind)};
    EXPECT_TRUE(result().restored.ratio) << kind << ": " << result().restored.why_not;
  }
  scenario.faults[0].count = faultinject::FaultSpec::kAll;
  EXPECT_FALSE(result().restored.ratio) << "it strikes until it is healed";
}

TEST_F(AfterFailback, a_channel_that_stays_away_for_longer_than_the_bound_is_late) {
  run(2700, 2100 + 5000 + 3000, 200, 20);  // five seconds from the heal, and some more
  job.trace.resize(2);
  const Restored restored = result().restored;
  EXPECT_EQ(restored.rounds, 1u);
  EXPECT_EQ(restored.rounds_home, 0u);
  EXPECT_EQ(restored.rounds_late, 1u);
  EXPECT_DOUBLE_EQ(restored.ratio.value_or(0), 0.5);
}

TEST_F(AfterFailback, a_round_whose_channels_did_not_come_home_is_not_left_out) {
  run(2700, 4700, 100, 10);
  strike(4755, 0, 1).healed_ns = at(4900);
  said(EventType::kMigrationStarted, 4760, 1);
  said(EventType::kMigrationDone, 4790, 2);
  run(4700, 5500, 200, 20);
  const Restored restored = result().restored;
  EXPECT_EQ(restored.rounds, 2u);
  EXPECT_EQ(restored.rounds_home, 1u);
  EXPECT_EQ(restored.rounds_late, 0u) << "the job ended 600 ms behind the heal";
  EXPECT_EQ(restored.why_not, "round 2: 1 ends of channels were not home again");
}

TEST_F(AfterFailback, nothing_counts_before_the_last_fault_is_healed) {
  run(2700, 4700, 100, 10);
  strike(2900).healed_ns = at(3800);
  EXPECT_EQ(result().restored.why_not, "only 9 operations once everything was repaired; 10 are wanted");
}

TEST_F(AfterFailback, rounds_count_together) {
  run(2700, 3300, 100, 10);
  strike(3300, 0, 1);
  operation(3300, 4000);
  EXPECT_EQ(result().restored.why_not, "only 6 operations once everything was repaired; 10 are wanted");
  job.firings[1].healed_ns = at(3500);
  run(4000, 4600, 100, 10);
  EXPECT_DOUBLE_EQ(result().restored.ratio.value_or(0), 1);
  EXPECT_EQ(result().restored.operations_after, 12u);
}

TEST_F(Evaluate, of_a_round_the_last_fault_in_time_counts_wherever_the_scenario_lists_it) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  run(2300, 7900, 400, 40, 1);
  const auto down = fault("port_down"), throttle = fault("throttle", "node1/nic1", kGbit / 2);
  for (size_t first : {0, 1}) {
    scenario.faults = first == 0 ? std::vector{down, throttle} : std::vector{throttle, down};
    job.firings.clear();
    strike(first == 0 ? 1555 : 2255, 0);
    strike(first == 0 ? 2255 : 1555, 1);
    const Throughput t = result().throughput;
    EXPECT_DOUBLE_EQ(t.limit, 0.25) << "both channels on a NIC of half the rate";
    EXPECT_DOUBLE_EQ(t.retained, 0.25);
  }
}

TEST_F(Evaluate, a_nic_that_became_slow_between_two_operations_is_no_sample_but_its_rate_counts) {
  run(1000, 1500, 100, 10);
  run(1600, 5600, 200, 20);
  scenario.faults = {fault("throttle", "node1/nic0", kGbit / 2), fault("port_down")};
  strike(1550);
  const ModeResult slow = result();
  EXPECT_EQ(slow.faults[0].why_not_sampled, "no operation was open");
  EXPECT_EQ(slow.faults_sampled, 0u);
  EXPECT_TRUE(slow.throughput.settled());
  EXPECT_DOUBLE_EQ(slow.throughput.retained, 0.5);
  EXPECT_DOUBLE_EQ(slow.throughput.limit, 0.5);
  job.firings.clear();
  strike(1550, 1);
  const Throughput lost = result().throughput;
  EXPECT_EQ(lost.rounds_measured, 1u) << "the window does not ask what was in flight";
  EXPECT_DOUBLE_EQ(lost.retained, 0.5);
}

TEST_F(Evaluate, a_rate_that_does_not_come_back_is_measured_where_it_should_have_been_back) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 3000);
  strike(1555);
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds_measured, 1u);
  EXPECT_EQ(t.rounds_settled, 0u);
  EXPECT_FALSE(t.settled());
  EXPECT_NEAR(t.retained, 0.25, 0.01) << "one of two streams, at half its rate";
  EXPECT_DOUBLE_EQ(t.worst_unsettled, t.retained);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

TEST_F(Evaluate, a_rate_that_was_back_and_fell_again_is_that_of_the_fixed_window) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  run(2300, 5500, 400, 40, 1);  // from 745 ms after the strike on; the window begins after 800 ms
  strike(1555);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.recover_ms.max, 35);
  EXPECT_EQ(evaluated.throughput.rounds_measured, 1u);
  EXPECT_DOUBLE_EQ(evaluated.throughput.retained, 0.25) << "not the mean from the recovery on";
}

TEST_F(Evaluate, a_round_that_is_too_short_for_its_window_is_counted_and_says_why) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 3500);
  strike(1555);
  strike(3455, 0, 1).before_from_ns = at(1600);
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds, 2u);
  EXPECT_EQ(t.rounds_measured, 1u) << "the first";
  EXPECT_EQ(t.why_not, "round 2: the job ended 45 ms after the last fault, and 2400 ms are wanted");
  EXPECT_FALSE(t.settled());
}

TEST_F(Evaluate, without_a_round_that_was_measured_only_the_rate_before_the_first_fault_is_known) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 2000);
  strike(1555);
  strike(0, 0, 1);  // never seen, so it ends nothing
  const Throughput t = result().throughput;
  EXPECT_EQ(t.rounds, 1u);
  EXPECT_EQ(t.rounds_measured, 0u);
  EXPECT_DOUBLE_EQ(t.limit, 0.5) << "which is known";
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 0);
  EXPECT_DOUBLE_EQ(t.retained, 0);
}

}  // namespace
}  // namespace r2bench
