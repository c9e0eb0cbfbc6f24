// SPDX-License-Identifier: Apache-2.0
// What a job's record says of its faults: which are samples, and how long each lasted.
#include "harness/judge/per_fault.h"
#include "harness/judge/settle_bound.h"
#include "harness/judge/testing/evaluate_fixture.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

using Evaluate = EvaluateTest;

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

// A stall of the warm-up is a stall, and no operation is open that could tell how long it is (`arm: start`).
TEST_F(Evaluate, a_fault_of_the_warm_up_has_met_something_that_is_not_measured) {
  deliver(0, 100, 500, 10, 0);
  deliver(1, 100, 500, 10, 1);
  strike(505);
  deliver(0, 3500, 3900, 10, 1);
  deliver(1, 3500, 3900, 10, 1);
  run(4000, 6000, 100, 10, 1);
  lose_nic0(6000, 8000);
  strike(6055).repetition = 1;
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.faults[0].why_not_sampled, kInWarmUp);
  EXPECT_TRUE(evaluated.faults[1].sampled);
  EXPECT_EQ(unknown_times(evaluated, "recover_ms"), (std::map<std::string, size_t>{{kInWarmUp, 1}}));
  // Where nothing is under way before the first operation, nothing was met.
  job.firings[0].t0_ns = at(3950);
  EXPECT_EQ(result().faults[0].why_not_sampled, "no operation was open");
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
  EXPECT_FALSE(result().number("error_ms")) << "there was none";
  job.outcome = Outcome::kError;
  job.error_ns = at(3650);
  EXPECT_DOUBLE_EQ(result().number("error_ms").value_or(0), 2050);
  job.firings[1].t0_ns = at(3700);
  EXPECT_DOUBLE_EQ(result().number("error_ms").value_or(0), 2095) << "what strikes later is not its cause";
  job.firings.clear();
  EXPECT_FALSE(result().number("error_ms"));
}

TEST_F(Evaluate, what_a_job_compares_is_told) {
  EXPECT_FALSE(evaluate(scenario, job).beside);
  mode.beside = {ModeKind::kBaseline, {{"R2CC_A", "1"}}};
  scenario.workload.copies = 2;
  ModeResult result = evaluate(scenario, job);
  ASSERT_TRUE(result.beside);
  EXPECT_EQ(result.beside->against, "baseline");
  EXPECT_EQ(result.beside->copies, 2u);
  EXPECT_EQ(result.settings.at("beside"), "baseline R2CC_A=1");

  mode.beside.reset();
  mode.transport = Transport::kPluginBesideIb;
  scenario.workload = {};
  scenario.workload.engine = Engine::kNccl;
  result = evaluate(scenario, job);
  ASSERT_TRUE(result.beside);
  EXPECT_EQ(result.beside->against, "ib");
  EXPECT_EQ(result.beside->copies, 8u);
}

}  // namespace
}  // namespace r2bench
