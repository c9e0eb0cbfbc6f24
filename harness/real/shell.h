// SPDX-License-Identifier: Apache-2.0
// A command of /bin/sh, with a bound.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace r2bench {

inline constexpr size_t kMostShellOutput = 256u << 10;  ///< bytes

inline constexpr std::chrono::seconds kSignalGrace{60};

struct ShellResult {
  int exit_code = 0;    ///< 128 + signal when one ended it, 124 when it took longer than allowed
  std::string output;   ///< stdout and stderr together, without the last line's end
  bool cut = false;     ///< there was more output than kMostShellOutput
  bool started = true;  ///< false, with exit_code 127, of run_shell_or_tell(): `output` says why not
  bool late =
      false;  ///< it was killed, with exit_code 124, because it took longer than allowed, or ignored a signal
};

/// Waits for its end, at most `limit`; then it is killed with all that it started. `meanwhile` is called
/// about every 200 µs until then. Needs no thread and keeps no descriptor; SIGPIPE, SIGINT, SIGTERM, SIGHUP
/// and SIGCHLD are the command's defaults. `caught` is asked as often: the first number other than 0 is a
/// signal for the command and all that it started, whose end is then waited for; what has not ended
/// kSignalGrace later is killed. What leaves the command's process group (setsid) gets no signal.
/// `inherited`: a descriptor that the command and all that it starts have open, too.
ShellResult run_shell(const std::string& command, std::chrono::milliseconds limit,
                      const std::function<void()>& meanwhile = {}, const std::function<int()>& caught = {},
                      int inherited = -1);
/// For a caller that has to go on: where run_shell() throws std::system_error, because no pipe or process can
/// be made, this is a command that has failed.
ShellResult run_shell_or_tell(const std::string& command, std::chrono::milliseconds limit,
                              const std::function<void()>& meanwhile = {});

}  // namespace r2bench
