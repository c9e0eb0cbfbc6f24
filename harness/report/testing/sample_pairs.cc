// SPDX-License-Identifier: Apache-2.0
#include "harness/report/testing/sample_pairs.h"

#include "harness/judge/nccl_tests_row.h"
#include "harness/judge/pool.h"
#include "harness/measure/statistics.h"
#include "harness/scenario/load.h"

namespace r2bench {
namespace {

constexpr size_t kPairs = 3;

/// Of 4 operations, the first one slower.
ModeResult job(const Scenario& scenario, const std::string& mode, double operation_ms, double cpu_s) {
  ModeResult job;
  job.mode = mode;
  job.r2cc_mode = mode == "baseline" ? 0 : 1;
  job.duration_s = 1.5;
  job.iteration_ms = {operation_ms + 3, operation_ms - 1, operation_ms - 1, operation_ms - 1};
  job.iteration_begin_ms = {0, 100, 200, 300};
  job.row = nccl_tests_row(scenario.workload, scenario.fabric.ranks(), job.iteration_ms);
  job.correctness.checked_iterations = 2 * (4 + 2);
  job.correctness.checked_elements = job.correctness.checked_iterations * job.row.count;
  job.correctness.messages = 96;
  job.wakeup_ms = {1000, 0.06, 0.21, 0.84, 3.2};
  job.wakeup_p99_ms = 0.84;
  job.throughput.before_gbps = 15;
  job.restored.why_not = "there was no fault";
  job.cpu = {cpu_s, 4 * 2 * double(scenario.workload.bytes) / 1e9};
  job.rounds = {{{"migrations", 0}, {"failbacks", 0}, {"peer_slow", 0}}};
  job.settings = {{"R2CC_MODE", std::to_string(job.r2cc_mode)}, {"plugin", "R2CCL v12"}};
  for (int r = 0; r < 2; ++r) {
    RankResult& rank = job.ranks.emplace_back();
    rank.rank = rank.node = r;
    rank.label = "node" + std::to_string(r) + "/rank0";
    rank.iterations = 4;
    rank.cpu_s = cpu_s / 2;
    rank.log_path = "logs/" + mode + "-pair0-rank" + std::to_string(r) + ".log";
  }
  return job;
}

}  // namespace

Scenario sample_pairs_scenario() {
  return parse_scenarios("scenarios/no_fault.yaml", R"(version: 1
name: no_fault
description: The cost of resilience without a fault.
seed: 42
fabric: {nodes: 2, nics_per_node: 2, nic_rate: unlimited}
workload: {bytes: 16 MiB, iters: 4, warmup: 2}
modes: [baseline, migrate]
pairs: 3
expect:
  all: {correctness: exact, migrations: 0}
  migrate: {busbw_loss_pct: "<= 8 %"}
)")[0];
}

RunResult sample_pairs_result() {
  const Scenario scenario = sample_pairs_scenario();
  RunResult result;
  result.scenario = scenario.name;
  result.source = "scenarios/no_fault.yaml";
  result.seed = 42;
  result.evidence = "emulated";
  result.started_at = "2026-01-02T03:04:05Z";
  result.environment = {{"kernel", "6.1.0"}, {"plugin", "R2CCL v12"}};
  std::vector<double> times[2], cpu[2];
  std::vector<ModeResult> jobs[2];
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const double slower = 1 + 0.01 * double(pair + 1), dearer = 1.05 + 0.01 * double(pair);
    jobs[0].push_back(job(scenario, "baseline", 50 + double(pair), 0.5));
    jobs[1].push_back(job(scenario, "migrate", (50 + double(pair)) * slower, 0.5 * dearer));
    for (int mode = 0; mode < 2; ++mode) {
      times[mode].push_back(jobs[mode].back().row.time_us);
      cpu[mode].push_back(jobs[mode].back().cpu.per_gb());
      result.jobs.push_back(jobs[mode].back());
    }
  }
  for (const auto& of_mode : jobs) result.modes.push_back(pool({&of_mode[0], &of_mode[1], &of_mode[2]}));
  Overhead overhead = paired_overhead(times[1], times[0]);
  add_cpu_loss(overhead, cpu[1], cpu[0]);
  overhead.mode = "migrate";
  overhead.against = "baseline";
  result.overheads = {overhead};
  return result;
}

}  // namespace r2bench
