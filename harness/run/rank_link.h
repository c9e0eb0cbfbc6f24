// The runner's side of one rank: its process, its control connection, and what it has said so far.
#pragma once

#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/bootstrap.h"
#include "harness/launch/process.h"
#include "harness/measure/result.h"

namespace r2bench {

class RankLink {
 public:
  RankLink(int rank, int node, std::string label) : rank_(rank), node_(node), label_(std::move(label)) {}

  void start(const ProcessSpec& spec) { process_ = std::make_unique<Process>(spec); }
  /// Takes the connection when the rank has called; sends `config` first. true once it is there.
  bool connect(Bootstrap& bootstrap, const nlohmann::json& config);
  void send(const nlohmann::json& message) { socket_.send(message); }
  /// Reads every message that is there. Returns how many there were.
  size_t poll();

  int rank() const { return rank_; }
  int node() const { return node_; }
  const std::string& label() const { return label_; }
  pid_t pid() const { return process_ ? process_->pid() : -1; }
  Process& process() { return *process_; }
  /// waitpid's status.
  std::optional<int> ended() { return process_ ? process_->ended() : std::nullopt; }

  uint64_t prepared =
      0;  ///< operations that it is ready to begin, or has begun; only where groups keep in step
  bool hello = false, ready = false, warm = false, finished = false, aborted = false;
  bool has_error = false;
  std::string error, error_kind;
  std::string plugin_words;  ///< the plugin's last warning before the error; what it says while it closes comes later
  uint64_t error_ns = 0;
  std::string plugin_name;
  int plugin_abi = 0;                        ///< 0: the rank cannot know (NCCL has loaded it)
  std::map<std::string, std::string> facts;  ///< of its surroundings, for the result: GPU, driver, NCCL
  uint64_t collnet_operations = 0;           ///< that went through CollNet, warm-ups included
  std::vector<std::string> devices;
  nlohmann::json handles;  ///< per channel: where the rank listens
  std::vector<size_t>
      shifts;               ///< per channel: how many places on in the ring the rank is that it connects to
  uint64_t cpu_ns = 0;      ///< of the counted operations; 0 while it has not said
  Correctness correctness;  ///< checked_iterations is this rank's own
  std::vector<std::string> warnings;
  /// Times of receiver sleeps, from and to.
  std::deque<std::pair<uint64_t, uint64_t>> slept;

 private:
  void take(const nlohmann::json& message);

  int rank_;
  int node_;
  std::string label_;
  MessageSocket socket_;
  std::unique_ptr<Process> process_;
};

}  // namespace r2bench
