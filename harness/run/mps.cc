// SPDX-License-Identifier: Apache-2.0
#include "harness/run/mps.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "harness/launch/marked_processes.h"
#include "harness/launch/process.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

constexpr const char* kControl = "nvidia-cuda-mps-control";
// $0: the folder, $1: the bound in seconds. The daemon is told to quit; clients that are left after five
// seconds are ended with it.
constexpr const char* kKeeper =
    "cat >/dev/null; echo 'quit -t 5' | timeout -k 5 \"$1\" nvidia-cuda-mps-control >/dev/null 2>&1; "
    "rm -rf -- \"$0\"";

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Without the marks of a command that this run is part of: what ends that command's processes would kill the
/// daemon, and the keeper before it has cleaned up. Both end with this process.
std::vector<std::string> with(const std::map<std::string, std::string>& more) {
  auto environment = current_environment();
  for (const char* mark : {kMarkVariable, kCommandMarkVariable}) environment.erase(mark);
  for (const auto& [variable, value] : more) environment[variable] = value;
  std::vector<std::string> texts;
  for (const auto& [variable, value] : environment) texts.push_back(variable + "=" + value);
  return texts;
}

/// Starts a program of PATH in a session of its own, so that no Ctrl-C reaches it; `stdin_fd` -1: /dev/null.
pid_t spawn(std::vector<std::string> command, const std::map<std::string, std::string>& environment,
            int stdin_fd) {
  std::vector<std::string> variables = with(environment);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (stdin_fd >= 0)
    posix_spawn_file_actions_adddup2(&files, stdin_fd, 0);
  else
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t child = -1;
  const int error = posix_spawnp(&child, command[0].c_str(), &files, &attributes, pointers(command).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::system_error(error, std::generic_category(), command[0]);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// Within `bound`; else it is killed with its session, and its status is that.
int wait_for(pid_t child, std::chrono::seconds bound) {
  const auto deadline = std::chrono::steady_clock::now() + bound;
  int status = 0;
  for (pid_t got = 0; (got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR);
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (std::chrono::steady_clock::now() > deadline) {
      kill(-child, SIGKILL);
      return wait_for(child);
    }
  return status;
}

}  // namespace

MpsDaemon::MpsDaemon(std::chrono::seconds bound) {
  if (const char* users = std::getenv("CUDA_MPS_PIPE_DIRECTORY"); users && *users) {
    users_ = users;
    return;
  }
  char folder[] = "/tmp/r2bench-mps-XXXXXX";
  if (!mkdtemp(folder)) throw std::system_error(errno, std::generic_category(), folder);
  const std::string pipe = std::string(folder) + "/pipe", log = std::string(folder) + "/log";
  mkdir(pipe.c_str(), 0700);
  mkdir(log.c_str(), 0700);
  environment_ = {{"CUDA_MPS_PIPE_DIRECTORY", pipe}, {"CUDA_MPS_LOG_DIRECTORY", log}};
  start_keeper(folder, bound);  // first: whatever happens from here on, it cleans up
  std::string why;
  try {
    const int status = wait_for(spawn({kControl, "-d"}, environment_, -1), bound);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      why = "it did not start; try 'nvidia-cuda-mps-control -d'";
  } catch (const std::system_error& error) {
    why = error.code().message();
  }
  if (why.empty()) return;
  close(keeper_pipe_);
  wait_for(keeper_);
  keeper_ = -1;
  throw UsageError("'mps: true' needs " + std::string(kControl) +
                   ", which comes with the NVIDIA driver: " + why);
}

void MpsDaemon::start_keeper(const std::string& folder, std::chrono::seconds bound) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  try {
    keeper_ = spawn({"sh", "-c", kKeeper, folder, std::to_string(bound.count())}, environment_, ends[0]);
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    throw;
  }
  close(ends[0]);
  keeper_pipe_ = ends[1];
}

MpsDaemon::~MpsDaemon() {
  if (keeper_ < 0) return;
  close(keeper_pipe_);
  wait_for(keeper_);
}

std::string MpsDaemon::describe() const { return users_.empty() ? "of this run" : "the user's, " + users_; }

}  // namespace r2bench
