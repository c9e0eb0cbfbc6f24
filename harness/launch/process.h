// SPDX-License-Identifier: Apache-2.0
// A child process that cannot outlive its parent: its own session, killed by the kernel when the thread that
// started it dies, its output captured by somebody else. Knows nothing of ranks.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

/// `word` in single quotes: one word of a command line of /bin/sh, whatever characters it has.
std::string shell_quoted(const std::string& word);

struct ProcessSpec {
  std::string program;  ///< a path
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< all of it
  int output_fd = -1;                              ///< becomes stdout and stderr
  int control_fd = -1;                             ///< becomes descriptor 3
  std::vector<int>
      inherited;  ///< become kFirstInherited and so on, kMostInherited at most; all others are closed
  int death_signal = SIGKILL;  ///< what the kernel sends it when the thread that started it dies
};

class Process {
 public:
  static constexpr int kControlFd = 3;
  static constexpr int kFirstInherited = 5;
  static constexpr size_t kMostInherited = 4;

  /// Starts it, with keep_exit_statuses(). Throws std::system_error when it cannot be executed.
  explicit Process(const ProcessSpec& spec);
  /// Kills it and waits for it.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// waitpid's status once it has ended. Never blocks.
  std::optional<int> ended();
  /// Sends a signal, unless it has ended (then its number may be somebody else's). Whether it was sent.
  bool signal(int number);
  /// SIGKILL to its whole session's group, then waits.
  void kill();

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// This process's environment as a map.
std::map<std::string, std::string> current_environment();

/// The value for LD_PRELOAD that puts `libraries` into a child: a sanitizer's runtime that this program was
/// built with must come first, or it refuses to start. Empty elements are left out.
std::string preload_value(const std::vector<std::string>& libraries);

}  // namespace r2bench
