// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/testing/sample_result.h"

#include <cmath>

#include "harness/scenario/load.h"
#include "harness/scenario/turns.h"

namespace r2bench {
namespace {

constexpr uint64_t kStart = 1'000'000'000'000;

uint64_t at_ms(double ms) { return kStart + static_cast<uint64_t>(ms * 1e6); }

void fill_timeline(ModeResult& mode, double end_ms, double gap_from, double gap_to, double after) {
  mode.timeline.start_ns = kStart;
  mode.timeline.end_ns = at_ms(end_ms);
  mode.timeline.bin_ms = 10;
  for (int i = 0; i * 10 < end_ms; ++i) {
    const double t = i * 10.0;
    const double gbps = t < gap_from ? 7.8 : t < gap_to ? 0.0 : after;
    mode.timeline.total.push_back({at_ms(t), gbps, true});
  }
  for (double t = gap_from - 20; t < gap_from + 100; t += 0.5) {
    if (t > gap_from && t < gap_to) continue;
    mode.timeline.raw.push_back({at_ms(t), 524288, 1, static_cast<uint16_t>(t < gap_from ? 0 : 1), 1u << 16});
  }
}

ModeResult common(const std::string& label) {
  ModeResult mode;
  mode.mode = label;
  mode.faults_planned = 1;
  mode.faults_witnessed = 1;
  mode.faults_sampled = 1;
  constexpr double kTimeUs = 34'200.0, kGbytes = double(16u << 20) / (kTimeUs * 1e3);
  mode.row = {16u << 20, 4u << 20, "float", "sum", -1, kTimeUs, kGbytes, kGbytes, 0, 200};
  mode.correctness.checked_elements = 1'719'664'640;
  mode.correctness.checked_iterations = 410;
  mode.wakeup_ms = {1000, 0.06, 0.21, 0.84, 3.2};
  mode.wakeup_p99_ms = 0.84;
  mode.settings = {
      {"NCCL_IB_TIMEOUT", "14"}, {"NCCL_IB_RETRY_CNT", "7"}, {"R2CC_MODE", label == "baseline" ? "0" : "1"}};
  mode.throughput.before_gbps = 7.8;
  FaultSample fault;
  fault.name = "port_down node1/nic0";
  fault.kind = "port_down";
  fault.target = "node1/nic0";
  fault.witnessed = true;
  fault.sampled = true;
  fault.armed_ns = kStart;
  fault.t0_ns = at_ms(2040.5);
  fault.floor_ms = 4.19;
  fault.window_ms = 16.8;
  fault.limit = 0.5;
  fault.before_gbps = 7.8;
  mode.faults.push_back(fault);
  for (int i = 0; i < 60; ++i) mode.iteration_ms.push_back(34.0 + 0.1 * (i % 5));
  return mode;
}

}  // namespace

Scenario sample_scenario() {
  return parse_scenarios("scenarios/nic_down.yaml", R"(version: 1
name: nic_down
description: One NIC loses its link in the middle of a verified AllReduce.
seed: 42
fabric: {nodes: 2, nics_per_node: 4, nic_rate: 1 Gbit/s}
workload: {bytes: 16 MiB, iters: 200}
modes: [baseline, migrate]
faults:
  - {at: {iter: 60}, target: node1/nic0, kind: port_down}
expect:
  all: {fault_witness: ">= 1"}
  baseline: {outcome: error, error_names_nic: yes}
  migrate: {correctness: exact, recover_ms.max: "<= floor + wakeup + 50 ms", retained_bw: ">= 0.95 * limit"}
)")[0];
}

RunResult sample_result() {
  RunResult result;
  result.scenario = "nic_down";
  result.source = "scenarios/nic_down.yaml";
  result.seed = 42;
  result.evidence = "emulated";
  result.started_at = "2026-01-02T03:04:05Z";
  result.environment = {{"kernel", "6.1.0"}, {"cores", "2"}};

  ModeResult baseline = common("baseline");
  baseline.outcome = Outcome::kError;
  baseline.error = "node1/rank0: vhca0: WC error 12 (transport retry counter exceeded) on channel 0";
  baseline.row.iterations = 60;
  baseline.throughput.limit = 0;
  baseline.faults[0].detected_by = "completion";
  baseline.detected_by = {{"completion", 1}};
  baseline.floor_ms = 4.19;
  baseline.duration_s = 3.4;
  RankResult rank;
  rank.rank = 1;
  rank.node = 1;
  rank.label = "node1/rank0";
  rank.outcome = Outcome::kError;
  rank.exit_code = 3;
  rank.error = baseline.error;
  rank.log_path = "logs/baseline-rank1.log";
  rank.iterations = 60;
  baseline.ranks.push_back(rank);
  fill_timeline(baseline, 2600, 2040.5, 1e9, 0);

  ModeResult migrate = common("migrate");
  migrate.r2cc_mode = 1;
  FaultSample& fault = migrate.faults[0];
  fault.detect_ms = 0.412;
  fault.migrate_ms = 3.1;
  fault.recover_ms = 12.3;
  fault.blackout_ms = 9.8;
  fault.detected_by = "event";
  fault.detected_ns = fault.t0_ns + 412'000;
  fault.migrated_ns = fault.t0_ns + 3'512'000;
  fault.recovered_ns = fault.t0_ns + 12'300'000;
  fault.after_gbps = 3.95;
  migrate.detect_ms = {1, 0.412, 0.412, 0.412, 0.412};
  migrate.migrate_ms = {1, 3.1, 3.1, 3.1, 3.1};
  migrate.recover_ms = {1, 12.3, 12.3, 12.3, 12.3};
  migrate.blackout_ms = {1, 9.8, 9.8, 9.8, 9.8};
  migrate.detected_by = {{"event", 1}};
  migrate.floor_ms = 4.19;
  migrate.counts["migrations"] = 2;
  migrate.throughput = {7.8, 3.95, 3.95 / 7.8, 0.5, 1, 1, 1, 0, 250, "", 8};
  baseline.restored.why_not = migrate.restored.why_not =
      "port_down node1/nic0 was still there when the job ended";
  for (int i = 60; i < 200; ++i) migrate.iteration_ms.push_back(34.0 + 0.1 * (i % 5));
  migrate.duration_s = 12.2;
  migrate.events.push_back({fault.t0_ns, "injector", "fault_fired", "port_down node1/nic0", 0, -1, 1, 0, 0});
  migrate.events.push_back(
      {*fault.detected_ns, "node1/rank1", "fence_started", "nic 0, by event", 0, 2, 2, 5, 0});
  fill_timeline(migrate, 11'600, 2040.5, 2050, 3.95);
  migrate.timeline.limits = {{fault.t0_ns, 0.5}};

  result.modes = {baseline, migrate};
  return result;
}

RunResult sample_result_with_dropped_faults() {
  RunResult result = sample_result();
  result.repeats = 5;
  ModeResult& migrate = result.modes[1];
  const FaultSample measured = migrate.faults[0];
  FaultSample dropped = measured;
  dropped.sampled = false;
  dropped.detected_by.clear();
  dropped.detected_ns = dropped.migrated_ns = dropped.recovered_ns = {};
  dropped.detect_ms = dropped.migrate_ms = dropped.recover_ms = dropped.blackout_ms = {};
  migrate.faults.clear();
  for (size_t i = 0; i < 5; ++i) {
    FaultSample& fault = migrate.faults.emplace_back(i == 1 || i == 4 ? measured : dropped);
    fault.repetition = i;
    fault.recovered_after_heal = i == 4;
    if (i == 4) fault.healed_ns = fault.t0_ns + 10'000'000;
    if (!fault.sampled)
      fault.why_not_sampled = i == 0 ? "no operation was open" : "no segment was in flight on the target";
    if (!fault.sampled) migrate.faults_dropped[fault.why_not_sampled]++;
  }
  migrate.faults_planned = migrate.faults_witnessed = 5;
  migrate.faults_sampled = 2;
  migrate.detected_by = {{"event", 2}};
  migrate.rounds.resize(5);
  migrate.rounds[1]["migrations"] = 2;
  migrate.faults_recovered_after_heal = 1;
  migrate.rounds_at_end = 2;
  migrate.rounds_not_fired = 3;
  for (Distribution* d : {&migrate.detect_ms, &migrate.migrate_ms, &migrate.recover_ms, &migrate.blackout_ms})
    d->n = 2;
  return result;
}

Scenario sample_beside_scenario() {
  Scenario scenario = sample_scenario();
  scenario.workload.iters = 192;
  for (Mode& mode : scenario.modes)
    if (mode.label == "migrate") mode.beside = {ModeKind::kBaseline, {}};
  return scenario;
}

RunResult sample_beside_result() {
  RunResult result = sample_result();
  ModeResult& migrate = result.modes[1];
  migrate.beside = {"baseline", 1};
  migrate.iteration_ms.clear();
  migrate.iteration_begin_ms.clear();
  const double fault_ms = double(migrate.faults[0].t0_ns - kStart) / 1e6;
  double now_ms = 0;
  for (uint64_t i = 0; i < 192; ++i) {
    const double cost = now_ms < fault_ms ? 2 : 1.02;
    migrate.iteration_begin_ms.push_back(now_ms);
    migrate.iteration_ms.push_back(Turns{1}.side(i) == 0 ? 30 * cost : 30);
    now_ms += migrate.iteration_ms.back();
  }
  return result;
}

}  // namespace r2bench
