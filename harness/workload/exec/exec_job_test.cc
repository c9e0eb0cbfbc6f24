// SPDX-License-Identifier: Apache-2.0
// Whole jobs of the engine exec: real commands, the real runner. What is said of how they ended, what their
// output tells of operations, that faults strike by it, and that nothing outlives a job.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "harness/base/testing/eventually.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class ExecJob : public testing::Test {
 protected:
  ExecJob() : out_(testing::TempDir() + "r2bench_exec_" + std::to_string(getpid())) {
    fs::create_directories(out_);
    scenario_.name = "test";
    scenario_.fabric.nics_per_node = 2;
    scenario_.workload.engine = Engine::kExec;
    scenario_.workload.iters = 0;
    scenario_.workload.verify = false;
    scenario_.modes = {{ModeKind::kMigrate, "migrate", {}, std::nullopt}};
    scenario_.timeouts.setup = 60s;
    scenario_.timeouts.stall = 30s;
    scenario_.timeouts.job = 120s;
    options_.fabric = "none";
    options_.out_dir = out_;
  }
  ~ExecJob() override { fs::remove_all(out_); }

  ModeResult shell(const std::string& text) {
    scenario_.workload.exec.arguments = {"/bin/sh", "-c", text};
    return run();
  }
  ModeResult run() {
    std::atomic<bool> cancel{false};
    result_ = run_scenario(scenario_, options_, cancel);
    return result_.modes.at(0);
  }
  ModeResult stream(int steps) {
    options_.fabric = "";
    scenario_.fabric.nic_rate_bits_per_s = 4'000'000'000;
    scenario_.workload.exec.arguments = {STREAM_PROGRAM, std::to_string(steps)};
    scenario_.workload.exec.begin = "streaming begins";
    scenario_.workload.exec.iteration = "step [0-9]+ took ([0-9.]+) ms";
    return run();
  }
  void lose_a_nic(uint64_t operation) {
    faultinject::FaultSpec fault;
    fault.name = "port_down";
    fault.kind = &faultinject::fault_kind("port_down");
    fault.target = faultinject::parse_target("node1/nic0");
    fault.trigger.kind = faultinject::Trigger::Kind::kEvent;
    fault.trigger.event = "iteration";
    fault.trigger.value = operation;
    scenario_.faults = {fault};
  }
  std::string log(int rank) {
    std::ifstream file(out_ + "/" + result_.modes.at(0).ranks.at(size_t(rank)).log_path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  /// The begin of a command of /bin/sh that stops the guard of its rank, and adds it to `list`.
  static std::string stop_guard(const std::string& list) {
    return "for child in $(cat /proc/$PPID/task/$PPID/children); do [ $child = $$ ] || "
           "{ kill -STOP $child; echo $child >>" +
           list + "; }; done; ";
  }
  static std::vector<pid_t> listed(const std::string& path) {
    std::ifstream file(path);
    return std::vector<pid_t>(std::istream_iterator<pid_t>(file), {});
  }

  std::string out_;
  Scenario scenario_;
  RunOptions options_;
  RunResult result_;
};

TEST_F(ExecJob, runs_a_copy_per_rank_that_knows_its_place_and_keeps_its_output) {
  scenario_.fabric.ranks_per_node = 2;
  const ModeResult mode = shell(
      "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK on node $NODE_RANK, port $MASTER_PORT, mode $R2CC_MODE; "
      "echo to stderr >&2");
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  ASSERT_EQ(mode.ranks.size(), 4u);
  for (const RankResult& rank : mode.ranks) {
    ASSERT_TRUE(rank.command);
    EXPECT_EQ(rank.command->exit_code, 0);
  }
  EXPECT_NE(log(3).find("rank 3 of 4, 1 on node 1, port "), std::string::npos) << log(3);
  EXPECT_NE(log(3).find("mode 1"), std::string::npos);
  EXPECT_NE(log(3).find("to stderr"), std::string::npos);
  EXPECT_EQ(mode.row.iterations, 1u);  // the command itself
}

// torchrun, for example, has put r2bench itself in a place.
TEST_F(ExecJob, its_place_is_that_of_the_job_and_not_that_of_r2bench) {
  const std::map<std::string, std::string> of_r2bench = {
      {"RANK", "7"}, {"WORLD_SIZE", "9"}, {"LOCAL_RANK", "3"}, {"MASTER_PORT", "17"}};
  for (const auto& [variable, value] : of_r2bench) setenv(variable.c_str(), value.c_str(), 1);
  scenario_.env["MASTER_ADDR"] = "as the scenario says";
  const ModeResult mode =
      shell("echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK, port $MASTER_PORT of $MASTER_ADDR");
  for (const auto& [variable, value] : of_r2bench) unsetenv(variable.c_str());
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  EXPECT_EQ(log(0), "rank 0 of 2, 0, port 17 of as the scenario says\n");
  EXPECT_EQ(log(1), "rank 1 of 2, 0, port 17 of as the scenario says\n");
}

TEST_F(ExecJob, tells_an_exit_code_with_the_last_line) {
  const ModeResult mode = shell("echo it does not work; test $RANK = 0 && exit 7; exec sleep 100");
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("exit code 7"), std::string::npos) << mode.error;
  EXPECT_NE(mode.error.find("it does not work"), std::string::npos) << mode.error;
  EXPECT_EQ(mode.ranks.at(0).command->exit_code, 7);
  EXPECT_LT(mode.duration_s, 30);  // the other rank was ended
}

TEST_F(ExecJob, tells_a_signal_and_a_program_that_is_not_there) {
  EXPECT_NE(shell("kill -SEGV $$").error.find("signal 11"), std::string::npos);
  scenario_.workload.exec.arguments = {"no-such-program-anywhere"};
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("cannot execute 'no-such-program-anywhere'"), std::string::npos) << mode.error;
}

TEST_F(ExecJob, nothing_that_a_command_has_started_outlives_the_job) {
  const std::string pids = out_ + "/pids";
  scenario_.timeouts.stall = 2s;
  const ModeResult mode = shell("trap '' TERM; sleep 1000 & echo $! >> " + pids +
                                "; (trap '' TERM; sleep 1000) & echo $! >> " + pids + "; wait");
  EXPECT_EQ(mode.outcome, Outcome::kHang) << mode.error;
  std::ifstream file(pids);
  int count = 0;
  for (pid_t pid; file >> pid; ++count) {
    const auto alive = [pid] { return kill(pid, 0) == 0; };
    for (int i = 0; i < 500 && alive(); ++i)
      std::this_thread::sleep_for(10ms);  // the guard acts when the rank is gone
    EXPECT_FALSE(alive()) << pid;
  }
  EXPECT_EQ(count, 4);
}

// As the workers of torchrun, which are sessions of their own. They have ended when the job has; the guards,
// which are stopped here, are for ranks that are killed.
TEST_F(ExecJob, a_session_of_its_own_does_not_outlive_the_job) {
  const std::string pids = out_ + "/pids", guards = out_ + "/guards";
  const ModeResult mode =
      shell(stop_guard(guards) + "setsid sh -c 'echo $$ >>" + pids +
            "; exec sleep 1000' >/dev/null & while [ ! -s " + pids + " ]; do sleep 0.01; done");
  EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  for (const pid_t pid : listed(pids)) {
    std::string command;  // what has ended has none, though nobody may have waited for it yet
    EXPECT_FALSE(std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/cmdline"), command))
        << pid << " " << command << " is there after the end of the job";
  }
  EXPECT_GE(listed(pids).size(), 1u);
  EXPECT_EQ(listed(guards).size(), 2u);
  for (const pid_t pid : listed(guards)) EXPECT_EQ(kill(pid, SIGCONT), 0) << "guard " << pid;
}

// The inner commands do not carry the mark of the outer one: only the inner guards can end them. These are
// stopped until the outer guard has been through all processes (the last one is in a session of its own).
TEST_F(ExecJob, nothing_of_a_job_within_a_command_outlives_the_outer_job) {
  const std::string pids = out_ + "/pids", guards = out_ + "/guards", last = out_ + "/last",
                    inner = out_ + "/inner.yaml", inner_log = out_ + "/inner.log";
  std::ofstream(inner) << "version: 1\nname: inner\nmodes: [migrate]\n"
                          "fabric: {nodes: 2, ranks_per_node: 1, nics_per_node: 1}\n"
                          "workload:\n  engine: exec\n  command: >-\n"
                          "    trap '' TERM; "
                       << stop_guard(guards) << "sleep 1000 & one=$!; sleep 1000 & echo $one $! $$ >>" << pids
                       << "; wait\n";
  scenario_.timeouts.stall = 2s;
  const ModeResult mode =
      shell("trap '' TERM; test $RANK = 0 || exec sleep 1000; " R2BENCH " run " + inner +
            " --fabric none --out " + out_ + "/inner >" + inner_log + " 2>&1 & until [ $(cat " + pids +
            " 2>/dev/null | wc -l) = 2 ]; do echo it begins; sleep 0.1; done; "
            "setsid sleep 1000 & echo $! >" +
            last + "; wait");
  EXPECT_EQ(mode.outcome, Outcome::kHang) << mode.error;
  const auto gone = [](pid_t pid) { return eventually([pid] { return kill(pid, 0) != 0; }, 20s); };
  EXPECT_EQ(listed(last).size(), 1u) << std::ifstream(inner_log).rdbuf();
  for (const pid_t pid : listed(last)) EXPECT_TRUE(gone(pid)) << pid;
  EXPECT_EQ(listed(guards).size(), 2u);
  for (const pid_t pid : listed(guards)) EXPECT_EQ(kill(pid, SIGCONT), 0) << "guard " << pid;
  EXPECT_EQ(listed(pids).size(), 6u);
  for (const pid_t pid : listed(pids)) {
    const bool ended = gone(pid);
    EXPECT_TRUE(ended) << pid;
    if (!ended) kill(pid, SIGKILL);
  }
}

TEST_F(ExecJob, what_a_command_leaves_behind_holds_up_nobody) {
  for (const char* left : {"sleep 1000 &", "(while :; do echo I am still here; done) &"}) {
    SCOPED_TRACE(left);
    const ModeResult mode = shell(std::string(left) + " sleep 0.2; printf 'the last words'");
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    EXPECT_NE(log(0).find("the last words"), std::string::npos);
    EXPECT_LT(mode.duration_s, 20);
  }
}

TEST_F(ExecJob, a_silent_command_is_a_hang_and_an_abort_asks_first) {
  scenario_.timeouts.stall = 1s;
  const ModeResult mode = shell("trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.05; done");
  EXPECT_EQ(mode.outcome, Outcome::kHang);
  EXPECT_NE(log(0).find("asked to end"), std::string::npos) << log(0);
}

TEST_F(ExecJob, rows_of_nccl_tests_are_judged_and_no_data_is_unknown) {
  const std::string header = "echo '#  size  count  type  redop  root  time  algbw  busbw #wrong';";
  const std::string row = "echo ' 1024 256 float sum -1 12.5 0.08 0.08 ";
  const auto judged = [&](const std::string& wrong) {
    scenario_.workload.exec.nccl_tests = scenario_.workload.verify = true;
    const ModeResult mode = shell("test $RANK = 1 || { " + header + row + wrong + "'; }");
    EXPECT_EQ(mode.outcome, Outcome::kOk) << mode.error;
    return mode;
  };
  ModeResult mode = judged("0");
  EXPECT_EQ(mode.correctness.checked_elements, 256u);
  EXPECT_EQ(mode.correctness.wrong_elements, 0u);
  EXPECT_EQ(mode.row.iterations, 1u);
  const auto printed = nlohmann::json::parse(mode.ranks.at(0).command->printed);
  EXPECT_EQ(printed.at("rows").at(0).at("out_of_place").at("time_us"), 12.5);
  EXPECT_EQ(judged("5").correctness.wrong_elements, 5u);
  EXPECT_EQ(judged("N/A").correctness.checked_elements, 0u);  // which makes 'correctness: exact' unknown
}

TEST_F(ExecJob, a_fault_strikes_the_operation_that_the_output_tells_of_and_migration_is_measured) {
  lose_a_nic(10);
  const ModeResult mode = stream(60);
  ASSERT_EQ(mode.outcome, Outcome::kOk) << mode.error << log(0) << log(1);
  EXPECT_EQ(mode.row.iterations, 60u);
  EXPECT_EQ(mode.faults_witnessed, 1u);
  EXPECT_GE(mode.count("migrations"), 1u);
  EXPECT_EQ(mode.recover_ms.n, 1u);
  ASSERT_TRUE(mode.number("stall_ms"));
  EXPECT_LT(*mode.number("stall_ms"), 5000);
  ASSERT_EQ(mode.faults.size(), 1u);
  // In the eleventh operation, as its output has it: not before the tenth line, and soon behind it.
  const double t0_ms = double(mode.faults[0].t0_ns - mode.timeline.start_ns) / 1e6;
  EXPECT_GE(t0_ms, mode.iteration_begin_ms.at(10));
  EXPECT_LE(t0_ms, mode.iteration_begin_ms.at(14));
  EXPECT_EQ(nlohmann::json::parse(mode.ranks.at(1).command->printed).at("values").size(), 60u);
}

TEST_F(ExecJob, repeats_are_jobs_of_their_own_with_the_same_fault) {
  lose_a_nic(10);
  options_.repeats = 2;
  const ModeResult mode = stream(30);
  ASSERT_EQ(mode.outcome, Outcome::kOk) << mode.error << log(0) << log(1);
  EXPECT_EQ(mode.row.iterations, 60u);
  EXPECT_EQ(mode.faults_witnessed, 2u);
  EXPECT_EQ(mode.number("stall_ms").has_value(), true);
}

TEST_F(ExecJob, without_resilience_the_command_fails_by_itself) {
  scenario_.modes = {{ModeKind::kBaseline, "baseline", {{"NCCL_IB_TIMEOUT", "10"}}, std::nullopt}};
  lose_a_nic(10);
  const ModeResult mode = stream(60);
  EXPECT_EQ(mode.outcome, Outcome::kError);
  EXPECT_NE(mode.error.find("exit code 3"), std::string::npos) << mode.error;
  EXPECT_EQ(mode.faults_witnessed, 1u);
  EXPECT_TRUE(mode.number("error_ms"));
}

}  // namespace
}  // namespace r2bench
