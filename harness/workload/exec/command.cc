// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "harness/launch/marked_processes.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

constexpr size_t kLongestLine = 64 * 1024;  // longer ones are cut: a progress bar need never end its line

[[noreturn]] void refuse(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

void close_all_but(int fd) {
  if (fd > 3) syscall(SYS_close_range, 3u, unsigned(fd - 1), 0u);
  syscall(SYS_close_range, unsigned(fd + 1), ~0u, 0u);
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment) {
  signal(SIGTERM, SIG_IGN);
  mark_ = std::to_string(getpid()) + "-" + std::to_string(r2ccl::now_ns());
  start_guard();
  int output[2], status[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(status, O_CLOEXEC) != 0) refuse("pipe");
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> pairs;
  for (const auto& [name, value] : environment)
    if (name != kCommandMarkVariable) pairs.push_back(name + "=" + value);
  pairs.push_back(std::string(kCommandMarkVariable) + "=" + mark_);
  for (std::string& pair : pairs) envp.push_back(pair.data());
  envp.push_back(nullptr);

  pid_ = fork();
  if (pid_ < 0) refuse("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    dup2(output[1], 1);
    dup2(output[1], 2);
    close(3);  // the control connection
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t n = write(status[1], &error, sizeof(error));
    _exit(127);
  }
  close(output[1]);
  close(status[1]);
  output_ = output[0];
  int error = 0;
  ssize_t n;
  while ((n = ::read(status[0], &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  close(status[0]);
  if (n == ssize_t(sizeof(error)))
    throw std::system_error(error, std::generic_category(), "cannot execute '" + arguments.front() + "'");
}

/// A child outside the group that waits for the end of this process. Workers of torchrun, for example, are in
/// sessions, and so in groups, of their own: they are found by the mark in their environment.
void Command::start_guard() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refuse("socketpair");
  const pid_t group = getpgrp();
  guard_ = fork();
  if (guard_ < 0) refuse("fork");
  if (guard_ == 0) {
    // If this job runs below a command of another one, that one's guard must not find this one: nobody else
    // ends this command.
    blank_marks();
    setsid();
    const int devnull = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(devnull, fd);
    close_all_but(ends[0]);
    char byte = 0;
    [[maybe_unused]] const ssize_t told = write(ends[0], &byte, 1);
    while (::read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    kill(-group, SIGKILL);
    kill_marked(mark_, kCommandMarkVariable);
    _exit(0);
  }
  close(ends[0]);
  guard_socket_ = ends[1];
  char byte;
  ssize_t n;
  while ((n = ::read(guard_socket_, &byte, 1)) < 0 && errno == EINTR) {
  }
  if (n != 1) throw std::runtime_error("the guard of the command has ended at once");
}

Command::~Command() {
  if (pid_ > 0 && !ended()) {
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = status;
  }
  kill_marked(mark_, kCommandMarkVariable);
  if (output_ >= 0) close(output_);
  // The guard goes on until this process ends, and kills the rest of the group.
}

bool Command::read(std::chrono::milliseconds wait, const std::function<void(const std::string&)>& line) {
  pollfd ready{output_, POLLIN, 0};
  if (poll(&ready, 1, int(wait.count())) <= 0) return true;
  char buffer[16 * 1024];
  const ssize_t n = ::read(output_, buffer, sizeof(buffer));
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) {
    if (!begun_.empty()) line(std::exchange(begun_, {}));
    return false;
  }
  take(buffer, size_t(n), line);
  return true;
}

void Command::take(const char* text, size_t bytes, const std::function<void(const std::string&)>& line) {
  for (size_t i = 0; i < bytes; ++i) {
    // A carriage return ends a line as well: progress bars.
    if (text[i] == '\n' || text[i] == '\r' || begun_.size() >= kLongestLine) {
      if (!begun_.empty()) line(std::exchange(begun_, {}));
      if (text[i] == '\n' || text[i] == '\r') continue;
    }
    begun_ += text[i];
  }
}

void Command::read_rest(const std::function<void(const std::string&)>& line) {
  int printed = 0;
  if (ioctl(output_, FIONREAD, &printed) != 0) printed = 0;
  std::vector<char> rest(static_cast<size_t>(printed));
  const ssize_t n = rest.empty() ? 0 : ::read(output_, rest.data(), rest.size());
  if (n > 0) take(rest.data(), size_t(n), line);
  if (!begun_.empty()) line(std::exchange(begun_, {}));
  close(output_);
  output_ = -1;
}

std::optional<int> Command::ended() {
  if (status_) return status_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void Command::terminate() { kill(0, SIGTERM); }

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return "signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace r2bench
