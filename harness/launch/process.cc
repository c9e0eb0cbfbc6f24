// SPDX-License-Identifier: Apache-2.0
#include "harness/launch/process.h"

#include <fcntl.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "harness/base/children.h"

namespace r2bench {
namespace {

[[noreturn]] void report_and_exit(int fd) {
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(fd, &error, sizeof(error));
  _exit(127);
}

/// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const ProcessSpec& spec, char* const* argv, char* const* envp, pid_t parent,
                         int status_fd) {
  // A process group, not a session: the scheduler shares the CPUs out between sessions first (autogroup), and
  // on a crowded machine a thread that hardly runs then waits seconds for its turn behind its own session's
  // busy one.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, spec.death_signal);
  if (getppid() != parent) _exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGCHLD}) ::signal(s, SIG_DFL);
  // Above everything that is about to be overwritten.
  const int output = fcntl(spec.output_fd, F_DUPFD, 10),
            control = spec.control_fd < 0 ? -1 : fcntl(spec.control_fd, F_DUPFD, 10);
  int inherited[Process::kMostInherited];
  const auto count = int(spec.inherited.size());
  for (int i = 0; i < count; ++i)
    if ((inherited[i] = fcntl(spec.inherited[size_t(i)], F_DUPFD, 10)) < 0) report_and_exit(status_fd);
  const int status = fcntl(status_fd, F_DUPFD_CLOEXEC, 10), input = open("/dev/null", O_RDONLY);
  if (output < 0 || status < 0 || input < 0) report_and_exit(status_fd);
  dup2(input, 0);
  dup2(output, 1);
  dup2(output, 2);
  if (control >= 0) dup2(control, Process::kControlFd);
  dup2(status, 4);
  fcntl(4, F_SETFD, FD_CLOEXEC);
  if (control < 0) ::close(Process::kControlFd);
  for (int i = 0; i < count; ++i) dup2(inherited[i], Process::kFirstInherited + i);
  const int behind = Process::kFirstInherited + count;
  if (syscall(SYS_close_range, unsigned(behind), ~0u, 0u) != 0)
    for (int fd = behind; fd < 65536; ++fd) ::close(fd);
  execve(spec.program.c_str(), argv, envp);
  report_and_exit(4);
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

Process::Process(const ProcessSpec& spec) {
  keep_exit_statuses();
  static_assert(kFirstInherited + kMostInherited <= 10);  // become() keeps its own from 10 on
  if (spec.inherited.size() > kMostInherited)
    throw std::system_error(EMFILE, std::generic_category(), "too many descriptors for " + spec.program);
  std::vector<char*> argv{const_cast<char*>(spec.program.c_str())}, envp;
  for (const auto& argument : spec.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> pairs;
  for (const auto& [name, value] : spec.environment) pairs.push_back(name + "=" + value);
  for (auto& pair : pairs) envp.push_back(pair.data());
  envp.push_back(nullptr);

  int status_pipe[2];
  if (pipe2(status_pipe, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(spec, argv.data(), envp.data(), parent, status_pipe[1]);
  const int fork_error = errno;
  ::close(status_pipe[1]);
  int error = 0;
  ssize_t n = 0;
  if (pid_ > 0)
    while ((n = read(status_pipe[0], &error, sizeof(error))) < 0 && errno == EINTR) {
    }
  ::close(status_pipe[0]);
  if (pid_ < 0) throw std::system_error(fork_error, std::generic_category(), "cannot start a process");
  if (n == ssize_t(sizeof(error))) {
    kill();
    throw std::system_error(error, std::generic_category(), "cannot execute " + spec.program);
  }
}

Process::~Process() { kill(); }

std::optional<int> Process::ended() {
  if (status_ || pid_ <= 0) return status_;
  siginfo_t how{};
  // It stays a zombie until kill(), so that its number, and that of its group, are nobody else's.
  const int got = waitid(P_PID, id_t(pid_), &how, WEXITED | WNOHANG | WNOWAIT);
  if (got == 0 && how.si_pid == pid_)
    status_ = how.si_code == CLD_EXITED ? how.si_status << 8 : how.si_status;
  if (got < 0 && errno == ECHILD) status_ = 127 << 8;  // somebody else has waited for it: no success
  return status_;
}

bool Process::signal(int number) { return !ended() && ::kill(pid_, number) == 0; }

void Process::kill() {
  if (pid_ <= 0) return;
  const bool had_ended = ended().has_value();
  // The child leads its own group, but only once it has come to setpgid(): the pid itself is always right.
  if (!had_ended) ::kill(pid_, SIGKILL);
  ::kill(-pid_, SIGKILL);  // what it may have started itself; harmless when the group is empty
  int status = 0;
  pid_t got = -1;
  while ((got = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  if (!status_ && got == pid_) status_ = status;
  pid_ = -1;
}

std::map<std::string, std::string> current_environment() {
  std::map<std::string, std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

std::string preload_value(const std::vector<std::string>& libraries) {
  std::string value;
  const auto add = [&](const std::string& path) {
    if (!path.empty()) value += (value.empty() ? "" : ":") + path;
  };
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string path = info->dlpi_name ? info->dlpi_name : "";
        for (const char* runtime : {"/libasan.so", "/libtsan.so", "/libclang_rt.asan", "/libclang_rt.tsan"})
          if (path.find(runtime) != std::string::npos) (*static_cast<decltype(add)*>(out))(path);
        return 0;
      },
      const_cast<void*>(static_cast<const void*>(&add)));
  for (const auto& library : libraries) add(library);
  return value;
}

}  // namespace r2bench
