// SPDX-License-Identifier: Apache-2.0
// Whole jobs over a net plugin that is none of ours (loopback TCP). No process outlives a test.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "harness/fabric/topology_xml.h"
#include "harness/run/runner.h"

namespace r2bench {

inline std::set<int> children() {
  std::set<int> result;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const int pid = atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t end = text.rfind(')');
    int parent = 0;
    char state = 0;
    if (end != std::string::npos && sscanf(text.c_str() + end + 1, " %c %d", &state, &parent) == 2 &&
        parent == getpid())
      result.insert(pid);
  }
  closedir(proc);
  return result;
}

class RunTest : public testing::Test {
 protected:
  RunTest() {
    out_ = testing::TempDir() + "r2bench_run_" + std::to_string(getpid());
    std::filesystem::create_directories(out_);
    scenario_.name = "test";
    scenario_.fabric.nodes = 2;
    scenario_.fabric.nics_per_node = 2;
    scenario_.workload.plugin = TESTNET_PLUGIN;
    scenario_.workload.bytes = 1 << 20;
    scenario_.workload.iters = 5;
    scenario_.workload.warmup = 1;
    scenario_.modes = {{ModeKind::kBaseline, "baseline", {}}};
    scenario_.timeouts.setup = std::chrono::seconds(30);
    scenario_.timeouts.stall = std::chrono::seconds(10);
    scenario_.timeouts.job = std::chrono::seconds(60);
    options_.fabric = "none";
    options_.out_dir = out_;
  }
  ~RunTest() override {
    EXPECT_TRUE(children().empty()) << "a process was left behind";
    std::filesystem::remove_all(out_);
  }

  ModeResult run() {
    std::atomic<bool> cancel{false};
    return run_scenario(scenario_, options_, cancel).modes.at(0);
  }
  void misbehave(const std::string& how) { scenario_.env["TESTNET_FAULT"] = how; }

  std::string out_;
  Scenario scenario_;
  RunOptions options_;
};

/// `together`: elements that all ranks compare after one operation.
inline void expect_exact_together(const ModeResult& mode, uint64_t ranks, uint64_t operations,
                                  uint64_t together) {
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_TRUE(mode.correctness.exact());
  EXPECT_EQ(mode.correctness.checked_iterations, ranks * operations);
  EXPECT_EQ(mode.correctness.checked_elements, operations * together);
  EXPECT_EQ(mode.trace_lost, 0u);
}

/// `elements`: that each rank compares after one operation.
inline void expect_exact(const ModeResult& mode, uint64_t ranks, uint64_t operations, uint64_t elements) {
  expect_exact_together(mode, ranks, operations, ranks * elements);
}

}  // namespace r2bench
