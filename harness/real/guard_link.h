// SPDX-License-Identifier: Apache-2.0
// This process's end of a guard: starts it in a session of its own, tells it what to do, and never waits but
// in the destructor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/real/change.h"

namespace r2bench {

struct GuardAnswer {
  uint64_t id = 0;
  bool undone = false;  ///< else applied
  bool ok = false;
  uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC; since when the machine says so
  std::string said;
};

class GuardLink {
 public:
  /// `program`: the path of r2bench-real-guard. Throws std::system_error when it cannot be started.
  explicit GuardLink(const std::string& program);
  GuardLink(const GuardLink&) = delete;
  /// Waits until everything is put back, for the length of its commands.
  ~GuardLink();

  void apply(uint64_t id, const Change& change);
  void undo(uint64_t id);
  /// Those that have come since.
  std::vector<GuardAnswer> answers();
  pid_t pid() const { return pid_; }
  /// Has the guard ended before its time? Then nothing is put back any more.
  bool lost() const { return lost_; }

 private:
  void send(const std::string& line);

  int socket_ = -1;
  pid_t pid_ = -1;
  bool lost_ = false;
  std::string pending_;
};

}  // namespace r2bench
