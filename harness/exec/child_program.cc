// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "harness/base/children.h"

namespace r2bench {
namespace {

constexpr int kHandedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t waited_for() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kHandedOn) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

pid_t start(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
            const sigset_t& mask) {
  std::vector<std::string> pairs;
  for (const auto& [name, value] : environment) pairs.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(command), envp = pointers(pairs);
  int status[2];
  if (::pipe2(status, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t n = ::write(status[1], &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(status[1]);
  int error = 0;
  ssize_t n = 0;
  if (pid > 0)
    while ((n = ::read(status[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
  ::close(status[0]);
  if (pid < 0) throw std::system_error(fork_error, std::generic_category(), "cannot start a process");
  if (n == ssize_t(sizeof error)) {
    ::waitpid(pid, nullptr, 0);
    throw std::system_error(error, std::generic_category(), command[0]);
  }
  return pid;
}

}  // namespace

ChildSignals::ChildSignals() {
  keep_exit_statuses();
  const sigset_t wanted = waited_for();
  ::sigprocmask(SIG_BLOCK, &wanted, &before_);
  fd_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

ChildSignals::~ChildSignals() {
  ::close(fd_);
  const sigset_t wanted = waited_for();
  const timespec at_once{};
  while (::sigtimedwait(&wanted, nullptr, &at_once) > 0) {
  }
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int run_child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
              const ChildSignals& signals, int watch_fd, const std::function<void()>& on_watch) {
  const pid_t pid = start(command, environment, signals.before());
  for (;;) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (got < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "waitpid");
    pollfd fds[] = {{signals.fd(), POLLIN, 0}, {watch_fd, POLLIN, 0}};  // a negative one is passed over
    if (::poll(fds, 2, -1) <= 0) continue;
    signalfd_siginfo info;
    while (::read(signals.fd(), &info, sizeof info) == ssize_t(sizeof info))
      if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL) ::kill(pid, int(info.ssi_signo));
    if (watch_fd >= 0 && fds[1].revents != 0) {
      watch_fd = -1;
      on_watch();
    }
  }
}

}  // namespace r2bench
