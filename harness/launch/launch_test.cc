// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "harness/base/testing/eventually.h"
#include "harness/launch/bootstrap.h"
#include "harness/launch/marked_processes.h"
#include "harness/launch/output.h"
#include "harness/launch/process.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

std::string temporary_path(const char* name) {
  return testing::TempDir() + "r2bench_" + name + std::to_string(getpid());
}

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ProcessSpec shell(const std::string& script, int output) {
  return {"/bin/sh", {"-c", script}, current_environment(), output, -1};
}

TEST(ShellQuoted, is_one_word_for_sh_whatever_characters_it_has) {
  EXPECT_EQ(shell_quoted(""), "''");
  const std::string word = "a'b \"$HOME\" `c` \\ ; *\n'd'";
  const std::string path = temporary_path("quoted");
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  {
    Process process(shell("printf '%s|' " + shell_quoted(word) + " end", fd));
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
    EXPECT_EQ(WEXITSTATUS(*process.ended()), 0);
  }
  close(fd);
  EXPECT_EQ(content(path), word + "|end|");
  unlink(path.c_str());
}

TEST(Process, tells_exit_codes_and_captures_output) {
  const std::string path = temporary_path("out");
  {
    OutputCapture capture;
    const int fd = capture.add(path);
    Process process(shell("echo hello; echo world >&2; exit 7", fd));
    close(fd);
    capture.start();
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
    EXPECT_EQ(WEXITSTATUS(*process.ended()), 7);
  }
  EXPECT_EQ(content(path), "hello\nworld\n");
  unlink(path.c_str());
}

TEST(Process, a_program_that_does_not_exist_throws) {
  const int null = open("/dev/null", O_WRONLY);
  EXPECT_THROW(Process({"/nonexistent/program", {}, {}, null, -1}), std::system_error);
  close(null);
}

TEST(Process, inherits_nothing_but_its_control_descriptor) {
  const std::string path = temporary_path("fds");
  {
    const int leak = open("/dev/null", O_RDONLY);  // on purpose without O_CLOEXEC
    OutputCapture capture;
    const int fd = capture.add(path);
    ProcessSpec spec = shell("ls /proc/self/fd | wc -l", fd);
    spec.control_fd = leak;
    Process process(spec);
    close(fd);
    capture.start();
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
    close(leak);
  }
  EXPECT_EQ(std::atoi(content(path).c_str()), 5);  // 0, 1, 2, 3 and the directory that ls reads
  unlink(path.c_str());
}

// In the middle of execve() a process shows no environment.
TEST(MarkedProcesses, the_end_is_two_rounds_in_a_row_without_one) {
  std::vector<size_t> found = {2, 0, 1, 0, 0, 7};
  size_t rounds = 0;
  EXPECT_EQ(kill_rounds([&] { return found.at(rounds++); }), 3u);
  EXPECT_EQ(rounds, 5u);
}

TEST(Process, dies_with_the_process_that_started_it) {
  int tell[2];
  ASSERT_EQ(pipe(tell), 0);
  const pid_t middle = fork();
  if (middle == 0) {
    const int null = open("/dev/null", O_WRONLY);
    Process process(shell("exec sleep 1000", null));
    const pid_t pid = process.pid();
    [[maybe_unused]] const ssize_t n = write(tell[1], &pid, sizeof(pid));
    while (true) pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(tell[0], &grandchild, sizeof(grandchild)), ssize_t(sizeof(grandchild)));
  ASSERT_EQ(kill(grandchild, 0), 0);
  kill(middle, SIGKILL);
  waitpid(middle, nullptr, 0);
  // Gone, or a zombie that waits for init.
  EXPECT_TRUE(eventually([&] {
    if (kill(grandchild, 0) != 0) return true;
    return content("/proc/" + std::to_string(grandchild) + "/stat").find(") Z") != std::string::npos;
  }));
  close(tell[0]);
  close(tell[1]);
}

// Who starts r2bench may ignore SIGCHLD, and a program inherits that: then no wait tells how a child ended.
TEST(Process, tells_exit_codes_where_sigchld_was_ignored) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const int null = open("/dev/null", O_WRONLY);
  {
    Process process(shell("sh -c 'exit 5'; test $? = 5 && exit 7", null));
    EXPECT_TRUE(eventually([&] { return process.ended().has_value(); }));
    EXPECT_EQ(WEXITSTATUS(process.ended().value_or(0)), 7);
  }
  close(null);
  signal(SIGCHLD, before);
}

// Or its group would be, too, and the kill of what it has left behind would end strangers.
TEST(Process, its_number_is_nobody_elses_as_long_as_it_is_held) {
  const int null = open("/dev/null", O_WRONLY);
  pid_t pid = -1;
  {
    Process process(shell("exit 3", null));
    pid = process.pid();
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
    EXPECT_EQ(WEXITSTATUS(*process.ended()), 3);
    EXPECT_EQ(kill(pid, 0), 0) << "the number is free";
    EXPECT_FALSE(process.signal(SIGTERM));
  }
  EXPECT_NE(kill(pid, 0), 0) << "a zombie is left";
  for (const int signal : {SIGTERM, SIGKILL}) {
    Process process(shell("kill -" + std::to_string(signal) + " $$", null));
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
    EXPECT_TRUE(WIFSIGNALED(*process.ended()));
    EXPECT_EQ(WTERMSIG(*process.ended()), signal);
  }
  close(null);
}

TEST(Process, kill_takes_its_children_along) {
  const std::string path = temporary_path("group");
  OutputCapture capture;
  const int fd = capture.add(path);
  Process process(shell("sleep 1000 & echo $!; wait", fd));
  close(fd);
  capture.start();
  ASSERT_TRUE(eventually([&] { return !content(path).empty() && content(path).back() == '\n'; }));
  const pid_t child = std::atoi(content(path).c_str());
  ASSERT_EQ(kill(child, 0), 0);
  process.kill();
  EXPECT_TRUE(eventually([&] {
    if (kill(child, 0) != 0) return true;
    return content("/proc/" + std::to_string(child) + "/stat").find(") Z") != std::string::npos;
  }));
  unlink(path.c_str());
}

TEST(OutputCapture, is_bounded) {
  const std::string path = temporary_path("bound");
  {
    OutputCapture capture(1000);
    const int fd = capture.add(path);
    Process process(shell("head -c 100000 /dev/zero", fd));
    close(fd);
    capture.start();
    ASSERT_TRUE(eventually([&] { return process.ended().has_value(); }));
  }
  const std::string text = content(path);
  EXPECT_EQ(text.substr(1000), "\n[99000 more bytes were dropped]\n");
  unlink(path.c_str());
}

/// Somebody prints without end, and what is printed goes into a file that takes 16 KiB a millisecond, as one
/// on a slow disk may: there is always more to read.
class OutputCaptureThatLagsBehind : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(file_, O_CLOEXEC), 0);
    disk_ = std::thread([this] {
      char chunk[16384];
      while (read(file_[0], chunk, sizeof(chunk)) > 0) std::this_thread::sleep_for(1ms);
    });
    loud_ = capture->add_file(dup(file_[1]));
    writer_ = fork();
    if (writer_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static const std::string text(65536, 'x');
    while (write(loud_, text.data(), text.size()) > 0) {
    }
    _exit(0);
  }
  void TearDown() override {
    kill(writer_, SIGKILL);
    waitpid(writer_, nullptr, 0);
    close(loud_);
    close(file_[1]);
    capture.reset();
    disk_.join();
    close(file_[0]);
  }

  std::unique_ptr<OutputCapture> capture = std::make_unique<OutputCapture>(SIZE_MAX);

 private:
  int file_[2] = {-1, -1}, loud_ = -1;
  std::thread disk_;
  pid_t writer_ = -1;
};

TEST_F(OutputCaptureThatLagsBehind, ends_although_somebody_goes_on_printing) {
  capture->start();
  std::this_thread::sleep_for(50ms);  // there is something to read
  std::atomic<bool> over{false};
  std::thread end([&] {
    capture.reset();
    over = true;
  });
  EXPECT_TRUE(eventually([&] { return over.load(); }, 10s));
  if (!over) _exit(1);  // it never ends
  end.join();
}

TEST_F(OutputCaptureThatLagsBehind, keeps_nobody_else_waiting) {
  const std::string path = temporary_path("quiet");
  const int quiet = capture->add(path);
  capture->start();
  ASSERT_EQ(write(quiet, "hello", 5), 5);
  EXPECT_TRUE(eventually([&] { return content(path) == "hello"; }, 10s));
  close(quiet);
  unlink(path.c_str());
}

TEST(OutputCapture, tells_when_the_disk_is_full) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  OutputCapture capture;
  const int fd = capture.add("/dev/full");
  Process process(shell("echo hello", fd));
  close(fd);
  capture.start();
  EXPECT_TRUE(eventually([&] { return capture.write_error() == ENOSPC; }));
}

TEST(Bootstrap, a_port_in_use_is_an_error_that_says_so) {
  // Find a free port by taking it.
  for (uint16_t port = 42000; port < 42100; ++port) {
    try {
      Bootstrap first(1, port);
      try {
        Bootstrap second(1, port);
        FAIL() << "the second one got the port as well";
      } catch (const std::system_error& e) {
        EXPECT_EQ(e.code().value(), EADDRINUSE);
      }
      return;
    } catch (const std::system_error&) {
    }
  }
  FAIL() << "no free port";
}

TEST(MessageSocket, messages_arrive_whole_and_in_order) {
  Bootstrap bootstrap(1, 0);
  MessageSocket ours = bootstrap.take(0);
  MessageSocket theirs(dup(bootstrap.inherited_fd(0)));
  bootstrap.all_started();
  const std::string long_text(300'000, 'x');
  std::thread sender([&] {
    theirs.send({{"type", "a"}, {"text", long_text}});
    theirs.send({{"type", "b"}});
    theirs.close();
  });
  const auto first = ours.receive(20s);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->at("text"), long_text);
  EXPECT_EQ(ours.receive(20s)->at("type"), "b");
  EXPECT_FALSE(ours.receive(20s));
  EXPECT_TRUE(ours.closed());
  sender.join();
}

TEST(MessageSocket, garbage_closes_the_connection) {
  Bootstrap bootstrap(1, 0);
  MessageSocket ours = bootstrap.take(0);
  const uint32_t huge = 0xffffffff;
  ASSERT_EQ(write(bootstrap.inherited_fd(0), &huge, sizeof(huge)), ssize_t(sizeof(huge)));
  EXPECT_FALSE(ours.receive(20s));
  EXPECT_TRUE(ours.closed());
}

}  // namespace
}  // namespace r2bench
