// SPDX-License-Identifier: Apache-2.0
// This process's end of a guard: starts it in a session and, where systemd is there, a scope of its own, so
// that it outlives a job step that is killed as a cgroup; starts another when it is killed; tells it what to
// do. Waits for the machine in the destructor only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/real/change.h"
#include "harness/real/undo_list.h"

namespace r2bench {

struct GuardAnswer {
  uint64_t id = 0;
  bool undone = false;  ///< else applied
  bool ok = false;
  uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC; since when the machine says so
  std::string said;
};

/// The path of systemd-run where systemd runs the machine and this process is root; else empty.
std::string find_systemd_run();

class GuardLink {
 public:
  /// `program`: the path of r2bench-real-guard. `systemd_run`: with what a scope is made; empty: none is.
  /// Throws std::system_error when it cannot be started, RealFaultError when it can keep no undo list.
  explicit GuardLink(std::string program, std::string undo_folder = kUndoFolder,
                     std::string systemd_run = find_systemd_run());
  GuardLink(const GuardLink&) = delete;
  /// Waits until everything is put back, for the length of its commands.
  ~GuardLink();

  void apply(uint64_t id, const Change& change);
  void undo(uint64_t id);
  /// Those that have come since.
  std::vector<GuardAnswer> answers();
  pid_t pid() const { return pid_; }
  /// How often a guard has been killed, and another has taken over its list of changes.
  int takeovers() const { return takeovers_; }
  /// Has the last of them ended before its time, too? Then nothing is put back until r2bench runs again.
  bool lost() const { return lost_; }

 private:
  void start(const std::string& systemd_run);
  /// Waits for the guard's first word; empty: it came. Else why not.
  std::string not_ready();
  /// Another guard for one that is gone: what it had not answered is asked again.
  void take_over();
  void end();
  void send(const nlohmann::json& request);

  std::string program_, undo_folder_, list_, systemd_run_;
  int socket_ = -1;
  pid_t pid_ = -1;
  int takeovers_ = 0;
  bool lost_ = false;
  std::string pending_;
  std::vector<nlohmann::json> unanswered_;
};

}  // namespace r2bench
