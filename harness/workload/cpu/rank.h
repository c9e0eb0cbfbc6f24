// SPDX-License-Identifier: Apache-2.0
// A rank: takes its configuration from the runner, connects its ring, runs verified operations for as long as
// the runner grants them, and reports. The whole life of one r2bench-cpu-rank process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "harness/scenario/turns.h"
#include "harness/workload/cpu/connections.h"
#include "harness/workload/cpu/proxy.h"
#include "harness/workload/cpu/rank_config.h"
#include "harness/workload/runner_talk.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {

class Rank {
 public:
  explicit Rank(MessageSocket socket);

  /// Everything from the first message to the last. Returns a RankExit; never throws.
  int run();

 private:
  /// What the runner says to this engine alone. On the listening thread.
  void hear(const nlohmann::json& message);
  void say(const nlohmann::json& message) { talk_.say(message); }

  void set_up();
  /// Opens and prepares all sets. The other side's, if there is one, come first, with its environment.
  void open_plugins();
  void open(int set);
  /// Starts the next operation on the set of communicators whose turn it is; polled_ is then what runs it.
  void start(std::optional<uint64_t> number);
  /// CPU time from now on is used for `side`; -1: for none.
  void charge(int side);
  /// Handles travel through the runner, as NCCL's travel through its bootstrap: to the rank `shift` places
  /// back. Those of CollNet go to all ranks.
  void exchange_handles();
  void connect();
  void iterate();
  /// May counted operation `number` begin? Takes what was planned for it (a sleep) into account.
  bool begin(uint64_t number);
  /// One operation on prepared buffers: run, compare. Without verification all that may begin, back to back.
  /// A warm-up has no number and leaves no trace. Returns the number after the last one.
  uint64_t operate(std::optional<uint64_t> number);
  /// Fills and poisons the buffers for the next operation.
  void prepare();
  /// Of operation number `operation`, warm-ups included.
  void verify(uint64_t operation);
  void report_correctness(const char* type);
  void sleep_once(std::chrono::nanoseconds duration);
  void close_all();
  int fail(const char* kind, const std::string& text, int exit_code, const std::string& plugin_words = "");

  RankConfig config_;
  std::vector<std::unique_ptr<Connections>> sets_;  ///< as Turns numbers them
  std::optional<r2ccl::trace::Reader> other_trace_;
  std::vector<Polled*> polled_;
  /// NCCL's number of the communicator: the same on all its ranks.
  uint64_t communicator() const { return 0x7232626e63680001u + uint64_t(config_.group.first); }
  char* result() const { return config_.in_place ? input_.data() : output_.data(); }
  Memory input_, output_;
  std::unique_ptr<ServiceThread> service_;
  std::unique_ptr<ProgressThread> progress_;

  std::mutex mutex_;                                     ///< guards sleeps_, and progress_ while it is made
  std::map<uint64_t, std::chrono::nanoseconds> sleeps_;  ///< by the iteration in which to stop polling

  std::chrono::nanoseconds set_up_took_{0};
  uint64_t operations_ = 0;  ///< warm-ups included
  uint64_t wrong_ = 0, checked_ = 0, checked_iterations_ = 0;
  uint64_t reported_wrong_ = 0;
  std::optional<uint64_t> cpu_from_ns_;  ///< when the first counted operation began
  uint64_t cpu_ns_ = 0;                  ///< from then to the end of the last one
  Turns turns_;
  int charged_side_ = -1;
  uint64_t charged_from_ns_ = 0;
  std::array<uint64_t, 2> cpu_by_side_ns_{};  ///< of counted operations, where two sides take turns

  RunnerTalk talk_;  ///< the last member: its thread uses the others
};

}  // namespace r2bench
