// SPDX-License-Identifier: Apache-2.0
// A user's command as a child of the rank: started with everything that the rank has, its output read line by
// line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

class Command {
 public:
  /// Starts it in this process's group, so that whoever ends the group ends what the command has started,
  /// too; when this process dies in any way the whole group is killed, and what has left the group with the
  /// environment that it was given. Throws std::system_error when it cannot be executed.
  Command(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment);
  /// SIGKILL to it and to all that it started and that is found by its mark, in whatever group. Waits for its
  /// end, and for a short time, half a second on a machine with few processes, for the others.
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Waits for output for at most `wait`; hands over each whole line, without its end. false: there is no
  /// more.
  bool read(std::chrono::milliseconds wait, const std::function<void(const std::string&)>& line);
  /// Hands over what has been printed before this call, the begun last line included, and no more: whoever
  /// else has the output open may print for ever. The output is closed then.
  void read_rest(const std::function<void(const std::string&)>& line);
  /// waitpid's status once it has ended. Never blocks.
  std::optional<int> ended();
  /// Asks it and all that it has started to end (SIGTERM); this process ignores that signal from its
  /// construction on.
  void terminate();

 private:
  void start_guard();
  void take(const char* text, size_t bytes, const std::function<void(const std::string&)>& line);

  pid_t pid_ = -1, guard_ = -1;
  std::string mark_;
  int output_ = -1, guard_socket_ = -1;
  std::string begun_;  ///< a line whose end has not come
  std::optional<int> status_;
};

/// "exit code 3", "signal 11 (Segmentation fault)" of waitpid's status.
std::string how_it_ended(int status);

}  // namespace r2bench
