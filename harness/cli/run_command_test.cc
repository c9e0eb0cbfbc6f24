// SPDX-License-Identifier: Apache-2.0
// `run` from its command line to the exit status and the folder that it leaves.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/cli/exit_codes.h"
#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Program = ProgramTest;

TEST_F(Program, runs_judges_and_keeps_the_result) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0) << err.str();
  EXPECT_NE(out.str().find("Verdict: pass"), std::string::npos);
  EXPECT_NE(out.str().find("mode 1 of 0: baseline"), std::string::npos) << out.str();
  for (const char* file :
       {"result.json", "timeline.json", "junit.xml", "events.jsonl", "report.txt", "scenario.yaml"}) {
    EXPECT_TRUE(fs::exists(fs::path("result") / file)) << file;
  }
  EXPECT_EQ(call({"validate", "result/result.json"}), 0) << err.str();
}

// The injected half of the pair could run by itself, and would take its time before the other is refused.
TEST_F(Program, real_faults_without_leave_are_refused_before_anything_runs) {
  for (const char* fabric : {"verbs", "rxe"}) {
    EXPECT_EQ(call({"run", "real_link_down", "--fabric", fabric, "--no-plot"}), kExitUsage);
    EXPECT_NE(err.str().find("real_link_down-reallinkdown: "), std::string::npos) << err.str();
    EXPECT_NE(err.str().find("--allow-real-faults"), std::string::npos) << err.str();
  }
  EXPECT_EQ(call({"run", "real_link_down", "--fabric", "vhca", "--allow-real-faults"}), kExitUsage);
  EXPECT_NE(err.str().find("the fabric vhca has none"), std::string::npos) << err.str();
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(entries("results"), 0u);
}

TEST_F(Program, each_run_has_a_folder_of_its_own) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--quiet"}), 0);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--quiet"}), 0);
  EXPECT_EQ(entries("results/runs"), 2u);
}

TEST_F(Program, exit_status_is_the_verdict) {
  answer.modes[1].correctness.wrong_elements = 1;
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot"}), 1);
  answer = sample_result();
  answer.modes[1].faults_witnessed = 0;
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot"}), 2);
}

TEST_F(Program, the_command_line_changes_the_scenario) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--modes", "migrate", "--repeats", "20", "--seed", "7",
                  "--set", "workload.bytes=4 MiB"}),
            0)
      << err.str();
  ASSERT_EQ(ran.size(), 1u);
  EXPECT_EQ(ran[0].modes.size(), 1u);
  EXPECT_EQ(ran[0].repeats, 20);
  EXPECT_EQ(ran[0].seed, 7u);
  EXPECT_EQ(ran[0].workload.bytes, 4u << 20);
}

TEST_F(Program, a_bad_scenario_is_told_and_nothing_is_left) {
  std::ofstream("bad.yaml") << "version: 1\nmodes: [migrate]\nfabric: {nic_rat: 1}\n";
  EXPECT_EQ(call({"run", "bad.yaml"}), 64);
  EXPECT_NE(err.str().find("bad.yaml:3:10: unknown key 'nic_rat' in 'fabric'; did you mean 'nic_rate'?"),
            std::string::npos)
      << err.str();
  EXPECT_TRUE(ran.empty());
  EXPECT_FALSE(fs::exists("results"));
}

TEST_F(Program, all_files_are_checked_before_any_is_run) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "missing.yaml"}), 64);
  EXPECT_NE(err.str().find("missing.yaml: cannot be read"), std::string::npos);
  EXPECT_TRUE(ran.empty());
}

TEST_F(Program, what_the_runner_refuses_is_64_and_leaves_nothing) {
  runner = [](const Scenario&, const RunOptions& options, const std::atomic<bool>&) -> RunResult {
    fs::create_directory(fs::path(options.out_dir) / "logs");
    throw UsageError("port 7000 is in use");
  };
  EXPECT_EQ(call({"run", "nic_down.yaml"}), 64);
  EXPECT_NE(err.str().find("port 7000 is in use"), std::string::npos);
  EXPECT_FALSE(fs::exists("results"));
}

TEST_F(Program, our_own_mistakes_are_70_and_leave_nothing) {
  runner = [](const Scenario&, const RunOptions&, const std::atomic<bool>&) -> RunResult {
    throw std::logic_error("oops");
  };
  EXPECT_EQ(call({"run", "nic_down.yaml"}), 70);
  EXPECT_FALSE(fs::exists("results"));
}

TEST_F(Program, a_limit_of_the_machine_is_told_with_what_to_do) {
  std::function<void()> fail;
  runner = [&](const Scenario&, const RunOptions&, const std::atomic<bool>&) -> RunResult {
    fail();
    return {};
  };
  const auto of = [](int error) {
    return [error] { throw std::system_error(error, std::generic_category(), "socketpair"); };
  };
  for (const auto& [error, advice] :
       {std::pair(EMFILE, "ulimit -n"), {ENOMEM, "ulimit -v"}, {EAGAIN, "ulimit -u"}}) {
    fail = of(error);
    EXPECT_EQ(call({"run", "nic_down.yaml"}), kExitUsage);
    EXPECT_EQ(err.str().rfind("r2bench: socketpair: ", 0), 0u) << err.str();
    EXPECT_NE(err.str().find(advice), std::string::npos) << err.str();
  }
  fail = [] { throw std::bad_alloc(); };
  EXPECT_EQ(call({"run", "nic_down.yaml"}), kExitUsage);
  EXPECT_NE(err.str().find("out of memory"), std::string::npos) << err.str();
  fail = of(EBADF);
  EXPECT_EQ(call({"run", "nic_down.yaml"}), kExitInternal);
}

TEST_F(Program, an_output_that_cannot_be_written_is_64_before_anything_runs) {
  std::ofstream("file") << "x";
  EXPECT_EQ(call({"run", "nic_down.yaml", "--out", "file/below"}), 64);
  EXPECT_TRUE(ran.empty());
}

TEST_F(Program, a_result_that_cannot_be_written_is_told_all_the_same) {
  runner = [this](const Scenario& scenario, const RunOptions& options, const std::atomic<bool>&) {
    fs::create_directories(fs::path(options.out_dir) / "result.json" / "in the way");
    RunResult result = answer;
    result.scenario = scenario.name;
    return result;
  };
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 64);
  EXPECT_NE(err.str().find("result.json: cannot be written"), std::string::npos) << err.str();
  EXPECT_NE(out.str().find("Verdict: pass"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("Files:"), std::string::npos) << out.str();
  EXPECT_FALSE(fs::exists("result")) << "no half result";
}

// A terminal that is stopped by Ctrl-S, or an ssh connection that hangs: the faults would strike late.
TEST_F(Program, an_output_that_takes_nothing_keeps_no_job_waiting) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const auto shown = [&] {
    out.str("");
    Console console{out, err};
    console.descriptor = ends[1];
    const char* words[] = {"r2bench", "run", "nic_down.yaml", "--no-plot"};
    EXPECT_EQ(r2bench_main(4, words, runner, console), 0) << err.str();
    return out.str().find("mode 1 of") != std::string::npos;
  };
  EXPECT_TRUE(shown());
  const std::string text(4096, 'x');
  while (::write(ends[1], text.data(), text.size()) > 0) {
  }
  EXPECT_FALSE(shown());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(StandardStreams, those_that_are_closed_become_no_file_of_the_run) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    own_standard_streams();
    const int next = ::open("/dev/zero", O_RDONLY);
    struct stat null {
    }, each{};
    bool all = next > 2 && ::stat("/dev/null", &null) == 0;
    for (const int fd : {0, 1, 2}) all = all && ::fstat(fd, &each) == 0 && each.st_rdev == null.st_rdev;
    ::_exit(all ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Program, a_dry_run_starts_nothing_and_writes_nothing) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--dry-run"}), 0);
  EXPECT_TRUE(ran.empty());
  EXPECT_FALSE(fs::exists("results"));
  EXPECT_NE(out.str().find("node1/rank0"), std::string::npos);
  EXPECT_NE(out.str().find("during iteration 60: node1/nic0 loses its link"), std::string::npos) << out.str();
}

// Without --dry-run, the first process of every host but the first waits 60 s for a runner, which does not
// come here; the other processes of a host have nothing to do.
TEST_F(Program, a_dry_run_serves_no_runner) {
  using Place = std::map<std::string, std::string>;
  const Place first_of_second_host = {{"RANK", "1"},
                                      {"WORLD_SIZE", "2"},
                                      {"LOCAL_RANK", "0"},
                                      {"LOCAL_WORLD_SIZE", "1"},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", "29400"},
                                      {"R2BENCH_JOB_SECRET", "of this test, and long enough"}};
  const Place second_of_its_host = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  for (const Place& place : {first_of_second_host, second_of_its_host}) {
    for (const auto& [variable, value] : place) setenv(variable.c_str(), value.c_str(), 1);
    EXPECT_EQ(call({"run", "nic_down.yaml", "--fabric", "verbs", "--launcher", "env", "--dry-run"}), 0)
        << err.str();
    EXPECT_NE(out.str().find("node1/rank0"), std::string::npos) << out.str();
    for (const auto& [variable, value] : place) unsetenv(variable.c_str());
  }
}

TEST_F(Program, a_dry_run_refuses_the_hosts_that_a_run_refuses) {
  for (const std::vector<const char*>& more : {std::vector<const char*>{"--hosts", "a"},
                                               {"--launcher", "mpi", "--fabric", "verbs", "--hosts", "a,a"},
                                               {"--launcher", "mpi", "--fabric", "verbs", "--hosts", "a,b,c"},
                                               {"--launcher", "slurm", "--fabric", "rxe"}}) {
    std::vector<const char*> words{"run", "nic_down.yaml", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(call(words), kExitUsage) << more[1];
    EXPECT_NE(err.str().find(std::string(more.back()) == "rxe" ? "--launcher slurm" : "--hosts"),
              std::string::npos)
        << err.str();
  }
  EXPECT_EQ(
      call({"run", "nic_down.yaml", "--dry-run", "--launcher", "mpi", "--fabric", "verbs", "--hosts", "a,b"}),
      0)
      << err.str();
}

TEST_F(Program, an_interrupt_keeps_what_there_is) {
  for (const int signal : {SIGINT, SIGTERM}) {
    ran.clear();
    runner = [&](const Scenario& scenario, const RunOptions&, const std::atomic<bool>& cancel) {
      ran.push_back(scenario);
      ::raise(signal);
      EXPECT_TRUE(cancel.load());
      RunResult result = answer;
      result.modes.pop_back();
      result.cancelled = true;
      return result;
    };
    const std::string folder = "result" + std::to_string(signal);
    EXPECT_EQ(call({"run", "nic_down.yaml", "nic_down.yaml", "--keep-going", "--out", folder.c_str()}),
              128 + signal);
    EXPECT_EQ(ran.size(), 1u);
    EXPECT_NE(out.str().find("Verdict: unknown"), std::string::npos);
    EXPECT_TRUE(fs::exists(fs::path(folder) / "nic_down" / "result.json"));
  }
}

TEST_F(Program, scenarios_of_one_name_have_folders_of_their_own) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "nic_down.yaml", "--no-plot", "--out", "result"}), 0) << err.str();
  EXPECT_EQ(ran.size(), 2u);
  EXPECT_TRUE(fs::exists("result/nic_down/result.json"));
  EXPECT_TRUE(fs::exists("result/nic_down-2/result.json"));
}

// The number that tells two scenarios of a name apart must not give one of them the name of a third.
TEST_F(Program, a_scenario_named_like_the_second_of_another_name_keeps_its_folder) {
  std::string other = sample_scenario().source_text;
  other.replace(other.find("name: nic_down"), strlen("name: nic_down"), "name: nic_down-2");
  std::ofstream("other.yaml") << other;
  const std::vector<std::vector<const char*>> orders = {{"nic_down.yaml", "other.yaml", "nic_down.yaml"},
                                                        {"nic_down.yaml", "nic_down.yaml", "other.yaml"},
                                                        {"other.yaml", "nic_down.yaml", "nic_down.yaml"}};
  for (const auto& order : orders) {
    fs::remove_all("result");
    EXPECT_EQ(call({"run", order[0], order[1], order[2], "--no-plot", "--out", "result"}), 0) << err.str();
    EXPECT_EQ(entries("result"), 3u);
    for (const auto& [folder, name] : {std::pair("nic_down", "name: nic_down\n"),
                                       {"nic_down-2", "name: nic_down-2\n"},
                                       {"nic_down-3", "name: nic_down\n"}}) {
      std::ifstream file(fs::path("result") / folder / "scenario.yaml");
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      EXPECT_NE(text.find(name), std::string::npos) << folder << " holds: " << text;
    }
  }
}

TEST_F(Program, several_scenarios_stop_at_the_first_that_does_not_pass) {
  fs::copy_file("nic_down.yaml", "other.yaml");
  answer.modes[1].correctness.wrong_elements = 1;
  EXPECT_EQ(call({"run", "nic_down.yaml", "other.yaml", "--no-plot"}), 1);
  EXPECT_EQ(ran.size(), 1u);
  EXPECT_EQ(call({"run", "nic_down.yaml", "other.yaml", "--no-plot", "--keep-going"}), 1);
  EXPECT_EQ(ran.size(), 3u);
}

TEST_F(Program, another_fabric_and_slow_motion_reach_the_runner) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--modes", "migrate", "--fabric", "verbs",
                  "--slow-motion", "4"}),
            0)
      << err.str();
  ASSERT_EQ(ran.size(), 1u);
  EXPECT_EQ(ran[0].fabric.kind, FabricKind::kVerbs);
  EXPECT_EQ(ran[0].fabric.nic_rate_bits_per_s, 250'000'000u);
  EXPECT_EQ(ran[0].env.at("NCCL_IB_TIMEOUT"), "22");
  EXPECT_EQ(call({"run", "nic_down.yaml", "--slow-motion", "3"}), 64);
  EXPECT_EQ(call({"run", "nic_down.yaml", "--fabric", "vcha"}), 64);
}

TEST_F(Program, names_of_hosts_are_checked_before_anything_starts) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"a,,b", "entry 2 of 'a,,b' is empty"},
                                                                  {",", "is empty"},
                                                                  {"a,b,a", "'a' twice"},
                                                                  {"a, b", "' b'"},
                                                                  {"-oProxy", "'-oProxy'"},
                                                                  {"a:0", "'a:0'"}};
  for (const auto& [hosts, word] : wrong) {
    EXPECT_EQ(call({"run", "--launcher", "mpi", "--fabric", "verbs", "--hosts", hosts.c_str(), "nic_down"}),
              kExitUsage)
        << hosts;
    EXPECT_NE(err.str().find("--hosts"), std::string::npos) << hosts << ": " << err.str();
    EXPECT_NE(err.str().find(word), std::string::npos) << hosts << ": " << err.str();
  }
  EXPECT_EQ(call({"doctor", "--cluster", "--host", "a,a"}), kExitUsage);
  EXPECT_NE(err.str().find("--host: 'a' twice"), std::string::npos) << err.str();
  EXPECT_EQ(call({"run", "--launcher", "mpi", "--fabric", "verbs", "--hosts", "a,b,c", "nic_down"}),
            kExitUsage);
  EXPECT_NE(err.str().find("3 hosts"), std::string::npos) << err.str();
}

/// Programs of these names that fail, in place of the real ones.
class Launchers : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    fs::create_directory("tools");
    for (const char* name : {"mpirun", "srun"}) {
      std::ofstream("tools/" + std::string(name))
          << "#!/bin/sh\necho 'srun: error: Could not establish a configuration source' >&2\nexit 1\n";
      fs::permissions("tools/" + std::string(name), fs::perms::owner_all);
    }
    setenv("PATH", (fs::absolute("tools").string() + ":" + path_).c_str(), 1);
    unsetenv("SLURM_JOB_ID");
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    Program::TearDown();
  }

 private:
  const std::string path_ = getenv("PATH");
};

TEST_F(Launchers, hosts_that_are_given_as_nothing_are_refused) {
  for (const char* launcher : {"mpi", "slurm"}) {
    EXPECT_EQ(call({"run", "nic_down.yaml", "--launcher", launcher, "--fabric", "verbs", "--hosts", ""}),
              kExitUsage);
    EXPECT_NE(err.str().find("--hosts: names no host"), std::string::npos) << err.str();
  }
  for (const char* option : {"--host", "--hosts"}) {
    EXPECT_EQ(call({"doctor", "--cluster", option, ""}), kExitUsage);
    EXPECT_NE(err.str().find(std::string(option) + ": names no host"), std::string::npos) << err.str();
  }
}

TEST_F(Launchers, a_launcher_that_fails_is_no_wrong_command_line) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--launcher", "slurm", "--fabric", "verbs"}), kExitInternal);
  EXPECT_NE(err.str().find("r2bench: the launcher (slurm) ended with status 1"), std::string::npos)
      << err.str();
  EXPECT_NE(err.str().find("run r2bench inside salloc or sbatch"), std::string::npos) << err.str();
  EXPECT_EQ(call({"run", "nic_down.yaml", "--launcher", "mpi", "--fabric", "verbs"}), kExitInternal);
  EXPECT_EQ(err.str().find("salloc"), std::string::npos) << err.str();
}

TEST_F(Program, doctor_takes_hosts_as_run_does) {
  EXPECT_EQ(call({"doctor", "--cluster", "--hosts", "a,a"}), kExitUsage);
  EXPECT_NE(err.str().find("--hosts: 'a' twice"), std::string::npos) << err.str();
  EXPECT_EQ(call({"doctor", "--cluster", "--hosts", "a", "--host", "b"}), kExitUsage);
  EXPECT_EQ(call({"doctor", "--hosts", "a"}), kExitUsage);
  EXPECT_NE(err.str().find("--hosts is for --cluster and --first-day"), std::string::npos) << err.str();
  EXPECT_EQ(call({"doctor", "--cluster", "--hosts", "/etc/hosts"}), kExitUsage);
  EXPECT_NE(err.str().find("give HOST,HOST: files are not read"), std::string::npos) << err.str();
}

TEST_F(Program, a_rate_that_nobody_sets_is_not_told) {
  EXPECT_EQ(call({"run", "nic_down.yaml", "--fabric", "verbs", "--dry-run"}), 0);
  EXPECT_NE(out.str().find("NICs (verbs)"), std::string::npos) << out.str();
  EXPECT_EQ(call({"run", "nic_down.yaml", "--dry-run"}), 0);
  EXPECT_NE(out.str().find("NICs of 1 Gbit/s (vhca)"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace r2bench
