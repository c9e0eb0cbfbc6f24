// SPDX-License-Identifier: Apache-2.0
// What r2bench-real-guard does: carries out changes that it is told over a socket, tells when the machine
// itself says that they have taken effect, and puts back what is still changed when the socket ends, however
// the other end came to end. A request is a line of JSON:
//   {"do": "apply", "id": 1, "change": {…}}    {"do": "undo", "id": 1}
// and so is each answer: {"id", "did", "ok", "time_ns", "said"}; time_ns is CLOCK_MONOTONIC, `said` a
// sentence. The first answer, "ready", comes unasked. A request with "again" is one that an earlier guard may
// have carried out before it was killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/real/change.h"

namespace r2bench {

class UndoList;

class Guard {
 public:
  /// `limit`: of each command, and of the time from a change until the machine says so. With a list, what is
  /// on it has been changed already, and every change is on it for as long as it is not put back.
  explicit Guard(std::chrono::milliseconds limit, UndoList* list = nullptr);

  /// Gets an answer as soon as it is final.
  using Hear = std::function<void(const nlohmann::json& answer)>;
  /// Carries out one request. A change is remembered before its first command, and forgotten when the machine
  /// says that it is put back. The answer to an undo with a command that fails comes from retry(); several
  /// such undos wait together, and an apply waits for them. A command that cannot be started has failed.
  void begin(const nlohmann::json& request, const Hear& hear);
  /// Tries once more each command of an undo that has failed.
  void retry(const Hear& hear);
  /// Whether an undo waits for retry(), which is to be called every kBetweenTries.
  bool waits() const { return !waiting_.empty(); }
  static constexpr std::chrono::milliseconds kBetweenTries{100};

  /// begin(), and retry() until the request is answered.
  nlohmann::json carry_out(const nlohmann::json& request);
  /// The latest change first. `tell` gets a sentence for each. What cannot be put back stays remembered.
  void put_all_back(const std::function<void(const std::string&)>& tell);
  size_t changed() const { return applied_.size(); }

 private:
  struct Done {
    bool ok = false;
    uint64_t time_ns = 0;
    std::string said;
  };
  /// An undo with commands that have failed: a route may have to wait for the address that its gateway is
  /// reached from.
  struct Waiting {
    uint64_t id = 0;
    Done done;
    std::vector<std::string> failed;
    std::chrono::steady_clock::time_point deadline;
  };
  Done run(const std::vector<std::string>& commands, const Probe& probe, std::vector<std::string>* failed);

  Done apply(uint64_t id, const Change& change);
  /// nullopt: it waits.
  std::optional<Done> undo(uint64_t id);
  void forget(uint64_t id, Done& done);
  static nlohmann::json answer(uint64_t id, const std::string& did, const Done& done);

  std::chrono::milliseconds limit_;
  UndoList* list_;
  std::map<uint64_t, Change> applied_;
  std::vector<Waiting> waiting_;
};

/// The program: serves descriptor `socket` until its other end is gone, with list `name` in `folder`. Never
/// ends by SIGINT, SIGTERM or SIGHUP. Returns its exit status.
int guard_main(int socket, const std::string& folder, const std::string& name);

}  // namespace r2bench
