// SPDX-License-Identifier: Apache-2.0
// The program that a command runs: has the command's terminal, gets the signals that the command gets, and
// never outlives it.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace r2bench {

/// While one lives, the signals that would end this process wait to be handed to its child. To be made before
/// the child is started; what a terminal sends (Ctrl-C) reaches the child by itself and is not handed on.
class ChildSignals {
 public:
  ChildSignals();
  ~ChildSignals();  ///< what is still waiting is dropped
  ChildSignals(const ChildSignals&) = delete;
  ChildSignals& operator=(const ChildSignals&) = delete;

  int fd() const { return fd_; }  ///< a signalfd
  const sigset_t& before() const { return before_; }

 private:
  int fd_ = -1;
  sigset_t before_{};
};

/// Runs `command` (found in PATH) with exactly `environment`, in this process group, with stdin, stdout and
/// stderr of this process; the kernel kills it when this process dies. Waits for it. When `watch_fd` (-1:
/// none) becomes readable or closes, `on_watch` is called once. Returns its exit status, 128 + signal when
/// one ended it. Throws std::system_error when it cannot be started: ENOENT when there is no such program.
int run_child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
              const ChildSignals& signals, int watch_fd, const std::function<void()>& on_watch);

}  // namespace r2bench
