// SPDX-License-Identifier: Apache-2.0
// CUDA's MPS of a run, with a control program that starts a process in place of MPS's daemon.
#include "harness/run/mps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/base/testing/eventually.h"
#include "harness/launch/marked_processes.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Mps : public testing::Test {
 protected:
  Mps() : path_(getenv("PATH")) {
    fs::create_directories(folder_);
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  ~Mps() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }
  void control_program(const std::string& script) const {
    const std::string program = folder_ + "/nvidia-cuda-mps-control";
    std::ofstream(program) << "#!/bin/sh\ncd '" << folder_ << "'\n" << script;
    fs::permissions(program, fs::perms::owner_all);
  }
  /// Its daemon lives until it is told to quit.
  void control_program_with_daemon() const {
    control_program(
        "if [ \"$1\" = -d ]; then\n"
        "  setsid sh -c 'echo $$ >new; mv new daemon; exec sleep 1000' &\n"
        "  until [ -e daemon ]; do sleep 0.01; done\n"
        "else\n"
        "  cat >quit; kill $(cat daemon)\n"
        "fi\n");
  }
  pid_t daemon_process() const {
    pid_t pid = -1;
    std::ifstream(folder_ + "/daemon") >> pid;
    return pid;
  }
  static bool lives(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    return bool(stat >> number >> name >> state) && state != "Z";
  }

  const std::string path_, folder_ = testing::TempDir() + "r2bench_mps_" + std::to_string(getpid());
};

TEST_F(Mps, that_hangs_is_waited_for_no_longer_than_its_bound) {
  for (const char* what : {"[ \"$1\" = -d ]", "[ \"$1\" != -d ]"}) {
    control_program("if " + std::string(what) + "; then sleep 1000; fi\n");
    const auto before = std::chrono::steady_clock::now();
    try {
      const MpsDaemon daemon(1s);
      EXPECT_EQ(daemon.describe(), "of this run");
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("it did not start"), std::string::npos) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - before, 30s) << what;
  }
}

// A job can run below the command of another one, whose end kills all that carry its mark: the daemon would
// be killed, and its keeper before it could tell it to quit. It ends with its own job instead.
TEST_F(Mps, of_a_job_below_another_ends_with_its_own_job) {
  control_program_with_daemon();
  setenv(kMarkVariable, "outer", 1);
  setenv(kCommandMarkVariable, "outer", 1);
  int pipes[2];
  ASSERT_EQ(::pipe2(pipes, O_CLOEXEC), 0);
  const pid_t job = ::fork();
  if (job == 0) {
    const MpsDaemon daemon;
    const std::string folder = fs::path(daemon.environment().at("CUDA_MPS_PIPE_DIRECTORY")).parent_path();
    if (::write(pipes[1], folder.data(), folder.size()) != ssize_t(folder.size())) ::_exit(1);
    ::pause();
  }
  ::close(pipes[1]);
  char folder[256] = "";
  ASSERT_GT(::read(pipes[0], folder, sizeof folder - 1), 0);
  ::close(pipes[0]);
  unsetenv(kMarkVariable);
  unsetenv(kCommandMarkVariable);
  EXPECT_EQ(kill_marked("outer", kMarkVariable), 0u);
  EXPECT_EQ(kill_marked("outer", kCommandMarkVariable), 0u);
  EXPECT_TRUE(lives(daemon_process()));
  EXPECT_TRUE(fs::exists(folder));
  ::kill(job, SIGKILL);
  ::waitpid(job, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return !lives(daemon_process()) && !fs::exists(folder); }));
  EXPECT_TRUE(fs::exists(folder_ + "/quit"));
  if (lives(daemon_process())) ::kill(daemon_process(), SIGKILL);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace r2bench
