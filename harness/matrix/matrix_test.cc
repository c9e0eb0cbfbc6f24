// SPDX-License-Identifier: Apache-2.0
// The matrix without its jobs: that every cell can be written down, and that a cell holds only when its fault
// struck in its moment and everything came out right.
#include <gtest/gtest.h>

#include <set>

#include "harness/matrix/cell_scenario.h"
#include "harness/matrix/matrix_report.h"
#include "harness/run/runner.h"
#include "harness/scenario/load.h"

namespace r2bench::matrix {
namespace {

using r2ccl::trace::EventType;

const FaultRow& row(const std::string& name) {
  for (const FaultRow& fault : fault_rows())
    if (fault.name == name) return fault;
  throw std::out_of_range(name);
}

TEST(Matrix, has_every_kind_of_fault_at_every_moment_of_every_operation_at_every_end) {
  std::set<std::string> names, kinds;
  for (const Cell& cell : all_cells()) EXPECT_TRUE(names.insert(cell.name()).second) << cell.name();
  EXPECT_EQ(names.size(), fault_rows().size() * 7 * 3 * 3);
  for (const FaultRow& fault : fault_rows())
    kinds.insert(fault.parameters.substr(6, fault.parameters.find(',') - 6));
  for (const faultinject::FaultKind& kind : faultinject::fault_kinds())
    // Real faults change the machine, and have no virtual NIC to strike.
    EXPECT_NE(kinds.count(kind.name), size_t(kind.outside)) << kind.name;
}

TEST(Matrix, writes_a_scenario_for_each_cell_that_r2bench_run_takes) {
  for (const Cell& cell : all_cells()) {
    if (!why_empty(*cell.fault, cell.moment, cell.side).empty()) continue;
    const auto scenarios = parse_scenarios("cell.yaml", scenario_text(cell, 5));
    ASSERT_EQ(scenarios.size(), 1u);
    const Scenario& scenario = scenarios.front();
    EXPECT_TRUE(scenario.arm_at_start);
    EXPECT_EQ(scenario.workload.op, cell.op);
    size_t own = 0;
    for (const auto& fault : scenario.faults) {
      faultinject::check_targets(fault, {{"node0", 2}, {"node1", 2}});
      own += fault.name.rfind(kCellFault, 0) == 0;
    }
    EXPECT_EQ(own, cell.side == Side::kBoth ? 2u : 1u) << cell.name();
  }
}

TEST(Matrix, aims_at_the_queue_pair_that_carries_the_message) {
  const auto opcodes = [](const char* fault, Moment moment, Side side, const char* mode = "migrate") {
    const Cell cell{&row(fault), moment, Operation::kAllReduce, side};
    const Scenario scenario = parse_scenarios("cell.yaml", scenario_text(cell, 5, mode)).front();
    std::string all;
    for (const auto& each : scenario.faults)
      if (each.name.rfind(kCellFault, 0) == 0) all += std::to_string(each.opcodes) + " ";
    return all;
  };
  // Node 0 writes messages with immediate (opcode 1), node 1 CTS entries without (opcode 0).
  for (const char* fault : {"cq_error_send", "cq_error_recv"}) {
    EXPECT_EQ(opcodes(fault, Moment::kFirstMessage, Side::kBoth), "2 1 ") << fault;
    EXPECT_EQ(opcodes(fault, Moment::kFirstMessage, Side::kReceiver, "allreduce"), "1 ") << fault;
    EXPECT_EQ(opcodes(fault, Moment::kConnect, Side::kBoth), "0 0 ") << "paths are proved by reads";
  }
  EXPECT_EQ(opcodes("qp_error", Moment::kFirstMessage, Side::kBoth), "0 0 ") << "it strikes all of them";
}

TEST(Matrix, of_mode_allreduce_has_only_what_the_host_engine_carries) {
  const auto cells = chosen({}, "allreduce");
  EXPECT_EQ(cells.size(), fault_rows().size() * 7 * 3);
  EXPECT_THROW(chosen({"port_down/*/SendRecv/*"}, "allreduce"), UsageError);
  for (const Cell& cell : cells) {
    if (!why_empty(*cell.fault, cell.moment, cell.side).empty()) continue;
    const Scenario scenario = parse_scenarios("cell.yaml", scenario_text(cell, 5, "allreduce")).front();
    EXPECT_EQ(scenario.workload.collnet, CollNet::kForce);
    EXPECT_EQ(scenario.modes.front().kind, ModeKind::kAllReduce);
  }
}

TEST(Matrix, takes_patterns_and_says_when_one_names_nothing) {
  EXPECT_EQ(chosen({}).size(), all_cells().size());
  EXPECT_EQ(chosen({"port_down/*/SendRecv/*"}).size(), 7u * 3);
  EXPECT_EQ(chosen({"port_down"}).size(), 7u * 3 * 3);
  EXPECT_EQ(chosen({"port_down/replay", "port_down/replay/AllReduce/both"}).size(), 9u);
  EXPECT_THROW(chosen({"port_dwon/*"}), UsageError);
  EXPECT_THROW(chosen({"port_down/*/*/*/*"}), UsageError);
}

TEST(Matrix, no_moment_is_without_a_fault_and_no_fault_without_a_moment) {
  for (const FaultRow& fault : fault_rows())
    EXPECT_TRUE(std::any_of(moments().begin(), moments().end(), [&](Moment moment) {
      return why_empty(fault, moment, Side::kSender).empty();
    })) << fault.name;
  for (const Moment moment : moments())
    EXPECT_GE(
        std::count_if(fault_rows().begin(), fault_rows().end(),
                      [&](const FaultRow& fault) { return why_empty(fault, moment, Side::kSender).empty(); }),
        10)
        << name(moment);
}

TEST(Matrix, what_a_kind_strikes_says_at_which_moments_it_can) {
  using faultinject::Strikes;
  const auto moments_of = [](Strikes strikes, Side side = Side::kSender) {
    FaultRow fault;
    fault.declared.strikes = strikes;
    std::string names;
    for (const Moment moment : moments())
      if (why_empty(fault, moment, side).empty()) names += std::string(name(moment)) + " ";
    return names;
  };
  const std::string in_traffic = "first_message mid_message last_segment replay failback ";
  EXPECT_EQ(moments_of(Strikes::kAnything), "connect " + in_traffic + "close ");
  EXPECT_EQ(moments_of(Strikes::kSetUp), "connect replay ");
  EXPECT_EQ(moments_of(Strikes::kWork), "connect " + in_traffic);
  EXPECT_EQ(moments_of(Strikes::kMessages), in_traffic);
  EXPECT_EQ(moments_of(Strikes::kReceives), in_traffic);
  EXPECT_EQ(moments_of(Strikes::kTwoQueuePairs), "connect first_message mid_message failback ");
  EXPECT_EQ(moments_of(Strikes::kTwoQueuePairs, Side::kReceiver), moments_of(Strikes::kTwoQueuePairs));
  EXPECT_EQ(moments_of(Strikes::kTwoQueuePairs, Side::kBoth), "first_message mid_message failback ")
      << "at set-up each end would wait for the other one's";
  EXPECT_EQ(moments_of(Strikes::kAnything, Side::kBoth), moments_of(Strikes::kAnything));
}

TEST(Matrix, a_kind_that_an_end_cannot_fence_may_end_the_job_in_an_error_that_says_so) {
  using faultinject::Fence;
  FaultRow fault;
  const auto outcome = [&](Moment moment, Side side, bool on_engine = false) {
    return expected({&fault, moment, Operation::kAllReduce, side}, on_engine).outcome;
  };
  EXPECT_EQ(outcome(Moment::kMidMessage, Side::kBoth), Expected::kSurvives);
  fault.declared.fence = Fence::kUnstopped;
  EXPECT_EQ(outcome(Moment::kMidMessage, Side::kReceiver), Expected::kExplainedError);
  EXPECT_EQ(outcome(Moment::kMidMessage, Side::kBoth), Expected::kExplainedError);
  EXPECT_EQ(outcome(Moment::kConnect, Side::kBoth), Expected::kSurvives);
  fault.declared.fence = Fence::kNoAnswer;
  EXPECT_EQ(outcome(Moment::kMidMessage, Side::kReceiver), Expected::kExplainedError);
  EXPECT_EQ(outcome(Moment::kConnect, Side::kBoth), Expected::kSurvives);
  fault.declared = {.no_more_set_up = true};
  EXPECT_EQ(outcome(Moment::kReplay, Side::kBoth), Expected::kSurvives);
  EXPECT_EQ(outcome(Moment::kReplay, Side::kBoth, true), Expected::kExplainedError);
}

/// A job in which message 3 was on its way when `cell-node0` struck, and which then ended well after a
/// migration.
class Verdict : public testing::Test {
 protected:
  Verdict() {
    job.outcome = Outcome::kOk;
    job.correctness.checked_elements = 1000;
    job.record.streams = {{1, 0, 1, 0}, {0, 0, 0, 1}};
    for (const uint64_t time : {100, 200, 400, 500}) {
      Delivery delivery;
      delivery.time_ns = time;
      job.record.deliveries.push_back(delivery);
    }
    for (size_t i = 0; i < 2; ++i) {
      Firing firing;
      firing.fault = i;
      firing.triggered_ns = firing.t0_ns = 250 + i * 10;
      job.firings.push_back(firing);
      RankResult rank;
      rank.iterations = uint64_t(scenario.workload.iters);
      job.ranks.push_back(rank);
    }
    event(EventType::kMigrationStarted, 265);
    job.end_ns = 1000;
  }
  void event(EventType type, uint64_t time, uint64_t a = 0, uint64_t c = 0, uint32_t rank = 0) {
    RankEvent event;
    event.rank = rank;
    event.event.type = type;
    event.event.time_ns = time;
    event.event.a = a;
    event.event.c = c;
    job.trace.push_back(event);
  }
  CellVerdict verdict() { return judge(cell, scenario, job).verdict; }

  Cell cell{&row("port_down"), Moment::kMidMessage, Operation::kSendRecv, Side::kSender};
  Scenario scenario = parse_scenarios("cell.yaml", scenario_text(cell, 1)).front();
  JobRecord job;
};

TEST_F(Verdict, passes_when_the_fault_struck_in_its_moment_and_everything_is_right) {
  const CellResult result = judge(cell, scenario, job);
  EXPECT_EQ(result.verdict, CellVerdict::kPass) << result.why;
  EXPECT_EQ(result.struck, 1);
  EXPECT_EQ(result.migrations, 1u);
}

TEST_F(Verdict, fails_on_wrong_lost_or_doubled_data_whatever_the_fault_did) {
  job.firings[1].t0_ns = 0;
  for (uint64_t Correctness::*count : {&Correctness::wrong_elements, &Correctness::lost,
                                       &Correctness::duplicated, &Correctness::size_errors}) {
    job.correctness.*count = 1;
    EXPECT_EQ(verdict(), CellVerdict::kFail);
    job.correctness.*count = 0;
  }
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
  event(EventType::kDuplicateDropped, 300);
  EXPECT_EQ(verdict(), CellVerdict::kFail);
}

TEST_F(Verdict, is_missed_without_a_witness_or_at_another_moment) {
  job.firings[1].t0_ns = 450;  // message 3 had arrived
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
  job.firings[1].t0_ns = 240;  // it was not posted
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
  job.firings[1].t0_ns = job.firings[1].triggered_ns = 0;
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
  job.firings[1].t0_ns = job.firings[1].triggered_ns = 260;
  EXPECT_EQ(verdict(), CellVerdict::kPass);
  job.firings[0].t0_ns = 0;  // the clock
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
}

TEST_F(Verdict, of_an_error_or_a_hang_is_failure_where_a_path_was_left) {
  job.outcome = Outcome::kError;
  EXPECT_EQ(verdict(), CellVerdict::kFail);
  job.outcome = Outcome::kHang;
  EXPECT_EQ(verdict(), CellVerdict::kFail);
  job.outcome = Outcome::kCancelled;
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
}

TEST_F(Verdict, wants_a_migration_where_a_path_broke_and_all_operations) {
  job.trace.clear();
  EXPECT_EQ(verdict(), CellVerdict::kFail);
  event(EventType::kMigrationStarted, 265);
  EXPECT_EQ(verdict(), CellVerdict::kPass);
  --job.ranks[0].iterations;
  EXPECT_EQ(verdict(), CellVerdict::kFail);
  ++job.ranks[0].iterations;
  job.correctness.checked_elements = 0;
  EXPECT_EQ(verdict(), CellVerdict::kFail) << "nothing was compared";
}

TEST_F(Verdict, of_nothing_broken_wants_that_nothing_migrated) {
  cell.fault = &row("noop");
  EXPECT_EQ(verdict(), CellVerdict::kFail);
  job.trace.clear();
  EXPECT_EQ(verdict(), CellVerdict::kPass);
}

TEST_F(Verdict, of_a_replay_wants_that_it_was_on_its_way) {
  cell.moment = Moment::kReplay;
  scenario = parse_scenarios("cell.yaml", scenario_text(cell, 1)).front();
  job.firings.push_back(job.firings[1]);
  job.firings[2].fault = 2;
  job.firings[2].triggered_ns = job.firings[2].t0_ns = 300;
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "no replay";
  event(EventType::kReplayed, 290, 0);
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "a replay of nothing";
  event(EventType::kReplayed, 291, 1);
  EXPECT_EQ(verdict(), CellVerdict::kPass);
  job.firings[2].t0_ns = 410;
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "it had arrived";
}

/// The job of a fault on the host engine: message 3 of its first operation is under way when it strikes.
class EngineVerdict : public Verdict {
 protected:
  EngineVerdict() {
    cell.op = Operation::kAllReduce;
    scenario = parse_scenarios("cell.yaml", scenario_text(cell, 1, "allreduce")).front();
    for (RankResult& rank : job.ranks) rank.iterations = uint64_t(scenario.workload.iters);
    for (Delivery& delivery : job.record.deliveries) delivery.bytes = 32768;
    job.record.deliveries.front().bytes = 16;
    event(EventType::kIterationDone, 150, 0, 0, 0);
    event(EventType::kIterationDone, 300, 0, 0, 0);
    event(EventType::kIterationDone, 320, 0, 0, 1);
  }
};

TEST_F(EngineVerdict, of_an_operation_wants_the_strike_before_both_ends_had_it) {
  EXPECT_EQ(verdict(), CellVerdict::kPass) << judge(cell, scenario, job).why;
  job.firings[1].triggered_ns = job.firings[1].t0_ns = 310;
  EXPECT_EQ(verdict(), CellVerdict::kPass) << "node 1 had not ended it";
  job.firings[1].triggered_ns = job.firings[1].t0_ns = 330;
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
  job.firings[1].triggered_ns = job.firings[1].t0_ns = 240;
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "before the message";
}

TEST_F(EngineVerdict, is_missed_where_a_message_of_the_set_up_was_counted) {
  job.record.deliveries[2].bytes = 16;  // at 400, after the clock
  EXPECT_EQ(verdict(), CellVerdict::kMissed);
}

TEST_F(EngineVerdict, of_a_replay_wants_that_something_was_replayed) {
  cell.moment = Moment::kReplay;
  scenario = parse_scenarios("cell.yaml", scenario_text(cell, 1, "allreduce")).front();
  for (RankResult& rank : job.ranks) rank.iterations = uint64_t(scenario.workload.iters);
  job.firings.push_back(job.firings[1]);
  job.firings[2].fault = 2;
  job.firings[2].triggered_ns = job.firings[2].t0_ns = 300;
  event(EventType::kReplayed, 290, 0);
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "a replay of nothing";
  event(EventType::kReplayed, 305, 1);
  EXPECT_EQ(verdict(), CellVerdict::kPass) << judge(cell, scenario, job).why;
  job.firings[2].triggered_ns = job.firings[2].t0_ns = 280;
  EXPECT_EQ(verdict(), CellVerdict::kMissed) << "before any replay";
}

TEST_F(EngineVerdict, of_memory_that_no_nic_registers_any_more_wants_an_error_that_says_so) {
  cell.fault = &row("reg_fail_lasting");
  cell.moment = Moment::kReplay;
  scenario = parse_scenarios("cell.yaml", scenario_text(cell, 1, "allreduce")).front();
  job.firings.push_back(job.firings[1]);
  job.firings[2].fault = 2;
  job.firings[2].triggered_ns = job.firings[2].t0_ns = 300;
  event(EventType::kReplayed, 290, 1);
  job.outcome = Outcome::kError;
  job.error_ns = 310;
  job.error = "iallreduce failed; the plugin said: memory cannot be registered";
  EXPECT_EQ(verdict(), CellVerdict::kPass) << judge(cell, scenario, job).why;
  job.error = "iallreduce failed";
  EXPECT_EQ(verdict(), CellVerdict::kFail);
}

TEST_F(Verdict, of_a_field_in_which_one_end_is_empty_says_which) {
  cell.moment = Moment::kConnect;
  cell.fault = &row("reorder");
  std::vector<CellRun> runs;
  for (const Side side : sides()) {
    cell.side = side;
    runs.push_back({cell, {}});
    runs.back().result.why = why_empty(*cell.fault, cell.moment, side);
    runs.back().result.verdict = runs.back().result.why.empty() ? CellVerdict::kPass : CellVerdict::kEmpty;
  }
  const std::string text = table(runs);
  EXPECT_NE(text.find(" 2 a "), std::string::npos) << text;
  EXPECT_NE(text.find("  a  both ends: each end's second"), std::string::npos) << text;
  const auto json = to_json(runs, {});
  std::string empty;
  for (const auto& field : json["empty"])
    if (field["moment"] == "connect") empty += field["end"].get<std::string>() + " ";
  EXPECT_EQ(empty, "both ");
  for (const auto& field : json["empty"]) EXPECT_EQ(field.contains("end"), field["moment"] == "connect");
}

TEST_F(Verdict, is_counted_and_told) {
  std::vector<CellRun> runs = {{cell, judge(cell, scenario, job)}};
  job.correctness.wrong_elements = 7;
  Cell bad = cell;
  bad.side = Side::kBoth;
  runs.push_back({bad, judge(bad, scenario, job)});
  runs.push_back({{&row("reg_fail"), Moment::kClose, Operation::kSendRecv, Side::kSender}, {}});
  runs.back().result.verdict = CellVerdict::kEmpty;
  runs.back().result.why = "nothing is registered";
  const MatrixCounts counts = count(runs);
  EXPECT_EQ(counts.pass, 1u);
  EXPECT_EQ(counts.fail, 1u);
  EXPECT_EQ(counts.empty, 1u);
  const std::string text = table(runs);
  EXPECT_NE(text.find("1/2!"), std::string::npos) << text;
  EXPECT_NE(text.find("port_down/mid_message/SendRecv/both: fail: 7 elements were wrong"), std::string::npos)
      << text;
  EXPECT_NE(text.find("a  nothing is registered"), std::string::npos) << text;
  const std::string page = markdown(runs, {{"revision", "abc"}});
  EXPECT_NE(page.find("| `port_down` |"), std::string::npos) << page;
  EXPECT_NE(page.find("revision abc"), std::string::npos) << page;
  const auto json = to_json(runs, {{"revision", "abc"}});
  EXPECT_EQ(json["counts"]["fail"], 1);
  EXPECT_EQ(json["cells"].size(), 2u);
  EXPECT_EQ(json["cells"][1]["wrong"], 7);
  EXPECT_EQ(nlohmann::ordered_json::parse(json_text(json)), json);
}

}  // namespace
}  // namespace r2bench::matrix
