// SPDX-License-Identifier: Apache-2.0
// A host that is another machine: the runner's end of the connection to the agent there. What the agent tells
// is taken by a thread of its own, so that the clocks are compared without the runner's pauses; times are
// put on the runner's clock as they arrive.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "harness/hosts/clock_offset.h"
#include "harness/hosts/host.h"
#include "harness/launch/secure_link.h"

namespace r2bench {

/// How long an agent may take to answer a question that needs no work.
inline constexpr std::chrono::milliseconds kAnswerBound{10'000};

class RemoteHost final : public Host {
 public:
  /// `hello`: the agent's first message. Compares the clocks (some ms). Throws FabricError when the agent
  /// does not answer. An agent that leaves a question unanswered for `answer_bound` counts as gone: nothing
  /// that it may know of the job can be relied on any more. The same holds if nothing at all comes from it
  /// for that long while a job runs.
  RemoteHost(SecureLink link, const nlohmann::json& hello,
             std::chrono::milliseconds answer_bound = kAnswerBound);
  ~RemoteHost() override;

  void prepare(const HostPlan& plan) override;
  void start() override;
  void tick() override;
  faultinject::FaultBoard& board() override;
  RankPort& rank(int rank) override;
  uint64_t drain(int rank, std::vector<r2ccl::trace::Event>& out) override;
  std::vector<HostNote> notes() override;
  void put_back() override;
  void decline(r2ccl::trace::EventType type) override;
  std::string evidence() const override { return evidence_; }
  std::map<int, std::vector<std::string>> devices() const override { return devices_; }
  const std::map<std::string, std::string>& environment() const override { return environment_; }
  ThreadReport threads() override;
  void settle() override;
  int log_error() const override { return log_error_; }
  void release() override;
  std::optional<std::string> failure() override;
  uint64_t heard_ns() const override;
  HostFacts facts() const override;

  /// Where the ranks' output goes: <folder>/<RankPlan::log>. Before prepare().
  void log_into(const std::string& folder) { folder_ = folder; }

 private:
  class Board;
  class Port;
  /// What has come of one rank and was not taken yet.
  struct Inbox {
    std::deque<nlohmann::json> messages;
    std::vector<r2ccl::trace::Event> events;
    uint64_t lost = 0;
    pid_t pid = -1;
    std::optional<int> ended;
  };

  void listen();
  void note_clock_jump();
  void take(const nlohmann::json& message, uint64_t arrived_ns);
  void take_events(const nlohmann::json& message);
  void take_output(const nlohmann::json& message);
  void compare_clocks();
  void tell(nlohmann::json message);
  /// The host is gone. Lets `lock`, which holds mutex_, go for a moment.
  void lose(std::unique_lock<std::mutex>& lock, const std::string& why);
  /// Sends a request and waits for its answer. Throws FabricError with the agent's words when it refuses, and
  /// when it does not answer within `wait`. If that is no shorter than the bound of an answer, it counts from
  /// the agent's last message on (two minutes at most), and the host is then gone.
  nlohmann::json ask(nlohmann::json request, std::chrono::milliseconds wait);
  uint64_t to_runner(uint64_t host_ns);
  /// For the times of faults, which a host tells again with each change of a fault's state and with the
  /// witnesses: what has been converted stays as it is.
  uint64_t to_runner_once(uint64_t host_ns);
  void to_runner(faultinject::FaultState& state);

  SecureLink link_;
  std::chrono::milliseconds answer_bound_;
  HostFacts facts_;
  std::string folder_;
  HostPlan plan_;
  std::string evidence_;
  std::map<int, std::vector<std::string>> devices_;
  std::map<std::string, std::string> environment_;
  std::unique_ptr<Board> board_;
  std::map<int, std::unique_ptr<Port>> ports_;
  uint64_t next_request_ = 1;
  uint64_t pinged_ns_ = 0;
  std::atomic<int> log_error_{0};

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable answered_;
  std::map<uint64_t, nlohmann::json> answers_;
  std::map<int, Inbox> inbox_;
  std::vector<HostNote> notes_;
  std::map<uint32_t, faultinject::FaultState> states_;
  ClockOffset clock_;
  std::map<uint64_t, uint64_t> fault_times_;  ///< on the runner's clock, by the host's
  uint64_t worst_clock_ns_ = 0;               ///< largest bound of any time that was converted
  size_t clock_samples_ = 0;
  uint64_t told_beyond_ns_ = 0;  ///< ClockOffset::beyond_ns() of the last note
  uint64_t heard_ns_ = 0;        ///< when its last message came
  uint64_t silent_ns_ = 0;       ///< of the ticks since then
  std::string lost_;             ///< why the agent is gone; empty: it is there

  std::mutex sending_;
  std::atomic<bool> stop_{false};
  std::thread listener_;
};

}  // namespace r2bench
