// SPDX-License-Identifier: Apache-2.0
#include "harness/real/shell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

namespace r2bench {
namespace {

using namespace std::chrono_literals;

TEST(RealShell, output_status_limits_and_signals) {
  EXPECT_EQ(run_shell("echo one; echo two >&2; exit 4", 10s).output, "one\ntwo");
  EXPECT_EQ(run_shell("exit 4", 10s).exit_code, 4);
  EXPECT_EQ(run_shell("kill -TERM $$", 10s).exit_code, 128 + SIGTERM);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(run_shell("sleep 60 & sleep 60", 100ms).exit_code, 124);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
}

TEST(RealShell, passes_a_signal_on_to_all_that_the_command_started) {
  const std::string begun = testing::TempDir() + "shell_test_begun_" + std::to_string(getpid());
  const auto caught = [&] { return std::filesystem::exists(begun) ? SIGINT : 0; };
  const auto before = std::chrono::steady_clock::now();
  const ShellResult result = run_shell(
      "trap 'echo caught; exit 7' INT; touch " + begun + "; while :; do sleep 0.1; done", 10min, {}, caught);
  std::filesystem::remove(begun);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.output, "caught");
  EXPECT_FALSE(result.late);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 50s);
}

// /bin/sh dies of a signal at once while `run` puts the machine back.
TEST(RealShell, waits_for_what_cleans_up_after_a_signal) {
  const std::string begun = testing::TempDir() + "shell_test_slow_" + std::to_string(getpid());
  const auto caught = [&] { return std::filesystem::exists(begun) ? SIGHUP : 0; };
  const auto before = std::chrono::steady_clock::now();
  const ShellResult result = run_shell(
      "sh -c 'trap \"sleep 1; echo cleaned; exit\" HUP; touch " + begun + "; while :; do sleep 0.1; done'; :",
      10min, {}, caught);
  std::filesystem::remove(begun);
  EXPECT_EQ(result.exit_code, 128 + SIGHUP);
  EXPECT_TRUE(result.output.ends_with("cleaned")) << result.output;  // the shell tells of its `sleep`, too
  EXPECT_FALSE(result.late);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 50s);
}

TEST(RealShell, hands_on_the_one_descriptor) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string of_its_end = "[ -e /proc/self/fd/" + std::to_string(ends[1]) + " ]";
  EXPECT_EQ(run_shell(of_its_end, 10s).exit_code, 1);
  EXPECT_EQ(run_shell(of_its_end, 10s, {}, {}, ends[1]).exit_code, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(RealShell, ends_where_sigchld_is_ignored) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run_shell("sh -c 'exit 5'; test $? = 5 && exit 4", 10s).exit_code, 4);
  signal(SIGCHLD, before);
}

}  // namespace
}  // namespace r2bench
