// SPDX-License-Identifier: Apache-2.0
// What is said of data that is wrong, of a plugin that misbehaves, of ranks that die, and of what the user
// can mend; and that nothing ever outlives the call.
#include "harness/run/testing/run_fixture.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

TEST_F(RunTest, one_changed_byte_in_one_group_is_seen) {
  scenario_.workload.groups = Groups::kLocalRank;
  scenario_.fabric.ranks_per_node = 2;
  scenario_.workload.op = Operation::kSendRecv;
  misbehave("corrupt:3:3");  // message 3 of each of its two channels
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_EQ(mode.correctness.wrong_elements, 2u);
  EXPECT_EQ(mode.correctness.lost + mode.correctness.duplicated, 0u);
}

TEST_F(RunTest, one_changed_byte_of_the_other_operations_is_seen) {
  scenario_.fabric.nodes = 3;
  scenario_.workload.bytes = 3 << 18;
  scenario_.workload.channels = 1;
  scenario_.workload.dtype = DataType::kInt32;
  for (Operation op :
       {Operation::kAllGather, Operation::kReduceScatter, Operation::kBroadcast, Operation::kAllToAll}) {
    SCOPED_TRACE(name(op));
    scenario_.workload.op = op;
    misbehave("corrupt:1:0");
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kOk);
    EXPECT_GE(mode.correctness.wrong_elements, 1u);
    EXPECT_LE(mode.correctness.wrong_elements, 3u);
  }
}

TEST_F(RunTest, what_would_end_a_job_before_it_begins_is_told_before_anything_starts) {
  const auto refused = [this](const char* words) {
    try {
      run();
      ADD_FAILURE() << "it ran; wanted: " << words;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  const Workload usual = scenario_.workload;
  scenario_.workload.bytes = uint64_t{1} << 44;
  refused("more than the");
  scenario_.workload = usual;
  scenario_.workload.plugin = "/nonexistent/plugin.so";
  refused("/nonexistent/plugin.so cannot be read: No such file or directory");
  scenario_.workload.plugin = Workload{}.plugin;
  scenario_.env["R2CC_PROBE_MS"] = "0";
  refused("R2CC_PROBE_MS='0' is not a whole number from 1 to 60000");
}

TEST_F(RunTest, one_changed_byte_is_one_wrong_element_of_a_send_recv) {
  scenario_.workload.op = Operation::kSendRecv;
  misbehave("corrupt:1:3");  // rank 1, message 3 of each of its two channels
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk);
  EXPECT_EQ(mode.correctness.wrong_elements, 2u);
  EXPECT_EQ(mode.correctness.lost + mode.correctness.duplicated, 0u);
  EXPECT_EQ(mode.row.wrong, 2u);
}

TEST_F(RunTest, a_changed_contribution_is_wrong_at_every_rank_that_got_it) {
  scenario_.fabric.nodes = 3;
  scenario_.workload.channels = 1;
  scenario_.workload.dtype = DataType::kInt32;  // a float's last bit may be rounded away by the next sum
  misbehave("corrupt:1:0");  // the first partial sum that rank 1 receives: it is reduced and goes everywhere
  EXPECT_EQ(run().correctness.wrong_elements, 3u);
}

TEST_F(RunTest, a_message_that_leaves_twice_is_counted_as_duplicated) {
  scenario_.workload.op = Operation::kSendRecv;
  scenario_.workload.channels = 1;
  misbehave("duplicate:0:4");
  const ModeResult mode = run();
  EXPECT_EQ(mode.correctness.duplicated, 1u);
  EXPECT_EQ(mode.correctness.lost, 0u);
  EXPECT_GT(mode.correctness.wrong_elements, 0u);
}

TEST_F(RunTest, a_message_that_never_leaves_is_counted_as_lost) {
  scenario_.workload.op = Operation::kSendRecv;
  scenario_.workload.channels = 1;
  scenario_.timeouts.stall = 2s;  // the last receive of the job waits for ever
  misbehave("drop:0:4");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kHang);
  EXPECT_EQ(mode.correctness.lost, 1u);
  EXPECT_EQ(mode.correctness.duplicated, 0u);
}

TEST_F(RunTest, an_error_of_the_plugin_ends_the_job_and_names_the_nic) {
  misbehave("error:1:5");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("testnet"), std::string::npos) << mode.error;
  EXPECT_NE(mode.error.find("; the plugin said: testnet0: told to fail"), std::string::npos)
      << "what it says when it is closed is not the reason: " << mode.error;
  EXPECT_NE(mode.error.find("node1/rank0"), std::string::npos) << mode.error;
  EXPECT_EQ(mode.ranks.at(1).outcome, Outcome::kError);
  ASSERT_FALSE(mode.ranks.at(1).warnings.empty());
}

TEST_F(RunTest, a_plugin_that_never_completes_is_a_hang_with_evidence) {
  scenario_.timeouts.stall = 1s;
  misbehave("hang:0:3");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kHang);
  EXPECT_NE(mode.error.find("nothing moved for 1000 ms"), std::string::npos) << mode.error;
  EXPECT_NE(mode.error.find("node0/rank0 has begun"), std::string::npos) << mode.error;
  const std::string path = "logs/baseline-hang.txt";
  EXPECT_NE(mode.error.find("more about each thread in " + path + " of the run's folder"), std::string::npos)
      << mode.error;
  std::ifstream file(out_ + "/" + path);
  std::stringstream evidence;
  evidence << file.rdbuf();
  EXPECT_NE(evidence.str().find("node1/rank0, pid "), std::string::npos) << evidence.str();
  EXPECT_NE(evidence.str().find("by its own will"), std::string::npos) << evidence.str();
}

TEST_F(RunTest, a_plugin_call_that_never_returns_is_killed) {
  scenario_.timeouts.stall = 1s;
  misbehave("stuck:0:3");
  EXPECT_EQ(run().outcome, Outcome::kHang);
}

TEST_F(RunTest, a_rank_that_is_killed_ends_the_others) {
  misbehave("crash:1:3");
  const auto begin = std::chrono::steady_clock::now();
  const ModeResult mode = run();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  // Rank 0 may report its peer's end before the runner has seen the death; the death is named all the same.
  EXPECT_EQ(mode.outcome, Outcome::kKilled) << mode.error;
  EXPECT_NE(mode.error.find("node1/rank0 died of signal 9"), std::string::npos) << mode.error;
  EXPECT_EQ(mode.ranks.at(1).signal, SIGKILL);
}

TEST_F(RunTest, a_signal_that_ends_a_rank_after_its_error_is_told) {
  misbehave("dies:1:3");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kKilled) << mode.error;
  EXPECT_NE(mode.error.find("node1/rank0 died of signal 10"), std::string::npos) << mode.error;
  EXPECT_NE(mode.error.find("; before: "), std::string::npos) << mode.error;
}

TEST_F(RunTest, a_planned_kill_is_witnessed) {
  scenario_.workload.iters = 100'000;
  scenario_.rank_faults = {{"kill", RankFaultKind::kKill, 1, 0, 3, std::nullopt, 0ns}};
  const ModeResult mode = run();
  EXPECT_NE(mode.outcome, Outcome::kOk);
  EXPECT_EQ(mode.faults_witnessed, 1u);
  EXPECT_EQ(mode.ranks.at(1).signal, SIGKILL);
}

TEST_F(RunTest, a_stopped_rank_and_a_sleeping_receiver_are_no_failure) {
  scenario_.workload.iters = 1000;  // the runner, too, must find time to act before the job is over
  scenario_.timeouts.stall = 1s;    // less than the pauses: they are ours, so they are no stall
  scenario_.rank_faults = {{"stop", RankFaultKind::kSigstop, 1, 0, 3, std::nullopt, 1500ms},
                           {"sleep", RankFaultKind::kReceiverSleep, 0, 0, 10, std::nullopt, 1500ms}};
  const ModeResult mode = run();
  expect_exact(mode, 2, 1001, 1 << 18);
  EXPECT_EQ(mode.faults_planned, 2u);
  EXPECT_EQ(mode.faults_witnessed, 2u);
  for (const FaultSample& fault : mode.faults) {
    ASSERT_TRUE(fault.healed_ns);
    EXPECT_GE(*fault.healed_ns - fault.t0_ns, 1'500'000'000u);
  }
}

TEST_F(RunTest, cancelling_ends_the_job_at_once) {
  scenario_.workload.iters = 1'000'000;
  std::atomic<bool> cancel{false};
  std::chrono::steady_clock::time_point when;
  options_.progress = [&](const Progress& progress) {
    if (progress.iteration < 10 || cancel) return;
    cancel = true;
    when = std::chrono::steady_clock::now();
  };
  const RunResult result = run_scenario(scenario_, options_, cancel);
  EXPECT_LT(std::chrono::steady_clock::now() - when, 10s);
  EXPECT_TRUE(result.cancelled);
  EXPECT_EQ(result.modes.at(0).outcome, Outcome::kCancelled);
}

TEST_F(RunTest, a_plugin_that_forgets_a_property_is_told_so) {
  scenario_.env["TESTNET_UNSET"] = "1";
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("maxP2pBytes"), std::string::npos) << mode.error;
}

TEST_F(RunTest, a_missing_plugin_is_named) {
  scenario_.workload.plugin = "nonexistent";
  EXPECT_NE(run().error.find("libnccl-net-nonexistent.so"), std::string::npos);
}

TEST_F(RunTest, what_the_user_can_mend_is_a_usage_error) {
  std::atomic<bool> cancel{false};
  options_.modes = {"unheard-of"};
  EXPECT_THROW(run_scenario(scenario_, options_, cancel), UsageError);
  options_.modes.clear();
  options_.fabric = "rxe";
  EXPECT_THROW(run_scenario(scenario_, options_, cancel), UsageError);
  options_.fabric = "none";
  scenario_.fabric.topology.emplace();
  EXPECT_THROW(run_scenario(scenario_, options_, cancel), UsageError);
  scenario_.fabric.topology.reset();
  options_.out_dir = "/proc/nowhere";
  EXPECT_THROW(run_scenario(scenario_, options_, cancel), UsageError);
}

TEST_F(RunTest, nothing_is_left_in_shared_memory) {
  const auto list = [] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
    return names;
  };
  const auto before = list();
  run();
  EXPECT_EQ(list(), before);
}

}  // namespace
}  // namespace r2bench
