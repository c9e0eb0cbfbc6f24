// What a job's record says of its faults: limits, samples, recovery, and the rate that was retained.
#include "harness/report/verdict.h"
#include "harness/run/evaluate_fixture.h"

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
  const auto lost = {fault(FaultKind::kPortDown, "node1/nic[0-2]")};
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
  for (FaultKind kind :
       {FaultKind::kPortDown, FaultKind::kBlackhole, FaultKind::kQpError, FaultKind::kAckLost}) {
    EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {fault(kind)}), 0);
    EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(kind)}), 0.5) << "one backup carries two";
    EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {fault(kind)}), 0.75);
    EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {fault(kind)}), 0.75);
  }
}

TEST_F(Limit, a_slow_nic_slows_its_own_channels_or_all_a_little) {
  const auto throttle = fault(FaultKind::kThrottle, "node1/nic0", kGbit / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {throttle}), 3.25 / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {throttle}), 3.25 / 4);
}

TEST_F(Limit, what_takes_no_bandwidth_leaves_it_whole) {
  for (ModeKind kind : {ModeKind::kBaseline, ModeKind::kMigrate, ModeKind::kBalance}) {
    EXPECT_DOUBLE_EQ(of(kind, {fault(FaultKind::kNoop)}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault(FaultKind::kDelay)}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault(FaultKind::kThrottle, "node1/nic0", 2 * kGbit)}), 1) << "wider than it";
  }
  scenario.fabric.nic_rate_bits_per_s = 0;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(FaultKind::kThrottle, "node1/nic0", kGbit)}), 1);
}

TEST_F(Limit, faults_of_one_time_add_up_on_a_node_but_not_across_nodes) {
  const auto down = [](const char* target) { return fault(FaultKind::kPortDown, target); };
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node0/nic1")}), 0.75);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node1/nic1")}), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {down("node1/nic0"), down("node1/nic1"), down("node1/nic2")}),
                   0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic[0-2]")}), 0.25);
  const auto throttle = fault(FaultKind::kThrottle, "node1/nic0", kGbit / 2);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), throttle}), 0.75) << "one NIC, at its worst";
}

TEST_F(Limit, only_what_acts_at_that_moment_counts) {
  scenario.faults = {fault(FaultKind::kPortDown), fault(FaultKind::kPortDown, "node1/nic1")};
  mode.kind = ModeKind::kBalance;
  strike(10).healed_ns = at(20);
  strike(20, 1);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 0.75) << "the second is still to come";
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.75) << "the first is over";
}

TEST_F(Limit, a_nic_without_channels_is_not_missed) {
  scenario.workload.channels = 2;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(FaultKind::kPortDown, "node1/nic3")}), 1);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(FaultKind::kPortDown)}), 1) << "nic2 and nic3 were idle";
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
  for (FaultKind kind : {FaultKind::kQpError, FaultKind::kAckLost}) {
    scenario.faults[0].kind = kind;
    EXPECT_DOUBLE_EQ(result().migrate_ms.max, 30);
  }
}

TEST_F(Evaluate, a_fault_that_struck_nothing_in_flight_is_no_sample_and_says_why) {
  run(1000, 1500, 100, 10);
  run(1600, 2000, 100, 10);
  strike(1550);
  EXPECT_EQ(result().faults[0].why_not_sampled, "no operation was open");
  scenario.fabric.nics_per_node = 3;
  job.firings[0].nics = {{1, 2}};
  job.firings[0].t0_ns = at(1650);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults[0].why_not_sampled, "no channel used the target");
  EXPECT_EQ(evaluated.faults_witnessed, 1u);
  EXPECT_EQ(evaluated.faults_sampled, 0u);
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

/// A fault can show that the rate does not come back only within W + floor + max(100 ms, an operation at
/// the rate that is left): with operations of 100 ms and a limit of 1/2 that is 200 + 20 + 200 ms.
class TooShort : public EvaluateTest {
 protected:
  TooShort() {
    run(1000, 1500, 100, 10);
    never_recover(1500, 4000);
    scenario.faults.push_back(fault(FaultKind::kNoop, "node0/nic1"));
    strike(1555);
  }
  std::string why_healed_after(double ms) {
    job.firings[0].healed_ns = at(1555 + ms);
    return result().faults[0].why_not_sampled;
  }
};

TEST_F(TooShort, a_fault_that_healed_before_it_could_be_measured_is_no_sample) {
  EXPECT_EQ(why_healed_after(419.9), "it was healed before it could be measured");
  EXPECT_EQ(result().recover_ms.n, 0u);
  EXPECT_EQ(why_healed_after(420), "");
  EXPECT_EQ(result().recover_ms.n, 1u);
}

TEST_F(TooShort, with_short_operations_a_tenth_of_a_second_is_asked_for) {
  job.record = {job.record.streams};
  run(1000, 1500, 10, 10);
  never_recover(1500, 4000);
  EXPECT_EQ(why_healed_after(159.9), "it was healed before it could be measured");
  EXPECT_EQ(why_healed_after(160), "");
}

TEST_F(TooShort, how_long_an_operation_takes_is_taken_from_those_before_the_fault) {
  job.record.operations.back() = {5, {at(1500), at(2400)}, true};
  deliver(0, 1960, 1970, 10, 0);  // was in flight, but that was all
  EXPECT_EQ(why_healed_after(419.9), "it was healed before it could be measured");
  EXPECT_EQ(why_healed_after(420), "");
}

TEST_F(TooShort, without_any_bandwidth_left_ten_operations_are_asked_for) {
  mode.kind = ModeKind::kBaseline;
  EXPECT_EQ(why_healed_after(1109.9), "it was healed before it could be measured");
  EXPECT_EQ(why_healed_after(1110), "");
}

TEST_F(TooShort, the_drivers_own_healing_came_when_the_round_was_over) {
  job.firings[0].healed_by_driver = true;
  EXPECT_EQ(why_healed_after(300), "");
}

TEST_F(TooShort, a_fault_that_was_soon_followed_by_another_is_no_sample) {
  strike(1555 + 419.9, 1);
  EXPECT_EQ(result().faults[0].why_not_sampled, "the next fault came before it could be measured");
  job.firings[1].t0_ns = at(1555 + 420);
  EXPECT_EQ(result().faults[0].why_not_sampled, "");
  job.firings[1].t0_ns = at(1555);
  EXPECT_EQ(result().faults[0].why_not_sampled, "") << "at the same moment: neither follows the other";
}

TEST_F(TooShort, one_that_recovered_all_the_same_is_a_sample) {
  job.record = {job.record.streams};
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);
  EXPECT_EQ(why_healed_after(300), "");
  EXPECT_DOUBLE_EQ(result().recover_ms.max, 35);
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
  scenario.faults.push_back(fault(FaultKind::kNoop));
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
  scenario.faults.push_back(fault(FaultKind::kPortDown, "node1/nic1"));
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
  lose_nic0(1500, 2700);
  strike(1555);
  const Throughput t = result().throughput;
  EXPECT_TRUE(t.settled);
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 1);
  EXPECT_DOUBLE_EQ(t.retained, 0.5);
  EXPECT_DOUBLE_EQ(t.limit, 0.5);
}

TEST_F(Evaluate, rounds_are_averaged_as_ratios) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2700);  // 2 -> 1 Gbit/s
  strike(1555).healed_ns = at(2700);
  run(2700, 3200, 100, 5);
  lose_nic0(3200, 4400, 5, 5);  // 4 -> 4 Gbit/s
  strike(3255, 0, 1).before_from_ns = at(2700);
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
  EXPECT_EQ(result().restored.why_not, "no channel went back to a repaired NIC");
  job.firings[0].healed_ns = 0;
  EXPECT_EQ(result().restored.why_not, "the fault was still there when the job ended");
  EXPECT_FALSE(result().restored.ratio);
}

TEST_F(AfterFailback, nothing_counts_before_the_last_fault_is_healed) {
  run(2700, 4700, 100, 10);
  strike(2900).healed_ns = at(3800);
  EXPECT_EQ(result().restored.why_not, "only 9 operations after the last failback; 10 are wanted");
}

TEST_F(AfterFailback, rounds_count_together) {
  run(2700, 3300, 100, 10);
  strike(3300, 0, 1);
  operation(3300, 4000);
  EXPECT_EQ(result().restored.why_not, "only 6 operations after the last failback; 10 are wanted");
  job.firings[1].healed_ns = at(3500);
  run(4000, 4600, 100, 10);
  EXPECT_DOUBLE_EQ(result().restored.ratio.value_or(0), 1);
  EXPECT_EQ(result().restored.operations_after, 12u);
}

TEST_F(Evaluate, of_a_round_the_last_fault_in_time_counts_wherever_the_scenario_lists_it) {
  run(1000, 1500, 100, 10);
  lose_nic0(1500, 2300);
  run(2300, 3500, 400, 40, 1);
  const auto down = fault(FaultKind::kPortDown),
             throttle = fault(FaultKind::kThrottle, "node1/nic1", kGbit / 2);
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
  run(1600, 2600, 200, 20);
  scenario.faults = {fault(FaultKind::kThrottle, "node1/nic0", kGbit / 2), fault(FaultKind::kPortDown)};
  strike(1550);
  const ModeResult slow = result();
  EXPECT_EQ(slow.faults[0].why_not_sampled, "no operation was open");
  EXPECT_EQ(slow.faults_sampled, 0u);
  EXPECT_TRUE(slow.throughput.settled);
  EXPECT_DOUBLE_EQ(slow.throughput.retained, 0.5);
  EXPECT_DOUBLE_EQ(slow.throughput.limit, 0.5);
  job.firings.clear();
  strike(1550, 1);
  EXPECT_FALSE(result().throughput.settled) << "nobody knows what a NIC that was lost then did";
}

TEST_F(Evaluate, without_a_settled_window_only_the_rate_before_the_first_fault_is_known) {
  run(1000, 1500, 100, 10);
  never_recover(1500, 3000);
  strike(1555);
  strike(0, 0, 1);  // never seen, so it ends nothing
  const Throughput t = result().throughput;
  EXPECT_FALSE(t.settled);
  EXPECT_DOUBLE_EQ(t.before_gbps, 2);
  EXPECT_DOUBLE_EQ(t.after_gbps, 0);
  EXPECT_DOUBLE_EQ(t.retained, 0);
}

}  // namespace
}  // namespace r2bench
