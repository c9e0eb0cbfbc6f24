// SPDX-License-Identifier: Apache-2.0
// A plugin that keeps the cores busy (harness/workload/cpu/testing/busy_plugin.cc) neither loosens the bounds
// that it is held against, nor does its rate pass as one that the NICs limited.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "harness/judge/held_up.h"
#include "harness/judge/verdict.h"
#include "harness/run/runner.h"
#include "harness/scenario/load.h"

namespace r2bench {
namespace {

/// This process, and what it starts, on two cores: so the threads of the plugin are in the way on any
/// machine.
void use_two_cores() {
  cpu_set_t all, two;
  CPU_ZERO(&two);
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &two);
  ASSERT_EQ(sched_setaffinity(0, sizeof(two), &two), 0);
}

class BusyPlugin : public testing::Test {
 protected:
  BusyPlugin() : out_(testing::TempDir() + "r2bench_busy_" + std::to_string(getpid())) {
    std::filesystem::create_directories(out_);
    scenario_ = parse_scenarios("busy.yaml", R"(version: 1
name: busy
description: A NIC loses its link while the plugin keeps the cores busy.
fabric: {nodes: 2, nics_per_node: 2, nic_rate: 1 Gbit/s}
workload: {bytes: 4 MiB, iters: 40, warmup: 2}
modes: [migrate]
faults: [{at: {iter: 10}, target: node1/nic0, kind: port_down}]
expect: {migrate: {recover_ms.max: "<= floor + wakeup + 50 ms", retained_bw: ">= 0.9 * limit"}}
)")[0];
    scenario_.workload.plugin = BUSY_PLUGIN;
    options_.fabric = "vhca";
    options_.out_dir = out_;
  }
  ~BusyPlugin() override { std::filesystem::remove_all(out_); }

  std::string out_;
  Scenario scenario_;
  RunOptions options_;
};

TEST_F(BusyPlugin, loosens_no_bound_and_its_rate_is_doubted) {
  use_two_cores();
  std::atomic<bool> cancel{false};
  const RunResult result = run_scenario(scenario_, options_, cancel);
  const ModeResult& mode = result.modes.at(0);
  ASSERT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  ASSERT_EQ(mode.faults_witnessed, 1u);
  const Judged judged = judge(scenario_, result);
  const auto of = [&](const std::string& name) {
    return *std::find_if(judged.expectations.begin(), judged.expectations.end(),
                         [&](const Judgement& j) { return j.name() == name; });
  };

  // The wake-up latency is the runner's own, and what it adds to a bound ends somewhere.
  EXPECT_GT(mode.wakeup_ms.n, 0u);
  EXPECT_DOUBLE_EQ(mode.wakeup_p99_ms, std::min(mode.wakeup_ms.p99, kWakeupCapMs));
  const Judgement recovery = of("migrate.recover_ms.max");
  ASSERT_TRUE(recovery.wanted_value);
  EXPECT_LE(*recovery.wanted_value, mode.floor_ms + kWakeupCapMs + 50);

  // The cores limited the rate, not the ports: that it is kept with half of the ports proves nothing.
  const Throughput& rates = mode.throughput;
  EXPECT_GT(rates.ports_gbps, 0);
  EXPECT_NE(held_up_at_faults(rates), "")
      << rates.before_gbps << " of " << rates.ports_gbps << " Gbit/s before, " << rates.retained << " of "
      << rates.limit << " retained";
  EXPECT_NE(of("migrate.retained_bw").verdict, Verdict::kPass) << of("migrate.retained_bw").got;
  EXPECT_NE(judged.verdict, Verdict::kPass);
}

// The ranks are stopped for 100 of 120 ms, so that they wake late; the runner is not.
TEST_F(BusyPlugin, wakeup_latency_is_the_runners_and_not_that_of_the_processes_that_load_the_plugin) {
  scenario_.workload.iters = 20;
  scenario_.env["BUSYNET_THREADS"] = "0";
  scenario_.env["BUSYNET_STOP_MS"] = "100";
  scenario_.env["BUSYNET_WAKEUP"] = out_ + "/wakeup";
  std::atomic<bool> cancel{false};
  const RunResult result = run_scenario(scenario_, options_, cancel);
  const ModeResult& mode = result.modes.at(0);
  ASSERT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  size_t processes = 0;
  for (const auto& file : std::filesystem::directory_iterator(out_)) {
    if (file.path().stem() != "wakeup") continue;
    double of_rank_ms = 0;
    ASSERT_TRUE(std::ifstream(file.path()) >> of_rank_ms) << file.path();
    ++processes;
    EXPECT_GE(of_rank_ms, 90) << "or it was not stopped";
    EXPECT_LT(mode.wakeup_ms.p99, of_rank_ms / 2) << "p99, of " << mode.wakeup_ms.n << " ticks";
  }
  EXPECT_EQ(processes, 2u) << "the ranks of two nodes";
  EXPECT_GT(mode.wakeup_ms.n, 0u);
}

}  // namespace
}  // namespace r2bench
