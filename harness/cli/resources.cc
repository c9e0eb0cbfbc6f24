// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/resources.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "harness/report/run_folder.h"
#include "harness/run/runner.h"

extern char** environ;

namespace r2bench {
namespace fs = std::filesystem;

void write_file(const fs::path& file, const std::string& text, std::ios::openmode mode) {
  std::ofstream stream(file, std::ios::binary | std::ios::out | mode);
  stream << text << std::flush;
  if (!stream) throw OutputError(file.string() + ": cannot be written");
}

void check_writable(const fs::path& file) {
  const auto cannot = [&](int error) {
    throw OutputError(file.string() + ": cannot be written: " + std::strerror(error));
  };
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) cannot(EISDIR);
    // Opening a pipe waits for its reader, and closing it again would be the end of what the reader gets.
    if (::faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) != 0) cannot(errno);
    return;
  }
  const int made = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made >= 0) ::unlink(file.c_str());
  const int opened = made >= 0 || errno != EEXIST ? made : ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (opened < 0) cannot(errno);
  ::close(opened);
}

fs::path program_prefix() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : program.parent_path().parent_path();
}

fs::path share_or_throw() {
  if (const auto share = share_folder()) return *share;
  throw UsageError(
      "the scenarios and scripts of this program are not found; set R2BENCH_SHARE to the folder that holds "
      "scenarios/, plots/ and results/");
}

std::optional<fs::path> share_folder() {
  std::vector<fs::path> candidates;
  if (const char* given = std::getenv("R2BENCH_SHARE"); given != nullptr && *given != '\0')
    candidates.emplace_back(given);
  candidates.push_back(program_prefix() / "share" / "r2ccl");
  candidates.emplace_back(R2BENCH_SOURCE_DIR);
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    if (fs::exists(candidate / "results" / "schema.json", ignored)) return candidate;
  }
  return std::nullopt;
}

fs::path find_scenario(const std::string& named) {
  std::error_code ignored;
  const fs::path path(named);
  if (fs::exists(path, ignored) || path.has_parent_path()) return path;
  if (const auto share = share_folder()) {
    for (const std::string& name : {named, named + ".yaml"}) {
      if (fs::exists(*share / "scenarios" / name, ignored)) return *share / "scenarios" / name;
    }
    // The message about a missing file then suggests one of ours.
    if (path.extension() != ".yaml") return *share / "scenarios" / (named + ".yaml");
  }
  return path;
}

std::optional<fs::path> find_python() {
  std::vector<fs::path> candidates;
  if (const char* given = std::getenv("R2BENCH_PYTHON"); given != nullptr && *given != '\0')
    return fs::path(given);
  candidates.emplace_back("/usr/bin/python3");
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    candidates.push_back(fs::path(folder) / "python3");
  for (const fs::path& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

ProcessResult run_helper(const std::vector<std::string>& command, int seconds) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  if (error != 0) {
    ::close(pipe[0]);
    return {127, command[0] + ": " + std::strerror(error)};
  }
  ProcessResult result;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  bool timed_out = false;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait{pipe[0], POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      timed_out = true;
      ::kill(pid, SIGKILL);
      break;
    }
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(pipe[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (result.output.size() < (1u << 16)) result.output.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = timed_out ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace r2bench
