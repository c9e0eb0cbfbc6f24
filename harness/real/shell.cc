// SPDX-License-Identifier: Apache-2.0
#include "harness/real/shell.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "harness/base/children.h"

extern char** environ;

namespace r2bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kStatusLost = 127, kNotStarted = 127;
constexpr std::chrono::milliseconds kBetweenLooks{20};  // each goes through /proc

struct Attributes {
  posix_spawnattr_t value;
  posix_spawn_file_actions_t actions;
  Attributes() {
    posix_spawnattr_init(&value);
    posix_spawn_file_actions_init(&actions);
  }
  ~Attributes() {
    posix_spawnattr_destroy(&value);
    posix_spawn_file_actions_destroy(&actions);
  }
};

/// Whether any process of the group lives. One that has ended is of the group until its parent has waited for
/// it, which nobody does where the machine's process 1 does not.
bool group_lives(pid_t group) {
  if (kill(-group, 0) != 0 && errno == ESRCH) return false;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text, '\0') || text.rfind(')') == text.npos) continue;
    std::istringstream rest(text.substr(text.rfind(')') + 1));  // behind the name: state, parent, group
    char state = 0;
    pid_t parent = 0, its = 0;
    if (rest >> state >> parent >> its && its == group && state != 'Z' && state != 'X') return true;
  }
  return false;
}

/// Returns the error, or 0.
int start(const std::string& command, int output, int inherited, pid_t& child) {
  Attributes attributes;
  sigset_t defaults, none;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int each : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&defaults, each);
  posix_spawnattr_setsigdefault(&attributes.value, &defaults);
  posix_spawnattr_setsigmask(&attributes.value, &none);
  posix_spawnattr_setpgroup(&attributes.value, 0);
  posix_spawnattr_setflags(&attributes.value,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_addopen(&attributes.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&attributes.actions, output, 1);
  posix_spawn_file_actions_adddup2(&attributes.actions, output, 2);
  if (inherited >= 0)  // onto itself: it is no longer closed by exec
    posix_spawn_file_actions_adddup2(&attributes.actions, inherited, inherited);
  const char* words[] = {"/bin/sh", "-c", command.c_str(), nullptr};
  return posix_spawn(&child, words[0], &attributes.actions, &attributes.value,
                     const_cast<char* const*>(words), environ);
}

/// Why a command could not be started.
struct NotStarted {
  int error;
  const char* what;  ///< what could not be made
};

/// As run_shell(), into `result`.
std::optional<NotStarted> run(const std::string& command, std::chrono::milliseconds limit,
                              const std::function<void()>& meanwhile, const std::function<int()>& caught,
                              int inherited, ShellResult& result) {
  keep_exit_statuses();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NotStarted{errno, "pipe2"};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  pid_t child = -1;
  const int error = start(command, ends[1], inherited, child);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return NotStarted{error, "/bin/sh"};
  }
  const auto read_some = [&] {
    std::array<char, 4096> buffer{};
    for (ssize_t n; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
      if (result.output.size() < kMostShellOutput)
        result.output.append(buffer.data(), size_t(n));
      else
        result.cut = true;
  };
  auto deadline = Clock::now() + limit;
  auto next_look = Clock::now();
  int status = 0;
  bool killed = false, told = false, shell_ended = false;
  // The shell dies of the signal at once; what it started may have to clean up.
  const auto group_has_ended = [&] {
    if (!told || killed) return true;
    if (Clock::now() < next_look) return false;
    next_look = Clock::now() + kBetweenLooks;
    return !group_lives(child);
  };
  for (;;) {
    read_some();
    if (meanwhile) meanwhile();
    if (const int signal = caught && !told ? caught() : 0; signal != 0) {
      kill(-child, signal);
      told = true;
      deadline = std::min(deadline, Clock::now() + kSignalGrace);
    }
    const pid_t ended = shell_ended ? child : waitpid(child, &status, WNOHANG);
    shell_ended = ended == child;
    if (shell_ended && group_has_ended()) {
      result.late = killed;
      result.exit_code = killed ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    if (ended < 0 && errno == ECHILD) {  // somebody else has waited for it
      result.exit_code = kStatusLost;
      break;
    }
    if (!killed && Clock::now() >= deadline) {
      kill(-child, SIGKILL);
      killed = true;
    }
    usleep(200);
  }
  read_some();
  close(ends[0]);
  while (!result.output.empty() && result.output.back() == '\n') result.output.pop_back();
  return std::nullopt;
}

}  // namespace

ShellResult run_shell(const std::string& command, std::chrono::milliseconds limit,
                      const std::function<void()>& meanwhile, const std::function<int()>& caught,
                      int inherited) {
  ShellResult result;
  if (const auto failure = run(command, limit, meanwhile, caught, inherited, result))
    throw std::system_error(failure->error, std::generic_category(), failure->what);
  return result;
}

// Without exceptions: a process that can open nothing is what it is for, and there UBSan calls any exception
// of a type that it has not seen yet one of a wrong type (it needs a pipe to read the object).
ShellResult run_shell_or_tell(const std::string& command, std::chrono::milliseconds limit,
                              const std::function<void()>& meanwhile) {
  ShellResult result;
  if (const auto failure = run(command, limit, meanwhile, {}, -1, result))
    return {.exit_code = kNotStarted,
            .output = std::string(failure->what) + ": " + std::strerror(failure->error),
            .started = false};
  return result;
}

}  // namespace r2bench
