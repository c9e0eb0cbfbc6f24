// SPDX-License-Identifier: Apache-2.0
// What evaluate() counts and passes on: elements, events, iterations, settings. The recovery of faults is in
// evaluate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/judge/evaluate.h"

namespace r2bench {
namespace {

using r2ccl::trace::EventType;

uint64_t at(double ms) { return uint64_t(ms * 1e6); }

class Counts : public testing::Test {
 protected:
  Counts() {
    job.mode = &mode;
    job.labels = {"node0/rank0", "node1/rank0"};
  }
  void operation(double from, double until, bool complete = true) {
    job.record.operations.push_back({job.record.operations.size(), {at(from), at(until)}, complete});
    job.record.end_ns = std::max(job.record.end_ns, at(until));
  }
  void emit(EventType type, double ms = 0, uint32_t rank = 0, uint64_t c = 0) {
    r2ccl::trace::Event event{};
    event.type = type;
    event.time_ns = at(ms);
    event.c = c;
    job.trace.push_back({rank, event});
  }
  void take_plan(uint64_t epoch, double ms, uint32_t rank, uint32_t group = 1) {
    emit(EventType::kPlanAgreed, ms, rank);
    job.trace.back().event.channel = group;
    job.trace.back().event.a = epoch;
  }
  ModeResult result() {
    std::vector<Interval> open;
    for (const OperationSpan& o : job.record.operations) open.push_back(o.span);
    job.record.open = OpenTime(open);
    return evaluate(scenario, job);
  }

  Scenario scenario;
  Mode mode{ModeKind::kMigrate, "with_care", {}};
  JobRecord job;
};

TEST_F(Counts, what_the_job_knows_is_passed_on) {
  job.outcome = Outcome::kError;
  job.error = "a NIC is gone";
  job.ranks.resize(2);
  job.correctness = {1, 2, 3, 4, 5, 6};
  job.trace_lost = 7;
  job.witnesses_lost = 8;
  job.added_faults = {2, 3};
  job.faults_ended_outside = 3;
  job.gave_up = "the target carried nothing";
  job.wakeup_ms = {10, 1, 2, 3, 4};
  job.start_ns = at(1000);
  job.end_ns = at(3500);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.mode, "with_care");
  EXPECT_EQ(evaluated.r2cc_mode, 1);
  EXPECT_EQ(evaluated.outcome, Outcome::kError);
  EXPECT_EQ(evaluated.error, "a NIC is gone");
  EXPECT_EQ(evaluated.ranks.size(), 2u);
  EXPECT_EQ(evaluated.correctness.wrong_elements, 1u);
  EXPECT_EQ(evaluated.correctness.duplicated, 2u);
  EXPECT_EQ(evaluated.correctness.lost, 3u);
  EXPECT_EQ(evaluated.correctness.checked_elements, 4u);
  EXPECT_EQ(evaluated.correctness.checked_iterations, 5u);
  EXPECT_EQ(evaluated.correctness.size_errors, 6u);
  EXPECT_EQ(evaluated.trace_lost, 7u);
  EXPECT_EQ(evaluated.witnesses_lost, 8u);
  EXPECT_EQ(evaluated.faults_added, 2u);
  EXPECT_EQ(evaluated.faults_ended_outside, 3u);
  EXPECT_EQ(evaluated.settings.at("inject"), "2 added, 3 ended from outside: this is not the scenario alone");
  EXPECT_EQ(evaluated.incomplete, "the target carried nothing");
  EXPECT_DOUBLE_EQ(evaluated.wakeup_ms.p99, 3);
  EXPECT_DOUBLE_EQ(evaluated.wakeup_p99_ms, kWakeupCapMs) << "busy threads must not widen bounds without end";
  EXPECT_DOUBLE_EQ(evaluated.duration_s, 2.5);
}

TEST_F(Counts, a_segment_that_arrived_twice_is_a_duplicate_on_top_of_those_that_the_ranks_saw) {
  job.correctness.duplicated = 3;
  emit(EventType::kDuplicateDropped);
  emit(EventType::kDuplicateDropped, 0, 1);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.correctness.duplicated, 5u);
  EXPECT_FALSE(evaluated.correctness.exact());
}

TEST_F(Counts, what_balance_did_is_counted_over_all_ranks) {
  emit(EventType::kNicGray);
  emit(EventType::kNicGray, 0, 1);
  emit(EventType::kNicWell, 5, 1);
  for (int i = 0; i < 3; ++i) emit(EventType::kLaneUp, 1);
  emit(EventType::kLaneRests, 6);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.count("gray_nics"), 2u);
  EXPECT_EQ(evaluated.count("well_nics"), 1u);
  EXPECT_EQ(evaluated.count("lanes"), 3u);
  EXPECT_EQ(evaluated.count("migrations"), 0u);
}

TEST_F(Counts, planned_fences_are_no_migrations) {
  emit(EventType::kFenceStarted);
  emit(EventType::kFenceStarted, 0, 1);
  emit(EventType::kFenceStarted, 0, 0, /*planned*/ 1);
  emit(EventType::kMigrationDone);
  emit(EventType::kFailback);
  emit(EventType::kPeerSlow);
  emit(EventType::kPeerSlow);
  emit(EventType::kPeerSlow);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.count("migrations"), 2u);
  EXPECT_EQ(evaluated.count("failbacks"), 1u);
  EXPECT_EQ(evaluated.count("peer_slow"), 3u);
}

TEST_F(Counts, no_plan_is_agreed_where_none_is_taken) {
  emit(EventType::kAlgorithmChosen, 1, 0);
  emit(EventType::kAlgorithmChosen, 1, 1);
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.count("plans_agreed"), 0u);
  EXPECT_EQ(evaluated.rounds.at(0).at("plans_agreed"), 0u) << "read back from there";
}

TEST_F(Counts, a_plan_is_agreed_once_every_rank_has_taken_it) {
  take_plan(1, 10, 0);
  take_plan(1, 12, 1);
  take_plan(2, 20, 0);
  EXPECT_EQ(result().count("plans_agreed"), 1u) << "the second rank has not taken plan 2";
  take_plan(2, 29, 1);
  EXPECT_EQ(result().count("plans_agreed"), 2u);
  job.labels.push_back("node2/rank0");
  EXPECT_EQ(result().count("plans_agreed"), 0u) << "the third rank took none";
}

TEST_F(Counts, ranks_that_took_different_plans_agreed_on_none) {
  take_plan(1, 10, 0);
  take_plan(3, 20, 0);
  take_plan(2, 20, 1);
  take_plan(1, 20, 1, /*group*/ 2);
  EXPECT_EQ(result().count("plans_agreed"), 0u);
}

TEST_F(Counts, a_plan_that_ranks_report_twice_is_one) {
  for (int i = 0; i < 3; ++i) take_plan(1, 10 + i, 0);
  EXPECT_EQ(result().count("plans_agreed"), 0u) << "they are one rank's";
  for (int i = 0; i < 3; ++i) take_plan(1, 10 + i, 1);
  EXPECT_EQ(result().count("plans_agreed"), 1u);
}

TEST_F(Counts, each_group_numbers_its_own_plans) {
  for (uint32_t group : {1, 2})
    for (uint32_t rank : {0, 1}) take_plan(1, 10, rank, group);
  EXPECT_EQ(result().count("plans_agreed"), 2u);
}

TEST_F(Counts, a_plan_belongs_to_the_round_in_which_the_last_rank_took_it) {
  scenario.faults.emplace_back();
  for (size_t round = 0; round < 3; ++round) {
    Firing firing;
    firing.repetition = round;
    firing.armed_ns = at(1000 * double(round) + 100);
    job.firings.push_back(firing);
  }
  for (uint32_t rank : {0, 1}) take_plan(1, 500, rank);
  take_plan(2, 1090, 0);
  take_plan(2, 1110, 1);
  take_plan(2, 2500, 1);  // once more
  const ModeResult evaluated = result();
  ASSERT_EQ(evaluated.rounds.size(), 3u);
  EXPECT_EQ(evaluated.rounds[0].at("plans_agreed"), 1u);
  EXPECT_EQ(evaluated.rounds[1].at("plans_agreed"), 1u);
  EXPECT_EQ(evaluated.rounds[2].at("plans_agreed"), 0u);
  EXPECT_EQ(evaluated.count("plans_agreed"), 2u);
}

TEST_F(Counts, events_of_ranks_injector_and_runner_are_one_log_in_order_of_time) {
  emit(EventType::kFailback, 30, 1);
  faultinject::Witness witness;
  witness.time_ns = at(20);
  witness.rank = "node1/rank0";
  witness.node = "node1";
  witness.nic = 3;
  witness.what = "WC 12 shown";
  job.witnesses = {witness, witness};
  job.witnesses[1].time_ns = at(25);
  job.witnesses[1].qp_num = 77;
  LoggedEvent note;
  note.time_ns = at(10);
  note.name = "healed";
  job.notes = {note};
  const auto events = result().events;
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].name, "healed");
  EXPECT_EQ(events[1].source + " " + events[1].name, "injector witness");
  EXPECT_EQ(events[1].text, "node1/nic3 in node1/rank0: WC 12 shown");
  EXPECT_EQ(events[1].nic, 3);
  EXPECT_EQ(events[2].text, "node1/nic3 qp 77 in node1/rank0: WC 12 shown");
  EXPECT_EQ(events[3].source + " " + events[3].name, "node1/rank0 failback");
}

TEST_F(Counts, a_log_that_is_too_long_says_how_much_is_left_out) {
  for (int i = 0; i < 30'001; ++i) emit(EventType::kPeerSlow, i);
  EXPECT_EQ(result().events.size(), 30'001u);
  EXPECT_EQ(result().events_left_out, 0u);
  job.most_events = 20'000;
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.events.size(), 20'000u);
  EXPECT_EQ(evaluated.events_left_out, 10'001u);
  EXPECT_EQ(evaluated.count("peer_slow"), 30'001u) << "but all are counted";
}

TEST_F(Counts, each_round_counts_what_happened_from_its_arming_on) {
  scenario.faults.emplace_back();
  for (size_t round = 0; round < 3; ++round) {
    Firing firing;
    firing.repetition = round;
    firing.armed_ns = at(1000 * double(round) + 100);
    firing.t0_ns = firing.triggered_ns = at(1000 * double(round) + 500);
    job.firings.push_back(firing);
  }
  emit(EventType::kFenceStarted, 50);  // before the first: a false alarm, and the first round's
  emit(EventType::kFenceStarted, 510);
  emit(EventType::kFailback, 900);
  emit(EventType::kFenceStarted, 1510);
  emit(EventType::kFailback, 1900);
  emit(EventType::kLaneUp, 2200);
  const ModeResult evaluated = result();
  ASSERT_EQ(evaluated.rounds.size(), 3u);
  EXPECT_EQ(evaluated.rounds[0].at("migrations"), 2u);
  EXPECT_EQ(evaluated.rounds[0].at("failbacks"), 1u);
  EXPECT_EQ(evaluated.rounds[1].at("migrations"), 1u);
  EXPECT_EQ(evaluated.rounds[1].at("failbacks"), 1u);
  EXPECT_EQ(evaluated.rounds[2].at("migrations"), 0u);
  EXPECT_EQ(evaluated.rounds[2].at("lanes"), 1u);
  EXPECT_EQ(evaluated.count("migrations"), 3u);
}

TEST_F(Counts, the_nccl_tests_row_of_an_all_reduce) {
  scenario.fabric.nodes = 2;
  scenario.fabric.ranks_per_node = 2;
  scenario.workload.bytes = 16 << 20;
  job.correctness.wrong_elements = 9;
  operation(0, 10);
  operation(10, 40);
  operation(40, 45, false);
  const NcclTestsRow row = result().row;
  EXPECT_EQ(row.size_bytes, 16'777'216u);
  EXPECT_EQ(row.count, 4'194'304u);
  EXPECT_EQ(row.type + " " + row.redop, "float sum");
  EXPECT_EQ(row.iterations, 2u) << "the third did not end";
  EXPECT_DOUBLE_EQ(row.time_us, 20'000);
  EXPECT_DOUBLE_EQ(row.algbw, 0.8388608) << "16 MiB in 20 ms, in GB/s";
  EXPECT_DOUBLE_EQ(row.busbw, 1.2582912) << "times 2 (4 - 1) / 4";
  EXPECT_EQ(row.wrong, 9u);
}

TEST_F(Counts, the_nccl_tests_row_of_a_send_recv) {
  scenario.workload.op = Operation::kSendRecv;
  scenario.fabric.nodes = 4;  // their number does not matter
  scenario.workload.dtype = DataType::kInt64;
  scenario.workload.bytes = 8'000'000;
  operation(0, 4);
  const NcclTestsRow row = result().row;
  EXPECT_EQ(row.type + " " + row.redop, "int64 none");
  EXPECT_EQ(row.count, 1'000'000u);
  EXPECT_DOUBLE_EQ(row.algbw, 2);
  EXPECT_DOUBLE_EQ(row.busbw, 2);
}

TEST_F(Counts, types_are_named_as_nccl_tests_names_them) {
  for (const auto& [type, name] : {std::pair{DataType::kInt8, "int8"}, std::pair{DataType::kInt32, "int32"},
                                   std::pair{DataType::kFloat64, "double"}}) {
    scenario.workload.dtype = type;
    EXPECT_EQ(result().row.type, name);
  }
}

TEST_F(Counts, a_job_that_never_began_has_no_rate) {
  const ModeResult evaluated = result();
  EXPECT_EQ(evaluated.row.iterations, 0u);
  EXPECT_EQ(evaluated.row.time_us, 0);
  EXPECT_EQ(evaluated.throughput.before_gbps, 0);
  EXPECT_FALSE(evaluated.throughput.settled());
  EXPECT_TRUE(evaluated.timeline.total.empty());
}

TEST_F(Counts, without_a_fault_the_rate_is_that_of_the_whole_job) {
  job.record.streams = {{1, 0, 1, 0}};
  operation(1000, 1010);
  operation(1020, 1030);  // 10 ms in which nobody was to be served
  for (double ms : {1005., 1010., 1025., 1030.})
    job.record.deliveries.push_back({at(ms), 2'500'000, 0, 0, 0, 0});
  const Throughput t = result().throughput;
  EXPECT_DOUBLE_EQ(t.before_gbps, 4) << "10 MB in 20 ms";
  EXPECT_DOUBLE_EQ(t.limit, 1);
  EXPECT_FALSE(t.settled());
  EXPECT_EQ(t.rounds, 0u);
}

TEST_F(Counts, the_timeline_begins_with_the_first_operation_in_a_thousand_bins_of_5_to_100_ms) {
  operation(1000, 1500);
  Timeline timeline = result().timeline;
  EXPECT_EQ(timeline.start_ns, at(1000));
  EXPECT_DOUBLE_EQ(timeline.bin_ms, 5);
  EXPECT_EQ(timeline.total.size(), 100u);
  operation(1500, 21'000);
  EXPECT_DOUBLE_EQ(result().timeline.bin_ms, 20);
  operation(21'000, 301'000);
  EXPECT_DOUBLE_EQ(result().timeline.bin_ms, 100);
}

TEST_F(Counts, cpu_time_is_that_of_all_ranks_for_what_was_delivered_in_the_counted_operations) {
  operation(1000, 2000);
  job.first_iteration_ns = at(990);
  job.record.streams = {{1, 0, 1, 0}};
  for (double ms : {900.0, 995.0, 1500.0, 1900.0})  // the first is of a warm-up
    job.record.deliveries.push_back({at(ms), 500'000'000, 0, 0, 0, 1});
  job.ranks.resize(2);
  job.ranks[0].cpu_s = 1;
  EXPECT_FALSE(result().cpu.known()) << "one rank did not say";
  job.ranks[1].cpu_s = 2;
  const CpuUse cpu = result().cpu;
  EXPECT_DOUBLE_EQ(cpu.seconds, 3);
  EXPECT_DOUBLE_EQ(cpu.gbytes, 1.5);
  EXPECT_DOUBLE_EQ(cpu.per_gb(), 2);
  job.trace_lost = 1;
  EXPECT_FALSE(result().cpu.known()) << "not every delivery was seen";
  job.trace_lost = 0;
  job.outcome = Outcome::kError;
  EXPECT_FALSE(result().cpu.known());
}

TEST_F(Counts, a_plugin_that_is_not_ours_knows_no_modes) {
  job.plugin = "testnet v12";
  const auto settings = result().settings;
  EXPECT_EQ(settings.at("plugin"), "testnet v12");
  EXPECT_EQ(settings.at("modes"), "none: the plugin is not R2CCL, R2CC_MODE means nothing to it");
}

TEST_F(Counts, settings_are_those_that_the_ranks_ran_with) {
  job.environment = {{"NCCL_IB_TIMEOUT", "14"}, {"HOME", "/nowhere"}};
  job.plugin = "R2CCL v11";
  const auto settings = result().settings;
  EXPECT_EQ(settings.at("NCCL_IB_TIMEOUT"), "14");
  EXPECT_EQ(settings.at("plugin"), "R2CCL v11");
  EXPECT_EQ(settings.count("modes"), 0u);
  EXPECT_EQ(settings.count("HOME"), 0u);
}

}  // namespace
}  // namespace r2bench
