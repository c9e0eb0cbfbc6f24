// SPDX-License-Identifier: Apache-2.0
// Whole jobs of the engine nccl on stand-ins for CUDA and NCCL: the runner, the rank program and its kernels'
// formulas are the real ones. What the operations compute, what is said of errors, and that nothing outlives
// a job.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "harness/run/runner.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kIters = 4, kWarmup = 1;

class NcclJob : public testing::Test {
 protected:
  NcclJob() : out_(testing::TempDir() + "r2bench_nccl_" + std::to_string(getpid())) {
    fs::create_directories(out_);
    setenv("LD_LIBRARY_PATH", STANDIN_FOLDER, 1);
    scenario_.name = "test";
    scenario_.fabric.nodes = 3;
    scenario_.fabric.nics_per_node = 1;
    scenario_.workload.engine = Engine::kNccl;
    scenario_.workload.nccl.library = STANDIN_FOLDER "/libnccl.so.2";
    scenario_.workload.bytes = 3 * 4 * 4096;
    scenario_.workload.iters = kIters;
    scenario_.workload.warmup = kWarmup;
    scenario_.modes = {{ModeKind::kMigrate, "migrate", {}, std::nullopt}};
    scenario_.timeouts.setup = 60s;
    scenario_.timeouts.stall = 20s;
    scenario_.timeouts.job = 120s;
    options_.fabric = "none";
    options_.out_dir = out_;
  }
  ~NcclJob() override { fs::remove_all(out_); }

  ModeResult run() {
    std::atomic<bool> cancel{false};
    result_ = run_scenario(scenario_, options_, cancel);
    return result_.modes.at(0);
  }
  void misbehave(const std::string& how) { scenario_.env["STANDIN_NCCL_FAULT"] = how; }
  void expect_exact() {
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    EXPECT_TRUE(mode.correctness.exact()) << mode.correctness.wrong_elements << " wrong";
    EXPECT_GT(mode.correctness.checked_elements, 0u);
    EXPECT_EQ(mode.correctness.checked_iterations, 3u * (kIters + kWarmup));
    EXPECT_EQ(mode.row.iterations, uint64_t(kIters));
  }
  void expect_wrong(uint64_t elements) {
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    EXPECT_EQ(mode.correctness.wrong_elements, elements);
  }

  std::string out_;
  Scenario scenario_;
  RunOptions options_;
  RunResult result_;
};

constexpr Operation kAll[] = {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
                              Operation::kBroadcast, Operation::kAllToAll,  Operation::kSendRecv};

TEST_F(NcclJob, every_operation_is_exact_and_a_corrupted_element_of_each_is_found) {
  for (const Operation op : kAll) {
    SCOPED_TRACE(name(op));
    scenario_.workload.op = op;
    scenario_.env.clear();
    expect_exact();
    misbehave("corrupt@2");
    expect_wrong(1);
  }
}

TEST_F(NcclJob, operations_in_place_are_exact_and_a_corrupted_element_of_each_is_found) {
  scenario_.workload.in_place = true;
  for (const Operation op :
       {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter, Operation::kBroadcast}) {
    SCOPED_TRACE(name(op));
    scenario_.workload.op = op;
    scenario_.env.clear();
    expect_exact();
    misbehave("corrupt@2");
    expect_wrong(1);
  }
}

TEST_F(NcclJob, graphs_communicators_and_groups_are_exact_and_told_apart) {
  scenario_.workload.nccl.communicators = 2;
  scenario_.workload.nccl.group_calls = 2;
  for (const bool graph : {false, true})
    for (const Operation op : {Operation::kAllReduce, Operation::kAllToAll}) {
      SCOPED_TRACE(std::string(name(op)) + (graph ? " from a graph" : ""));
      scenario_.workload.nccl.graph = graph;
      scenario_.workload.op = op;
      expect_exact();
    }
  misbehave("corrupt@2");
  expect_wrong(2);  // one of each communicator
}

TEST_F(NcclJob, buffers_are_registered_with_each_communicator_until_it_is_destroyed) {
  scenario_.workload.nccl.registers = true;
  scenario_.workload.nccl.communicators = 2;
  scenario_.env["STANDIN_NCCL_STRICT"] = "1";
  for (const Operation op : kAll) {
    SCOPED_TRACE(name(op));
    scenario_.workload.op = op;
    expect_exact();
  }
  scenario_.workload.op = Operation::kAllReduce;
  scenario_.workload.in_place = true;
  expect_exact();
  scenario_.workload.nccl.registers = false;
  EXPECT_EQ(run().outcome, Outcome::kKilled) << "the stand-in takes buffers that are not registered";
}

TEST_F(NcclJob, calls_on_nonblocking_communicators_are_waited_for) {
  scenario_.workload.nccl.blocking = false;
  scenario_.workload.nccl.registers = true;
  for (const int calls : {1, 2})
    for (const Operation op : kAll) {
      SCOPED_TRACE(std::string(name(op)) + ", " + std::to_string(calls) + " calls in a group");
      scenario_.workload.op = op;
      scenario_.workload.nccl.group_calls = calls;
      scenario_.workload.nccl.communicators = calls;
      scenario_.env.clear();
      expect_exact();
      misbehave("corrupt@2");
      EXPECT_GT(run().correctness.wrong_elements, 0u);
    }
}

TEST_F(NcclJob, what_a_nonblocking_communicator_says_later_ends_the_job) {
  scenario_.workload.nccl.blocking = false;
  for (const char* fault : {"async@3", "refuse@3"}) {
    SCOPED_TRACE(fault);
    misbehave(fault);
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kError);
    for (const RankResult& rank : mode.ranks) EXPECT_EQ(rank.signal, 0) << rank.label << " had to be killed";
  }
  scenario_.timeouts.stall = 2s;
  misbehave("hang@3");
  EXPECT_EQ(run().outcome, Outcome::kHang);
}

TEST_F(NcclJob, two_transports_take_turns_of_four_operations_each_on_communicators_of_their_own) {
  scenario_.workload.warmup = 8;
  scenario_.workload.iters = 12;  // 0000 1111 1111 of the first two sets
  scenario_.modes[0].transport = Transport::kPluginBesideIb;
  misbehave("corrupt@8");
  for (const auto& [network, ninths] :
       {std::pair{"R2CCL", 0u}, std::pair{"IB", 1u}}) {  // its first set: whether it gets to its ninth
    SCOPED_TRACE(network);
    scenario_.env["STANDIN_NCCL_NETWORK"] = network;
    expect_wrong(ninths);
    EXPECT_EQ(result_.modes.at(0).correctness.checked_iterations, 3u * 20);
    EXPECT_EQ(result_.modes.at(0).row.iterations, 12u);
    for (const RankResult& rank : result_.modes.at(0).ranks) {
      ASSERT_EQ(rank.cpu_by_side_s.size(), 2u);
      EXPECT_LE(rank.cpu_by_side_s[0] + rank.cpu_by_side_s[1], rank.cpu_s);
      EXPECT_GT(rank.cpu_by_side_s[0], 0);
      EXPECT_GT(rank.cpu_by_side_s[1], 0);
    }
  }
  scenario_.modes[0] = {ModeKind::kBaseline, "ib", {}, Transport::kIbBesideIb};
  expect_wrong(1);  // all are IB's, and the second set has a ninth
}

TEST_F(NcclJob, reductions_and_types_are_exact_as_nccl_scales_them) {
  const std::pair<DataType, Reduction> cases[] = {
      {DataType::kFloat32, Reduction::kAvg},     {DataType::kInt32, Reduction::kAvg},
      {DataType::kFloat16, Reduction::kAvg},     {DataType::kBfloat16, Reduction::kPremulSum},
      {DataType::kUint8, Reduction::kPremulSum}, {DataType::kFloat64, Reduction::kProd},
      {DataType::kFloat8e4m3, Reduction::kSum},  {DataType::kInt8, Reduction::kMin},
      {DataType::kUint64, Reduction::kMax},
  };
  for (const auto& [type, reduction] : cases) {
    SCOPED_TRACE(std::string(name(type)) + " " + name(reduction));
    scenario_.workload.dtype = type;
    scenario_.workload.reduction = reduction;
    expect_exact();
  }
}

TEST_F(NcclJob, ranks_of_a_node_keep_to_their_group) {
  setenv("STANDIN_CUDA_GPUS", "2", 1);
  scenario_.fabric.ranks_per_node = 2;
  scenario_.workload.groups = Groups::kLocalRank;
  const ModeResult mode = run();
  unsetenv("STANDIN_CUDA_GPUS");
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_TRUE(mode.correctness.exact());
  EXPECT_EQ(mode.correctness.checked_iterations, 6u * (kIters + kWarmup));
}

TEST_F(NcclJob, the_result_says_on_what_it_ran) {
  scenario_.modes = {{ModeKind::kBaseline, "ib", {}, Transport::kIbFailover}};
  options_.fabric = "vhca";
  expect_exact();
  EXPECT_EQ(result_.environment.at("nccl"), "2.28.3");
  EXPECT_EQ(result_.environment.at("gpu"), "1 × stand-in, compute capability 9.0");
  EXPECT_EQ(result_.environment.at("plugin"), "IB transport of NCCL 2.28.3 with its failover and recovery");
}

TEST_F(NcclJob, a_call_that_nccl_refuses_ends_the_job_with_its_words) {
  misbehave("refuse@3");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_EQ(mode.error,
            "ncclAllReduce failed: unhandled system error (2); NCCL's last words: stand-in: the network of "
            "nic 3 is gone");
}

TEST_F(NcclJob, an_asynchronous_error_ends_kernels_that_spin) {
  misbehave("async@3");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("NCCL reports an asynchronous error: remote process exited"), std::string::npos)
      << mode.error;
  for (const RankResult& rank : mode.ranks) EXPECT_EQ(rank.signal, 0) << rank.label << " had to be killed";
}

TEST_F(NcclJob, a_kernel_that_spins_for_ever_is_a_hang_and_leaves_nothing_behind) {
  scenario_.timeouts.stall = 2s;
  misbehave("hang@3");
  EXPECT_EQ(run().outcome, Outcome::kHang);
}

TEST_F(NcclJob, a_communicator_that_cannot_be_made_is_an_error_of_set_up) {
  misbehave("init");
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("ncclCommInitRank failed: unhandled system error (2)"), std::string::npos)
      << mode.error;
}

TEST_F(NcclJob, a_rank_that_is_killed_is_named) {
  RankFault fault;
  fault.name = "kill";
  fault.kind = RankFaultKind::kKill;
  fault.node = 1;
  fault.at_iter = 2;
  scenario_.rank_faults = {fault};
  scenario_.workload.iters = 100000;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kKilled) << mode.error;
  EXPECT_NE(mode.error.find("node1/rank0 died of signal 9"), std::string::npos) << mode.error;
}

TEST_F(NcclJob, kernels_that_write_other_values_are_found_before_anything_runs) {
  scenario_.env["STANDIN_CUDA_KERNELS"] = "bad";
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("the GPU's kernels write other values"), std::string::npos) << mode.error;
}

TEST_F(NcclJob, a_library_that_is_not_there_is_the_users_mistake) {
  scenario_.workload.nccl.library = "/nowhere/libnccl.so.2";
  EXPECT_THROW(run(), UsageError);
  scenario_.workload.nccl.library = "libnccl-of-nobody.so";
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("NCCL cannot be loaded"), std::string::npos) << mode.error;
}

TEST_F(NcclJob, two_ranks_of_a_node_do_not_share_a_gpu) {
  scenario_.fabric.ranks_per_node = 2;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("the 2 ranks of a node need a GPU each, and there is 1"), std::string::npos)
      << mode.error;
}

/// New communicators in the middle of a job.
class Renewed : public NcclJob {
 protected:
  void renew(RenewBy by, bool in_operation, int without = -1) {
    scenario_.workload.nccl.renewal =
        Renewal{by, 2, in_operation ? std::optional<std::chrono::nanoseconds>(20ms) : std::nullopt, without};
  }
  /// All operations are exact; the rank that is left out has done those before alone.
  void expect_renewed(int ranks, int open) {
    const ModeResult mode = run();
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    EXPECT_TRUE(mode.correctness.exact()) << mode.correctness.wrong_elements << " wrong";
    EXPECT_EQ(mode.correctness.checked_iterations, uint64_t(3 * (kWarmup + 2) + ranks * (kIters - 2)));
    EXPECT_EQ(mode.row.iterations, uint64_t(kIters));
    int found_open = 0;
    for (const RankResult& rank : mode.ranks) {
      ASSERT_TRUE(rank.renewal) << rank.label;
      EXPECT_EQ(rank.renewal->iteration, 2u);
      const bool left_out = ranks == 2 && rank.rank == scenario_.workload.nccl.renewal->without;
      EXPECT_EQ(rank.renewal->ranks, left_out ? 0 : ranks);
      found_open += rank.renewal->operation_open;
    }
    EXPECT_EQ(found_open, open);
  }
  /// The counted operation 2 of rank 1 is call 3 of its communicator.
  void hang_in_it() { misbehave("hang@3"); }
};

TEST_F(Renewed, after_an_abort_between_operations_all_ranks_go_on) {
  renew(RenewBy::kAbort, false);
  for (const Operation op : kAll) {
    SCOPED_TRACE(name(op));
    scenario_.workload.op = op;
    expect_renewed(3, 0);
  }
}

TEST_F(Renewed, an_abort_ends_an_operation_that_hangs_and_it_is_done_again) {
  renew(RenewBy::kAbort, true);
  hang_in_it();
  expect_renewed(3, 3);
  scenario_.workload.nccl.communicators = 2;
  scenario_.workload.reduction = Reduction::kPremulSum;
  expect_renewed(3, 3);
}

TEST_F(Renewed, a_nonblocking_communicator_is_aborted_like_any_other_and_the_next_one_gets_the_buffers_too) {
  scenario_.workload.nccl.blocking = false;
  scenario_.workload.nccl.registers = true;
  scenario_.env["STANDIN_NCCL_STRICT"] = "1";
  renew(RenewBy::kAbort, true);
  hang_in_it();
  expect_renewed(3, 3);
}

TEST_F(Renewed, buffers_are_taken_from_a_communicator_that_is_destroyed) {
  scenario_.workload.nccl.registers = true;
  scenario_.env["STANDIN_NCCL_STRICT"] = "1";
  for (const RenewBy by : {RenewBy::kAbort, RenewBy::kShrink, RenewBy::kRevoke}) {
    SCOPED_TRACE(name(by));
    renew(by, false, by == RenewBy::kAbort ? -1 : 2);
    expect_renewed(by == RenewBy::kAbort ? 3 : 2, 0);
  }
}

TEST_F(Renewed, shrinking_between_operations_leaves_a_rank_out) {
  for (const int without : {2, 0})
    for (const Operation op : kAll) {
      SCOPED_TRACE(std::string(name(op)) + " without " + std::to_string(without));
      renew(RenewBy::kShrink, false, without);
      scenario_.workload.op = op;
      expect_renewed(2, 0);
    }
}

TEST_F(Renewed, shrinking_and_revoking_end_an_operation_that_hangs) {
  hang_in_it();
  for (const RenewBy by : {RenewBy::kShrink, RenewBy::kRevoke})
    for (const int without : {2, 0}) {
      SCOPED_TRACE(std::string(name(by)) + " without " + std::to_string(without));
      renew(by, true, without);
      scenario_.workload.nccl.communicators = 1;
      expect_renewed(2, 3);
      scenario_.workload.nccl.communicators = 2;
      expect_renewed(2, 3);
    }
}

TEST_F(Renewed, what_is_corrupted_before_and_after_is_found) {
  misbehave("corrupt@1");  // the second call of each communicator
  for (const RenewBy by : {RenewBy::kAbort, RenewBy::kShrink, RenewBy::kRevoke}) {
    SCOPED_TRACE(name(by));
    renew(by, false, by == RenewBy::kAbort ? -1 : 2);
    expect_wrong(2);
  }
}

TEST_F(Renewed, a_version_without_the_call_is_named) {
  scenario_.workload.nccl.library = STANDIN_FOLDER "/libnccl-old.so.2";
  renew(RenewBy::kRevoke, true, 2);
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_EQ(mode.error, "NCCL 2.28.3 has no ncclCommShrink, which 'renew' needs; 2.27 and later have");
  renew(RenewBy::kAbort, false);
  expect_renewed(3, 0);
}

/// A control program that keeps a diary instead of serving anything.
class Mps : public NcclJob {
 protected:
  Mps() : path_(getenv("PATH")) {
    const std::string program = out_ + "/nvidia-cuda-mps-control";
    std::ofstream(program) << "#!/bin/sh\nif [ \"$1\" = -d ]; then echo \"start $CUDA_MPS_PIPE_DIRECTORY\"; "
                              "exit ${MPS_FAILS:-0}\n"
                              "else echo \"stdin $(cat)\"; fi >> '"
                           << diary_ << "'\n";
    fs::permissions(program, fs::perms::owner_all);
    setenv("PATH", (out_ + ":" + path_).c_str(), 1);
    scenario_.workload.nccl.mps = true;
  }
  ~Mps() override { setenv("PATH", path_.c_str(), 1); }
  std::string diary() const {
    std::ifstream file(diary_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string path_, diary_ = out_ + "/diary";
};

TEST_F(Mps, is_started_before_the_ranks_and_told_to_quit_after_them) {
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_EQ(result_.environment.at("mps"), "of this run");
  const std::string text = diary();
  EXPECT_EQ(text.rfind("stdin quit -t 5\n"), text.size() - 16) << text;
  const std::string pipe = text.substr(0, text.find('\n'));
  const std::string folder = fs::path(pipe.substr(pipe.find('/'))).parent_path();
  EXPECT_FALSE(fs::exists(folder)) << "its folder was left behind";
}

TEST_F(Mps, is_told_to_quit_when_a_job_ends_in_an_error) {
  misbehave("refuse@1");
  EXPECT_EQ(run().outcome, Outcome::kError);
  EXPECT_NE(diary().find("quit"), std::string::npos);
}

TEST_F(Mps, that_does_not_start_is_the_users_to_mend) {
  setenv("MPS_FAILS", "1", 1);
  EXPECT_THROW(run(), UsageError);
  unsetenv("MPS_FAILS");
}

TEST_F(Mps, of_the_user_is_taken_as_it_is) {
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/of-the-user", 1);
  EXPECT_EQ(run().outcome, Outcome::kOk);
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(diary(), "");
}

}  // namespace
}  // namespace r2bench
