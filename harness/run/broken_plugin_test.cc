// SPDX-License-Identifier: Apache-2.0
// What becomes of data that a broken net plugin delivers (harness/workload/cpu/testing/testnet): stale,
// shifted, corrupted, dropped or duplicated, through the net or through CollNet. The verdict is fail, and the
// expectations that are not met say what it was.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "harness/judge/verdict.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

struct Breakage {
  const char* fault;
  std::set<std::string> not_met;
};

void PrintTo(const Breakage& breakage, std::ostream* out) { *out << breakage.fault; }

class Plugin : public testing::Test {
 protected:
  Plugin() : out_(testing::TempDir() + "r2bench_broken_" + std::to_string(getpid())) {
    std::filesystem::create_directories(out_);
    scenario_.name = "broken";
    scenario_.fabric.nodes = 3;
    scenario_.fabric.nics_per_node = 1;
    scenario_.workload.plugin = TESTNET_PLUGIN;
    scenario_.workload.bytes = 12 << 18;
    scenario_.workload.channels = 1;
    scenario_.workload.iters = 4;
    scenario_.workload.warmup = 1;
    scenario_.modes = {{ModeKind::kBaseline, "baseline", {}}};
    scenario_.timeouts.setup = 30s;
    scenario_.timeouts.stall = 2s;  // what is dropped is waited for at the end of the job
    scenario_.timeouts.job = 60s;
    for (const char* metric : {"outcome", "correctness", "wrong_elements", "duplicated", "lost"}) {
      const std::string wanted = metric == std::string("outcome")       ? "ok"
                                 : metric == std::string("correctness") ? "exact"
                                                                        : "0";
      scenario_.expectations.push_back(
          {"all", metric, wanted, 1, 1, parse_condition(*find_metric(metric), wanted)});
    }
    options_.fabric = "none";
    options_.out_dir = out_;
  }
  ~Plugin() override { std::filesystem::remove_all(out_); }

  RunResult run() {
    std::atomic<bool> cancel{false};
    return run_scenario(scenario_, options_, cancel);
  }

  std::set<std::string> metrics_with(Verdict verdict, const RunResult& result) {
    std::set<std::string> metrics;
    for (const Judgement& j : judge(scenario_, result).expectations)
      if (j.verdict == verdict) metrics.insert(j.metric);
    return metrics;
  }

  /// The metrics whose expectation is not met; the verdict is fail.
  std::set<std::string> not_met(const RunResult& result) {
    EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kFail);
    return metrics_with(Verdict::kFail, result);
  }

  std::string out_;
  Scenario scenario_;
  RunOptions options_;
};

class BrokenPlugin : public Plugin, public testing::WithParamInterface<std::tuple<Operation, Breakage>> {};
class WholePlugin : public Plugin, public testing::WithParamInterface<Operation> {};

TEST_P(BrokenPlugin, fails_and_the_metric_says_how) {
  const auto& [op, breakage] = GetParam();
  scenario_.workload.op = op;
  // In the middle of the first counted operation, behind the one of the warm-up: so many messages on each
  // connection.
  const int messages = op == Operation::kSendRecv                                  ? 24
                       : op == Operation::kAllReduce || op == Operation::kAllToAll ? 8
                                                                                   : 4;
  scenario_.env["TESTNET_FAULT"] =
      std::string(breakage.fault) + ":1:" + std::to_string(messages + messages / 2);
  if (breakage.not_met.contains("outcome")) scenario_.timeouts.stall = 1s;  // this job ends by it
  const RunResult result = run();
  EXPECT_EQ(not_met(result), breakage.not_met);
  // One message was struck, on one connection of each pair of ranks.
  const Correctness& found = result.modes.at(0).correctness;
  const uint64_t connections = op == Operation::kAllToAll ? 2 : 1;
  EXPECT_EQ(found.duplicated, breakage.not_met.contains("duplicated") ? connections : 0);
  EXPECT_EQ(found.lost, breakage.not_met.contains("lost") ? connections : 0);
}

TEST_P(WholePlugin, passes) {
  scenario_.workload.op = GetParam();
  const RunResult result = run();
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kPass);
  EXPECT_GT(result.modes.at(0).correctness.messages, 0u);
}

/// The same where the plugin itself adds the data up: nothing is known of its messages, only what came out.
class CollNetPlugin : public Plugin {
 protected:
  CollNetPlugin() {
    scenario_.modes = {{ModeKind::kAllReduce, "allreduce", {}}};
    scenario_.workload.collnet = CollNet::kForce;
  }
  /// Every operation has taken that way.
  static void expect_through_coll(const RunResult& result) {
    EXPECT_EQ(result.modes.at(0).settings.at("plugin"), "testnet v12, 5 operations through CollNet");
  }
};
class BrokenCollNet : public CollNetPlugin, public testing::WithParamInterface<const char*> {};

TEST_F(CollNetPlugin, passes_when_it_is_whole_but_for_what_is_stored_twice_which_no_element_shows) {
  const RunResult result = run();
  expect_through_coll(result);
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kUnknown);
  EXPECT_EQ(metrics_with(Verdict::kUnknown, result), (std::set<std::string>{"duplicated"}));
  EXPECT_EQ(metrics_with(Verdict::kFail, result), (std::set<std::string>{}));
  EXPECT_EQ(result.modes.at(0).correctness.messages, 0u);
}

TEST_P(BrokenCollNet, fails_and_its_elements_are_wrong) {
  scenario_.env["TESTNET_FAULT"] = std::string(GetParam()) + ":1:8";  // of 6 pieces in each operation
  const RunResult result = run();
  expect_through_coll(result);
  EXPECT_EQ(not_met(result), (std::set<std::string>{"correctness", "wrong_elements"}));
  EXPECT_EQ(metrics_with(Verdict::kUnknown, result), (std::set<std::string>{"duplicated", "lost"}));
  const uint64_t wrong = result.modes.at(0).correctness.wrong_elements, piece = (512 << 10) / 4;
  if (GetParam() == std::string("corrupt"))
    EXPECT_EQ(wrong, 1u);
  else
    EXPECT_GT(wrong, piece * 99 / 100) << "of " << piece;
}

INSTANTIATE_TEST_SUITE_P(Faults, BrokenCollNet,
                         testing::Values("stale", "shift", "corrupt", "drop", "duplicate"),
                         [](const auto& param) { return std::string(param.param); });

INSTANTIATE_TEST_SUITE_P(Operations, WholePlugin,
                         testing::Values(Operation::kAllReduce, Operation::kSendRecv, Operation::kAllToAll,
                                         Operation::kAllGather, Operation::kReduceScatter,
                                         Operation::kBroadcast),
                         [](const auto& param) { return std::string(name(param.param)); });

INSTANTIATE_TEST_SUITE_P(
    OperationsAndFaults, BrokenPlugin,
    testing::Combine(testing::Values(Operation::kAllReduce, Operation::kSendRecv, Operation::kAllToAll,
                                     Operation::kAllGather, Operation::kReduceScatter, Operation::kBroadcast),
                     testing::Values(Breakage{"stale",
                                              {"correctness", "wrong_elements", "duplicated", "lost"}},
                                     Breakage{"shift", {"correctness", "wrong_elements"}},
                                     Breakage{"corrupt", {"correctness", "wrong_elements"}},
                                     Breakage{"drop", {"outcome", "correctness", "wrong_elements", "lost"}},
                                     Breakage{"duplicate", {"correctness", "wrong_elements", "duplicated"}})),
    [](const auto& param) {
      return std::string(name(std::get<0>(param.param))) + "_" + std::get<1>(param.param).fault;
    });

}  // namespace
}  // namespace r2bench
