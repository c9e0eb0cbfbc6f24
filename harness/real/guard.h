// SPDX-License-Identifier: Apache-2.0
// What r2bench-real-guard does: carries out changes that it is told over a socket, tells when the machine
// itself says that they have taken effect, and puts back what is still changed when the socket ends, however
// the other end came to end. A request is a line of JSON:
//   {"do": "apply", "id": 1, "change": {…}}    {"do": "undo", "id": 1}
// and so is each answer: {"id", "did", "ok", "time_ns", "said"}; time_ns is CLOCK_MONOTONIC, `said` a
// sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/real/change.h"

namespace r2bench {

class Guard {
 public:
  /// `limit`: of each command, and of the time from a change until the machine says so.
  explicit Guard(std::chrono::milliseconds limit) : limit_(limit) {}

  /// Carries out one request, waits for its end. A change is remembered before its first command.
  nlohmann::json carry_out(const nlohmann::json& request);
  /// The latest change first. `tell` gets a sentence for each.
  void put_all_back(const std::function<void(const std::string&)>& tell);
  size_t changed() const { return applied_.size(); }

 private:
  struct Done {
    bool ok = false;
    uint64_t time_ns = 0;
    std::string said;
  };
  Done run(const std::vector<std::string>& commands, const Probe& probe, bool to_the_end);

  std::chrono::milliseconds limit_;
  std::map<uint64_t, Change> applied_;
};

/// The program: serves descriptor `socket` until its other end is gone. Never ends by SIGINT, SIGTERM or
/// SIGHUP. Returns its exit status.
int guard_main(int socket);

}  // namespace r2bench
