// SPDX-License-Identifier: Apache-2.0
// The runner's side of one rank: what it has said so far, and the way to it.
#pragma once

#include <csignal>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/rank_port.h"
#include "harness/measure/result.h"

namespace r2bench {

/// Adds what a rank says of its surroundings to what the ranks before it have said: the same is said once,
/// and something else is named with the first rank that says so, "2.28.9; node1/rank0: 2.27.3".
void add_fact(std::string& all, const std::string& value, const std::string& label);

class RankLink {
 public:
  RankLink(int rank, int node, std::string label) : rank_(rank), node_(node), label_(std::move(label)) {}

  /// The rank has been started; `port` must outlive the link.
  void attach(RankPort& port) { port_ = &port; }
  void send(const nlohmann::json& message) {
    if (port_) port_->send(message);
  }
  /// Reads every message that is there. Returns how many there were.
  size_t poll();

  int rank() const { return rank_; }
  int node() const { return node_; }
  const std::string& label() const { return label_; }
  pid_t pid() const { return port_ ? port_->pid() : -1; }
  /// Sends a signal, unless it has ended. Returns when that was.
  uint64_t signal(int number) { return port_->signal(number); }
  /// waitpid's status.
  std::optional<int> ended() { return port_ ? port_->ended() : std::nullopt; }

  uint64_t prepared =
      0;  ///< operations that it is ready to begin, or has begun; only where groups keep in step
  bool hello = false, ready = false, warm = false, finished = false, aborted = false;
  bool has_error = false;
  std::string error, error_kind;
  std::string
      plugin_words;  ///< the plugin's warning in the call that failed, or else its last before the error
  uint64_t error_ns = 0;
  std::string plugin_name;
  int plugin_abi = 0;                        ///< 0: the rank cannot know (NCCL has loaded it)
  std::map<std::string, std::string> facts;  ///< of its surroundings, for the result: GPU, driver, NCCL
  std::vector<std::string> devices;
  nlohmann::json handles;  ///< per channel: where the rank listens
  std::vector<size_t>
      shifts;           ///< per channel: how many places on in the ring the rank is that it connects to
  uint64_t cpu_ns = 0;  ///< of the counted operations; 0 while it has not said
  std::vector<uint64_t> cpu_by_side_ns;  ///< within operations, where two sides take turns
  Correctness correctness;               ///< checked_iterations is this rank's own
  std::vector<std::string> warnings;
  /// Of the engine exec: a line of output, and what it says of operations.
  struct Printed {
    uint64_t time_ns = 0;
    bool begun = false, iteration = false;
  };
  std::deque<Printed> printed;
  std::optional<CommandResult> command;  ///< how it ended
  uint64_t command_ended_ns = 0;
  std::optional<RenewalResult> renewal;  ///< of the engine nccl
  /// Times of receiver sleeps, from and to.
  std::deque<std::pair<uint64_t, uint64_t>> slept;

 private:
  void take(const nlohmann::json& message);

  int rank_;
  int node_;
  std::string label_;
  RankPort* port_ = nullptr;
};

}  // namespace r2bench
