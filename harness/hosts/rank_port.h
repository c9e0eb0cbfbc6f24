// SPDX-License-Identifier: Apache-2.0
// One rank's process and the connection to it, wherever it lives.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace r2bench {

class RankPort {
 public:
  virtual ~RankPort() = default;

  /// false: the rank is gone, or has not called yet.
  virtual bool send(const nlohmann::json& message) = 0;
  /// The next message that is there; never waits. Times in it are the runner's.
  virtual std::optional<nlohmann::json> receive() = 0;
  /// On its own host; -1 before it was started.
  virtual pid_t pid() const = 0;
  /// waitpid's status once it has ended. Never waits.
  virtual std::optional<int> ended() = 0;
  /// Sends a signal, unless it has ended. Returns when that was, on the runner's CLOCK_MONOTONIC; 0: it was
  /// not sent, or nobody knows.
  virtual uint64_t signal(int number) = 0;
};

}  // namespace r2bench
