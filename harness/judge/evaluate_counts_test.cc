// SPDX-License-Identifier: Apache-2.0
// What evaluate() counts and passes on (elements, events, iterations, settings), and how the jobs of a paired
// run are pooled. The recovery of faults is in evaluate_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/judge/evaluate.h"
#include "harness/judge/held_up.h"
#include "harness/judge/pool.h"
#include "harness/judge/verdict.h"

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

// --- pool --------------------------------------------------------------------------------------------------

class Pool : public testing::Test {
 protected:
  /// An AllReduce of 12 MB by four ranks, each of its iterations `ms` long.
  static ModeResult job(std::vector<double> ms) {
    ModeResult mode;
    mode.iteration_ms = ms;
    mode.row.size_bytes = 12'000'000;
    mode.row.iterations = ms.size();
    if (!ms.empty()) {
      for (double t : ms) mode.row.time_us += 1e3 * t / double(ms.size());
      mode.row.algbw = 12'000 / mode.row.time_us;
      mode.row.busbw = 1.5 * mode.row.algbw;
    }
    return mode;
  }
};

/// What comes of `outcome: wanted` of a mode whose jobs ended like this.
Judgement outcome_of(const std::string& wanted, const std::vector<Outcome>& ends) {
  std::vector<ModeResult> jobs(ends.size());
  std::vector<const ModeResult*> all;
  for (size_t i = 0; i < ends.size(); ++i) {
    jobs[i].mode = "migrate";
    jobs[i].outcome = ends[i];
    if (ends[i] == Outcome::kError) jobs[i].error = "node1/nic0 failed";
    all.push_back(&jobs[i]);
  }
  Scenario scenario;
  scenario.modes = {{ModeKind::kMigrate, "migrate", {}}};
  scenario.expectations = {
      {"migrate", "outcome", wanted, 0, 0, parse_condition(*find_metric("outcome"), wanted)}};
  RunResult whole;
  whole.modes = {pool(all)};
  return judge(scenario, whole).expectations.at(0);
}

TEST(PooledOutcome, an_expectation_has_to_hold_for_every_job) {
  std::vector<Outcome> ends(19, Outcome::kOk);
  ends.push_back(Outcome::kError);
  const Judgement one = outcome_of("error", ends);
  EXPECT_EQ(one.verdict, Verdict::kFail);
  EXPECT_EQ(one.got, "error in 1 of 20 jobs, ok in 19");
  EXPECT_EQ(outcome_of("ok", ends).verdict, Verdict::kFail);
  EXPECT_EQ(outcome_of("!= ok", ends).verdict, Verdict::kFail);
  EXPECT_EQ(outcome_of("!= hang", ends).verdict, Verdict::kPass);
  const Judgement all = outcome_of("error", {Outcome::kError, Outcome::kError});
  EXPECT_EQ(all.verdict, Verdict::kPass);
  EXPECT_EQ(all.got, "error in 2 of 2 jobs");
  EXPECT_EQ(outcome_of("error", {Outcome::kError}).got, "error");
}

TEST(PooledOutcome, a_job_that_was_cut_short_decides_nothing) {
  const Judgement open = outcome_of("error", {Outcome::kError, Outcome::kCancelled});
  EXPECT_EQ(open.verdict, Verdict::kUnknown);
  EXPECT_EQ(open.doubt, DoubtKind::kCutShort);
  EXPECT_EQ(outcome_of("error", {Outcome::kOk, Outcome::kCancelled}).verdict, Verdict::kFail)
      << "whatever the last one would have become";
  EXPECT_EQ(outcome_of("ok", {Outcome::kOk, Outcome::kCancelled}).verdict, Verdict::kUnknown);
}

TEST_F(Pool, counts_are_added_up) {
  ModeResult a = job({1}), b = job({1});
  a.correctness = {1, 2, 3, 4, 5, 6};
  b.correctness = {10, 20, 30, 40, 50, 60};
  a.row.wrong = 1, b.row.wrong = 10;
  a.faults_planned = 1, b.faults_planned = 10;
  a.faults_witnessed = 2, b.faults_witnessed = 20;
  a.faults_sampled = 3, b.faults_sampled = 30;
  a.faults_unrecovered = 4, b.faults_unrecovered = 40;
  a.counts["migrations"] = 5, b.counts["migrations"] = 50;
  a.counts["failbacks"] = 6, b.counts["failbacks"] = 60;
  a.counts["peer_slow"] = 7, b.counts["peer_slow"] = 70;
  a.counts["gray_nics"] = 1, b.counts["gray_nics"] = 10;
  a.counts["well_nics"] = 2, b.counts["well_nics"] = 20;
  a.counts["lanes"] = 3, b.counts["lanes"] = 30;
  a.trace_lost = 8, b.trace_lost = 80;
  a.witnesses_lost = 1, b.witnesses_lost = 10;
  a.faults_added = 6, b.faults_added = 60;
  a.rounds_fired = 2, b.rounds_fired = 20;
  a.rounds_seen = 3, b.rounds_seen = 30;
  a.rounds_at_end = 4, b.rounds_at_end = 40;
  a.rounds_not_fired = 5, b.rounds_not_fired = 50;
  a.cpu = {3, 2}, b.cpu = {30, 20};
  a.duration_s = 9, b.duration_s = 90;
  const ModeResult all = pool({&a, &b});
  EXPECT_EQ(all.correctness.wrong_elements, 11u);
  EXPECT_EQ(all.correctness.duplicated, 22u);
  EXPECT_EQ(all.correctness.lost, 33u);
  EXPECT_EQ(all.correctness.checked_elements, 44u);
  EXPECT_EQ(all.correctness.checked_iterations, 55u);
  EXPECT_EQ(all.correctness.size_errors, 66u);
  EXPECT_EQ(all.row.wrong, 11u);
  EXPECT_EQ(all.faults_planned, 11u);
  EXPECT_EQ(all.faults_witnessed, 22u);
  EXPECT_EQ(all.faults_sampled, 33u);
  EXPECT_EQ(all.faults_unrecovered, 44u);
  EXPECT_EQ(all.count("migrations"), 55u);
  EXPECT_EQ(all.count("failbacks"), 66u);
  EXPECT_EQ(all.count("peer_slow"), 77u);
  EXPECT_EQ(all.count("gray_nics"), 11u);
  EXPECT_EQ(all.count("well_nics"), 22u);
  EXPECT_EQ(all.count("lanes"), 33u);
  EXPECT_EQ(all.trace_lost, 88u);
  EXPECT_EQ(all.witnesses_lost, 11u);
  EXPECT_EQ(all.faults_added, 66u);
  EXPECT_EQ(all.rounds_fired, 22u);
  EXPECT_EQ(all.rounds_seen, 33u);
  EXPECT_EQ(all.rounds_at_end, 44u);
  EXPECT_EQ(all.rounds_not_fired, 55u);
  EXPECT_DOUBLE_EQ(all.cpu.seconds, 33);
  EXPECT_DOUBLE_EQ(all.cpu.gbytes, 22);
  EXPECT_DOUBLE_EQ(all.duration_s, 99);
}

TEST_F(Pool, what_is_measured_is_pooled_over_the_jobs_that_know_it) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.measured["stall_ms"] = 30, c.measured["stall_ms"] = 70;
  EXPECT_EQ(pool({&a, &b, &c}).number("stall_ms"), 70.0) << "the longest";
  EXPECT_EQ(pool({&b, &a}).number("stall_ms"), 30.0) << "the first job does not know it";
  EXPECT_EQ(pool({&b, &b}).number("stall_ms"), std::nullopt);
}

TEST_F(Pool, of_what_came_back_the_worst_job_counts) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.restored = {0.99, "", 10, 10.1, 12, 20, 2, 2, 0};
  b.restored = {0.5, "", 10, 20, 12, 30, 1, 0, 1};
  c.restored = {{}, "it is not known", 10, 0, 12, 0, 1, 0, 0};
  const Restored all = pool({&a, &b, &c}).restored;
  EXPECT_DOUBLE_EQ(all.ratio.value_or(0), 0.5);
  EXPECT_DOUBLE_EQ(all.after_ms, 20);
  EXPECT_EQ(all.operations_after, 30u);
  EXPECT_EQ(all.rounds, 4u);
  EXPECT_EQ(all.rounds_home, 2u);
  EXPECT_EQ(all.rounds_late, 1u);
  EXPECT_EQ(all.why_not, "it is not known");
  EXPECT_EQ(pool({&a}).restored.rounds, 2u);
}

TEST_F(Pool, times_are_means_over_all_iterations) {
  const ModeResult a = job({10, 20}), b = job({60});
  const ModeResult all = pool({&a, &b});
  EXPECT_EQ(all.iteration_ms, (std::vector<double>{10, 20, 60}));
  EXPECT_EQ(all.row.iterations, 3u);
  EXPECT_DOUBLE_EQ(all.row.time_us, 30'000);
  EXPECT_DOUBLE_EQ(all.row.algbw, 0.4);
  EXPECT_DOUBLE_EQ(all.row.busbw, 0.6);
}

TEST_F(Pool, a_first_job_without_an_iteration_does_not_hide_the_times_of_the_others) {
  const ModeResult a = job({}), b = job({30});
  const ModeResult all = pool({&a, &b});
  EXPECT_DOUBLE_EQ(all.row.time_us, 30'000);
  EXPECT_DOUBLE_EQ(all.row.algbw, 0.4);
  EXPECT_DOUBLE_EQ(all.row.busbw, 0.6);
}

TEST_F(Pool, the_first_job_that_failed_decides_the_outcome) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  b.outcome = Outcome::kHang;
  b.error = "stood still";
  c.outcome = Outcome::kError;
  c.error = "something else";
  const ModeResult all = pool({&a, &b, &c});
  EXPECT_EQ(all.outcome, Outcome::kHang);
  EXPECT_EQ(all.error, "stood still");
}

TEST_F(Pool, the_rate_is_the_mean_and_the_noise_floor_the_worst) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.throughput.before_gbps = 1;
  b.throughput.before_gbps = 3;
  c.throughput.before_gbps = 5;
  a.wakeup_ms = {1, 0, 0, 2, 0};
  b.wakeup_p99_ms = 1.5;
  b.wakeup_ms = {2, 0, 0, 9, 0};
  c.wakeup_ms = {3, 0, 0, 4, 0};
  const ModeResult all = pool({&a, &b, &c});
  EXPECT_DOUBLE_EQ(all.throughput.before_gbps, 3);
  EXPECT_DOUBLE_EQ(all.wakeup_ms.p99, 9);
  EXPECT_EQ(all.wakeup_ms.n, 2u);
  EXPECT_DOUBLE_EQ(all.wakeup_p99_ms, 1.5);
}

TEST_F(Pool, one_job_that_something_else_held_up_is_not_hidden_by_the_others) {
  ModeResult kind = job({1}), busy = job({1});
  for (ModeResult* each : {&kind, &busy}) {
    each->throughput = {.before_gbps = 3.9, .after_gbps = 1.95, .retained = 0.5, .limit = 0.5};
    each->throughput.rounds = each->throughput.rounds_measured = each->throughput.rounds_settled = 1;
    each->throughput.ports_gbps = 4;
  }
  EXPECT_EQ(held_up(pool({&kind, &busy, &kind}).throughput), "");
  busy.throughput.retained = 0.67;
  EXPECT_LT(pool({&kind, &busy, &kind, &kind}).throughput.retained, 0.55);
  EXPECT_NE(held_up(pool({&kind, &busy, &kind, &kind}).throughput).find("1.34 times the limit"),
            std::string::npos);
  busy.throughput.retained = 0.5;
  busy.throughput.before_gbps = 3.3;
  EXPECT_NE(held_up(pool({&kind, &kind, &busy}).throughput).find("3.30 were delivered in one of its jobs"),
            std::string::npos);
}

// A fault that no job survives twice: each job has one, and all count.
TEST_F(Pool, faults_of_all_jobs_stand_one_behind_the_other) {
  const auto struck = [this](uint64_t start_ns, double recover_ms) {
    ModeResult one = job({1});
    FaultSample sample;
    sample.witnessed = sample.sampled = true;
    sample.t0_ns = start_ns + 1000;
    sample.detect_ms = 1;
    if (recover_ms > 0)
      sample.recover_ms = recover_ms;
    else
      one.faults_unrecovered = 1, sample.waited_ms = 500;
    one.faults = {sample};
    one.faults_sampled = 1;
    one.timeline.start_ns = start_ns;
    one.timeline.end_ns = start_ns + 5000;
    one.timeline.total = {{start_ns, 2, true, 1}};
    one.throughput = {.before_gbps = 4,
                      .after_gbps = 2,
                      .retained = recover_ms > 0 ? 0.5 : 0.1,
                      .limit = 0.5,
                      .rounds = 1,
                      .rounds_measured = 1,
                      .rounds_settled = size_t(recover_ms > 0),
                      .worst_unsettled = recover_ms > 0 ? 0 : 0.1};
    return one;
  };
  const ModeResult a = struck(10'000, 20), b = struck(90'000, 0), c = struck(400'000, 30);
  const ModeResult all = pool({&a, &b, &c});
  ASSERT_EQ(all.faults.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all.faults[i].repetition, i);
    EXPECT_EQ(all.faults[i].t0_ns, 10'000 + i * 5000 + 1000);
  }
  EXPECT_EQ(all.timeline.end_ns, 25'000u);
  EXPECT_EQ(all.detect_ms.n, 3u);
  EXPECT_EQ(all.recover_ms.n, 3u);
  EXPECT_DOUBLE_EQ(all.recover_ms.p50, 30);
  EXPECT_DOUBLE_EQ(all.recover_ms.max, 500);
  EXPECT_EQ(all.faults_unrecovered, 1u);
  EXPECT_EQ(all.throughput.rounds, 3u);
  EXPECT_EQ(all.throughput.rounds_settled, 2u);
  EXPECT_FALSE(all.throughput.settled());
  EXPECT_DOUBLE_EQ(all.throughput.worst_unsettled, 0.1);
  EXPECT_NEAR(all.throughput.retained, 1.1 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(all.throughput.limit, 0.5);
}

}  // namespace
}  // namespace r2bench
