// SPDX-License-Identifier: Apache-2.0
// Whole jobs over a net plugin that is none of ours (loopback TCP): what the workload computes, what it says
// of a plugin that misbehaves, and that nothing ever outlives the call.
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
namespace {

using namespace std::chrono_literals;

std::set<int> children() {
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

class Run : public testing::Test {
 protected:
  Run() {
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
    scenario_.timeouts.setup = 30s;
    scenario_.timeouts.stall = 10s;
    scenario_.timeouts.job = 60s;
    options_.fabric = "none";
    options_.out_dir = out_;
  }
  ~Run() override {
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
void expect_exact_together(const ModeResult& mode, uint64_t ranks, uint64_t operations, uint64_t together) {
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_TRUE(mode.correctness.exact());
  EXPECT_EQ(mode.correctness.checked_iterations, ranks * operations);
  EXPECT_EQ(mode.correctness.checked_elements, operations * together);
  EXPECT_EQ(mode.trace_lost, 0u);
}

/// `elements`: that each rank compares after one operation.
void expect_exact(const ModeResult& mode, uint64_t ranks, uint64_t operations, uint64_t elements) {
  expect_exact_together(mode, ranks, operations, ranks * elements);
}

TEST_F(Run, all_reduce_is_exact_over_every_version_of_the_interface) {
  for (int abi : {8, 9, 10, 11, 12}) {
    scenario_.workload.plugin_abi = abi;
    const ModeResult mode = run();
    expect_exact(mode, 2, 6, 1 << 18);
    EXPECT_EQ(mode.settings.at("plugin"), "testnet v" + std::to_string(abi));
    EXPECT_EQ(mode.row.iterations, 5u);
  }
}

TEST_F(Run, logs_are_named_relative_to_the_folder_and_lie_there) {
  scenario_.workload.plugin = "nonexistent";  // of which each rank has something to say
  const ModeResult mode = run();
  ASSERT_EQ(mode.ranks.size(), 2u);
  for (const RankResult& rank : mode.ranks) {
    EXPECT_EQ(rank.log_path, "logs/baseline-rank" + std::to_string(rank.rank) + ".log");
    EXPECT_TRUE(std::filesystem::is_regular_file(out_ + "/" + rank.log_path));
  }
}

TEST_F(Run, the_highest_version_is_taken_unless_told) {
  EXPECT_EQ(run().settings.at("plugin"), "testnet v12");
}

TEST_F(Run, all_reduce_is_exact_for_several_ranks_types_and_odd_sizes) {
  for (const auto& [nodes, per_node] : {std::pair{3, 1}, std::pair{2, 2}, std::pair{4, 1}}) {
    scenario_.fabric.nodes = nodes;
    scenario_.fabric.ranks_per_node = per_node;
    scenario_.workload.channels = nodes;  // more channels than NICs, as it happens
    for (DataType type :
         {DataType::kInt8, DataType::kInt32, DataType::kInt64, DataType::kFloat32, DataType::kFloat64}) {
      scenario_.workload.dtype = type;
      scenario_.workload.bytes = uint64_t(size_of(type)) * 100'003;
      expect_exact(run(), uint64_t(nodes * per_node), 6, 100'003);
    }
  }
}

TEST_F(Run, send_recv_is_exact_with_and_without_registered_user_buffers) {
  scenario_.workload.op = Operation::kSendRecv;
  for (int nodes : {2, 3})
    for (const char* registered : {"0", "1"}) {
      scenario_.fabric.nodes = nodes;
      scenario_.env["NCCL_LOCAL_REGISTER"] = registered;
      expect_exact(run(), uint64_t(nodes), 6, 1 << 18);
    }
}

TEST_F(Run, the_other_operations_are_exact_for_several_ranks_with_and_without_registered_user_buffers) {
  for (Operation op :
       {Operation::kAllGather, Operation::kReduceScatter, Operation::kBroadcast, Operation::kAllToAll})
    for (int ranks : {2, 3, 4})
      for (const char* registered : {"0", "1"}) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::to_string(ranks) + " registered " + registered);
        scenario_.workload.op = op;
        scenario_.workload.bytes = 12 * 30'011;
        scenario_.fabric.nodes = ranks;
        scenario_.env["NCCL_LOCAL_REGISTER"] = registered;
        const ModeResult mode = run();
        // What never travels is not counted: the root's, and a rank's own chunk.
        const uint64_t whole = 3 * 30'011, share = whole / uint64_t(ranks);
        const uint64_t together = op == Operation::kReduceScatter ? uint64_t(ranks) * share
                                  : op == Operation::kBroadcast   ? uint64_t(ranks - 1) * whole
                                                                  : uint64_t(ranks) * (whole - share);
        expect_exact_together(mode, uint64_t(ranks), 6, together);
        const double factor = op == Operation::kBroadcast ? 1 : double(ranks - 1) / ranks;
        EXPECT_NEAR(mode.row.busbw, mode.row.algbw * factor, 1e-9);
      }
}

TEST_F(Run, groups_of_local_ranks_are_exact_among_themselves) {
  scenario_.workload.groups = Groups::kLocalRank;
  scenario_.fabric.ranks_per_node = 2;
  for (Operation op : {Operation::kAllReduce, Operation::kSendRecv, Operation::kAllGather,
                       Operation::kReduceScatter, Operation::kBroadcast, Operation::kAllToAll})
    for (int nodes : {2, 3}) {
      SCOPED_TRACE(std::string(name(op)) + " " + std::to_string(nodes));
      scenario_.workload.op = op;
      scenario_.workload.bytes = 12 * 30'011;
      scenario_.fabric.nodes = nodes;
      const ModeResult mode = run();
      const uint64_t whole = 3 * 30'011, n = uint64_t(nodes), share = whole / n;
      const uint64_t group = op == Operation::kReduceScatter ? n * share
                             : op == Operation::kBroadcast   ? (n - 1) * whole
                             : in_chunks(op)                 ? n * (whole - share)
                                                             : n * whole;
      expect_exact_together(mode, 2 * n, 6, 2 * group);
      EXPECT_EQ(mode.row.iterations, 5u);
      const double ranks = nodes;
      const double factor = op == Operation::kAllReduce ? 2 * (ranks - 1) / ranks
                            : in_chunks(op)             ? (ranks - 1) / ranks
                                                        : 1;
      EXPECT_NEAR(mode.row.busbw, mode.row.algbw * factor, 1e-9);
    }
}

TEST_F(Run, one_changed_byte_in_one_group_is_seen) {
  scenario_.workload.groups = Groups::kLocalRank;
  scenario_.fabric.ranks_per_node = 2;
  scenario_.workload.op = Operation::kSendRecv;
  misbehave("corrupt:3:3");  // message 3 of each of its two channels
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_EQ(mode.correctness.wrong_elements, 2u);
  EXPECT_EQ(mode.correctness.lost + mode.correctness.duplicated, 0u);
}

/// A rank of one group is gone: the other group does not run on alone.
TEST_F(Run, groups_keep_in_step) {
  scenario_.workload.groups = Groups::kLocalRank;
  scenario_.fabric.ranks_per_node = 2;
  scenario_.workload.iters = 100'000;
  scenario_.rank_faults = {{"kill", RankFaultKind::kKill, 1, 0, 3, std::nullopt, 0ns}};
  const ModeResult mode = run();
  EXPECT_EQ(mode.faults_witnessed, 1u);
  uint64_t least = UINT64_MAX, most = 0;
  for (const RankResult& rank : mode.ranks) {
    least = std::min(least, rank.iterations);
    most = std::max(most, rank.iterations);
  }
  EXPECT_GE(least, 3u);
  EXPECT_LE(most, least + 1);
}

TEST_F(Run, ranks_are_told_where_they_are) {
  options_.fabric = "vhca";
  scenario_.fabric.ranks_per_node = 2;
  scenario_.fabric.nics_per_node = 2;
  scenario_.fabric.nic_rate_bits_per_s = 1'000'000'000;
  scenario_.fabric.topology = NodeTopology{"", 2, 1, 1, 5};
  scenario_.workload.channels = 1;
  scenario_.env["TESTNET_SHOW"] = "1";
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  for (int rank = 0; rank < 4; ++rank) {
    std::ifstream log(out_ + "/logs/baseline-rank" + std::to_string(rank) + ".log");
    const std::string text((std::istreambuf_iterator<char>(log)), {});
    const std::string node = std::to_string(rank % 2);
    for (const std::string& line :
         {"R2CC_MEMORY_NODE=" + node, "VHCA_MEMORY_NODE=" + node, std::string("R2CC_CROSS_SOCKET=5"),
          "R2CC_TOPOLOGY=" + std::filesystem::absolute(out_ + "/topology.xml").string()})
      EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << " is not in\n" << text;
  }
  std::ifstream file(out_ + "/topology.xml");
  const std::string xml((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(xml, topology_xml(scenario_.fabric));
}

TEST_F(Run, one_changed_byte_of_the_other_operations_is_seen) {
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

TEST_F(Run, a_plugin_that_is_often_busy_is_called_again) {
  scenario_.env["TESTNET_BUSY"] = "1";
  expect_exact(run(), 2, 6, 1 << 18);
}

TEST_F(Run, tiny_operations_have_empty_slices) {
  scenario_.workload.bytes = 4;
  expect_exact(run(), 2, 6, 1);
  scenario_.workload.op = Operation::kSendRecv;
  expect_exact(run(), 2, 6, 1);
}

TEST_F(Run, what_would_end_a_job_before_it_begins_is_told_before_anything_starts) {
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

TEST_F(Run, over_a_tcp_port_when_one_is_wanted) {
  options_.bootstrap_port = uint16_t(43000 + getpid() % 1000);
  expect_exact(run(), 2, 6, 1 << 18);
}

TEST_F(Run, one_changed_byte_is_one_wrong_element_of_a_send_recv) {
  scenario_.workload.op = Operation::kSendRecv;
  misbehave("corrupt:1:3");  // rank 1, message 3 of each of its two channels
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk);
  EXPECT_EQ(mode.correctness.wrong_elements, 2u);
  EXPECT_EQ(mode.correctness.lost + mode.correctness.duplicated, 0u);
  EXPECT_EQ(mode.row.wrong, 2u);
}

TEST_F(Run, a_changed_contribution_is_wrong_at_every_rank_that_got_it) {
  scenario_.fabric.nodes = 3;
  scenario_.workload.channels = 1;
  scenario_.workload.dtype = DataType::kInt32;  // a float's last bit may be rounded away by the next sum
  misbehave("corrupt:1:0");  // the first partial sum that rank 1 receives: it is reduced and goes everywhere
  EXPECT_EQ(run().correctness.wrong_elements, 3u);
}

TEST_F(Run, a_message_that_leaves_twice_is_counted_as_duplicated) {
  scenario_.workload.op = Operation::kSendRecv;
  scenario_.workload.channels = 1;
  misbehave("duplicate:0:4");
  const ModeResult mode = run();
  EXPECT_EQ(mode.correctness.duplicated, 1u);
  EXPECT_EQ(mode.correctness.lost, 0u);
  EXPECT_GT(mode.correctness.wrong_elements, 0u);
}

TEST_F(Run, a_message_that_never_leaves_is_counted_as_lost) {
  scenario_.workload.op = Operation::kSendRecv;
  scenario_.workload.channels = 1;
  scenario_.timeouts.stall = 2s;  // the last receive of the job waits for ever
  misbehave("drop:0:4");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kHang);
  EXPECT_EQ(mode.correctness.lost, 1u);
  EXPECT_EQ(mode.correctness.duplicated, 0u);
}

TEST_F(Run, an_error_of_the_plugin_ends_the_job_and_names_the_nic) {
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

TEST_F(Run, a_plugin_that_never_completes_is_a_hang_with_evidence) {
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

TEST_F(Run, a_plugin_call_that_never_returns_is_killed) {
  scenario_.timeouts.stall = 1s;
  misbehave("stuck:0:3");
  EXPECT_EQ(run().outcome, Outcome::kHang);
}

TEST_F(Run, a_rank_that_is_killed_ends_the_others) {
  misbehave("crash:1:3");
  const auto begin = std::chrono::steady_clock::now();
  const ModeResult mode = run();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  // Rank 0 may report its peer's end before the runner has seen the death; the death is named all the same.
  EXPECT_EQ(mode.outcome, Outcome::kKilled) << mode.error;
  EXPECT_NE(mode.error.find("node1/rank0 died of signal 9"), std::string::npos) << mode.error;
  EXPECT_EQ(mode.ranks.at(1).signal, SIGKILL);
}

TEST_F(Run, a_planned_kill_is_witnessed) {
  scenario_.workload.iters = 100'000;
  scenario_.rank_faults = {{"kill", RankFaultKind::kKill, 1, 0, 3, std::nullopt, 0ns}};
  const ModeResult mode = run();
  EXPECT_NE(mode.outcome, Outcome::kOk);
  EXPECT_EQ(mode.faults_witnessed, 1u);
  EXPECT_EQ(mode.ranks.at(1).signal, SIGKILL);
}

TEST_F(Run, a_stopped_rank_and_a_sleeping_receiver_are_no_failure) {
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

TEST_F(Run, repeats_keep_the_job_going_until_all_are_through) {
  scenario_.workload.iters = 10;
  scenario_.rank_faults = {{"stop", RankFaultKind::kSigstop, 1, 0, 3, std::nullopt, 50ms}};
  options_.repeats = 3;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_TRUE(mode.correctness.exact());
  EXPECT_EQ(mode.faults_witnessed, 3u);
  EXPECT_GT(mode.row.iterations, 10u);
}

TEST_F(Run, interleaved_pairs_give_an_overhead) {
  scenario_.modes = {{ModeKind::kBaseline, "baseline", {}}, {ModeKind::kMigrate, "migrate", {}}};
  scenario_.pairs = 3;
  std::atomic<bool> cancel{false};
  const RunResult result = run_scenario(scenario_, options_, cancel);
  ASSERT_EQ(result.modes.size(), 2u);
  EXPECT_EQ(result.jobs.size(), 6u);
  EXPECT_EQ(result.jobs[0].mode, "baseline");
  EXPECT_EQ(result.modes[0].row.iterations, 15u);
  ASSERT_EQ(result.overheads.size(), 1u);
  EXPECT_EQ(result.overheads[0].mode, "migrate");
  EXPECT_EQ(result.overheads[0].each_pct.size(), 3u);
}

TEST_F(Run, cancelling_ends_the_job_at_once) {
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

TEST_F(Run, a_plugin_that_forgets_a_property_is_told_so) {
  scenario_.env["TESTNET_UNSET"] = "1";
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("maxP2pBytes"), std::string::npos) << mode.error;
}

TEST_F(Run, a_missing_plugin_is_named) {
  scenario_.workload.plugin = "nonexistent";
  EXPECT_NE(run().error.find("libnccl-net-nonexistent.so"), std::string::npos);
}

TEST_F(Run, what_the_user_can_mend_is_a_usage_error) {
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

TEST_F(Run, nothing_is_left_in_shared_memory) {
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
