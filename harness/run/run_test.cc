// SPDX-License-Identifier: Apache-2.0
// What the workload computes, and how the runner repeats it.
#include "harness/run/testing/run_fixture.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

TEST_F(RunTest, all_reduce_is_exact_over_every_version_of_the_interface) {
  for (int abi : {8, 9, 10, 11, 12}) {
    scenario_.workload.plugin_abi = abi;
    const ModeResult mode = run();
    expect_exact(mode, 2, 6, 1 << 18);
    EXPECT_EQ(mode.settings.at("plugin"), "testnet v" + std::to_string(abi));
    EXPECT_EQ(mode.row.iterations, 5u);
  }
}

TEST_F(RunTest, logs_are_named_relative_to_the_folder_and_lie_there) {
  scenario_.workload.plugin = "nonexistent";  // of which each rank has something to say
  const ModeResult mode = run();
  ASSERT_EQ(mode.ranks.size(), 2u);
  for (const RankResult& rank : mode.ranks) {
    EXPECT_EQ(rank.log_path, "logs/baseline-rank" + std::to_string(rank.rank) + ".log");
    EXPECT_TRUE(std::filesystem::is_regular_file(out_ + "/" + rank.log_path));
  }
}

TEST_F(RunTest, the_highest_version_is_taken_unless_told) {
  EXPECT_EQ(run().settings.at("plugin"), "testnet v12");
}

TEST_F(RunTest, all_reduce_is_exact_for_several_ranks_types_and_odd_sizes) {
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

TEST_F(RunTest, send_recv_is_exact_with_and_without_registered_user_buffers) {
  scenario_.workload.op = Operation::kSendRecv;
  for (int nodes : {2, 3})
    for (const char* registered : {"0", "1"}) {
      scenario_.fabric.nodes = nodes;
      scenario_.env["NCCL_LOCAL_REGISTER"] = registered;
      expect_exact(run(), uint64_t(nodes), 6, 1 << 18);
    }
}

TEST_F(RunTest, the_other_operations_are_exact_for_several_ranks_with_and_without_registered_user_buffers) {
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

TEST_F(RunTest, groups_of_local_ranks_are_exact_among_themselves) {
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

/// A rank of one group is gone: the other group does not run on alone.
TEST_F(RunTest, groups_keep_in_step) {
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

TEST_F(RunTest, ranks_are_told_where_they_are) {
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

TEST_F(RunTest, a_plugin_that_is_often_busy_is_called_again) {
  scenario_.env["TESTNET_BUSY"] = "1";
  expect_exact(run(), 2, 6, 1 << 18);
}

TEST_F(RunTest, tiny_operations_have_empty_slices) {
  scenario_.workload.bytes = 4;
  expect_exact(run(), 2, 6, 1);
  scenario_.workload.op = Operation::kSendRecv;
  expect_exact(run(), 2, 6, 1);
}

TEST_F(RunTest, over_a_tcp_port_when_one_is_wanted) {
  // Below those that the kernel gives to whoever asks for any (ip_local_port_range).
  options_.bootstrap_port = uint16_t(20000 + getpid() % 10000);
  expect_exact(run(), 2, 6, 1 << 18);
}

TEST_F(RunTest, repeats_keep_the_job_going_until_all_are_through) {
  scenario_.workload.iters = 10;
  scenario_.rank_faults = {{"stop", RankFaultKind::kSigstop, 1, 0, 3, std::nullopt, 50ms}};
  options_.repeats = 3;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_TRUE(mode.correctness.exact());
  EXPECT_EQ(mode.faults_witnessed, 3u);
  EXPECT_GT(mode.row.iterations, 10u);
}

TEST_F(RunTest, interleaved_pairs_give_an_overhead) {
  scenario_.modes = {{ModeKind::kMigrate, "migrate", {}}, {ModeKind::kBaseline, "baseline", {}}};
  scenario_.pairs = 3;
  std::atomic<bool> cancel{false};
  const RunResult result = run_scenario(scenario_, options_, cancel);
  ASSERT_EQ(result.modes.size(), 2u);
  EXPECT_EQ(result.jobs.size(), 6u);
  EXPECT_EQ(result.jobs[0].mode, "migrate");
  EXPECT_EQ(result.modes[0].row.iterations, 15u);
  ASSERT_EQ(result.overheads.size(), 1u);
  EXPECT_EQ(result.overheads[0].mode, "migrate");
  EXPECT_EQ(result.overheads[0].against, "baseline");
  EXPECT_EQ(result.overheads[0].each_pct.size(), 3u);
}

}  // namespace
}  // namespace r2bench
