// SPDX-License-Identifier: Apache-2.0
// One job of one mode: starts the ranks, lets them run, breaks things on schedule, watches that it moves,
// ends it, and hands over what was recorded. Whatever happens, no rank outlives the call.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/hosts/host_boards.h"
#include "harness/hosts/local_host.h"
#include "harness/judge/job_record.h"
#include "harness/measure/collector.h"
#include "harness/measure/ticker.h"
#include "harness/run/build_paths.h"
#include "harness/run/fault_driver.h"
#include "harness/run/job_control.h"
#include "harness/run/rank_link.h"
#include "harness/run/runner.h"

namespace r2bench {

class Job {
 public:
  Job(const Scenario& scenario, const Mode& mode, const RunOptions& options, const BuildPaths& paths,
      size_t repeats, uint64_t seed, const std::string& log_prefix, const std::atomic<bool>& cancel,
      Progress progress);
  ~Job();

  /// Runs it to its end. Throws UsageError and std::system_error before any rank has started only.
  JobRecord run();
  /// Variables that every rank gets besides the scenario's and this program's own. Before run().
  void share(std::map<std::string, std::string> environment) { shared_environment_ = std::move(environment); }

 private:
  enum class Phase { kStarting, kWarming, kRunning, kStopping, kClosing, kAborting, kOver };

  void start_ranks();
  void take_hosts();
  std::string fabric_name() const;
  HostPlan host_plan(const NodesHere& nodes) const;
  Host& host_of(int rank) { return *hosts_[host_of_rank_[size_t(rank)]]; }
  /// What is added to its host's environment, and what of that is `removed` before.
  std::map<std::string, std::string> rank_variables(const RankLink& rank,
                                                    std::vector<std::string>& removed) const;
  nlohmann::json rank_config(const RankLink& rank) const;
  /// Of the engine exec: the rank's ExecOptions.
  nlohmann::json exec_options(const RankLink& rank) const;
  /// Of the engine exec: operations are what the output of the first rank that tells of them says.
  void take_printed();
  bool all_commands_ended() const;
  /// What the engine nccl sets for a rank, before the scenario's own variables.
  void add_nccl_environment(std::map<std::string, std::string>& environment, const RankLink& rank) const;
  /// The rank so many places on in the ring of `rank`'s group.
  RankLink& peer_of(const RankLink& rank, int shift);
  /// Ranks that do not all share a communicator, and must begin each operation together all the same.
  bool in_step() const {
    const auto& renewal = scenario_.workload.nccl.renewal;
    return communicator_of(scenario_, 0).size < scenario_.fabric.ranks() ||
           (renewal && renewal->without >= 0);
  }
  void tick(uint64_t now_ns);
  void advance_phase(uint64_t now_ns);
  std::optional<std::string> loss_of(Host& host);
  void look_at_hosts(uint64_t now_ns);
  void look_at_ranks(uint64_t now_ns);
  void watch(uint64_t now_ns, bool moved);
  void grant(uint64_t now_ns);
  void end_as_hang(const std::string& what, uint64_t now_ns);
  void end_with(Outcome outcome, const std::string& error, uint64_t time_ns);
  void move(Phase phase);
  void note(uint64_t time_ns, const std::string& name, const std::string& text,
            const std::string& source = "runner");
  void report_progress(uint64_t now_ns, bool force);
  void take_notes();
  std::string evidence_of_hang();
  faultinject::FaultBoard& board() { return boards_ ? *boards_ : hosts_[0]->board(); }
  void tell_all(const nlohmann::json& message);
  bool all_ended();
  void exchange_handles(uint64_t now_ns);
  void wait_for_close(uint64_t now_ns);
  void abort_ranks(uint64_t now_ns);
  void collect_ranks(JobRecord& job);
  void collect_hosts(JobRecord& job);
  void take_losses(uint64_t now_ns);
  JobRecord collect();

  const Scenario& scenario_;
  const Mode& mode_;
  const RunOptions& options_;
  const BuildPaths& paths_;
  size_t repeats_;
  uint64_t seed_;
  std::string log_prefix_;
  const std::atomic<bool>& cancel_;
  Progress progress_;

  std::unique_ptr<LocalHost> local_;  ///< where there is no cluster
  std::unique_ptr<DeviceFabric>
      shared_fabric_;  ///< that the hosts of a cluster join; nullptr: each has its own
  std::vector<Host*> hosts_;
  std::vector<NodesHere> nodes_of_hosts_;
  std::vector<size_t> host_of_rank_;
  std::unique_ptr<HostBoards> boards_;  ///< of a cluster
  std::unique_ptr<Collector> collector_;
  std::vector<std::string> log_paths_;  // within the run's folder
  std::vector<RankLink> ranks_;
  std::unique_ptr<FaultDriver> driver_;
  std::unique_ptr<JobControl> control_;
  std::unique_ptr<Ticker> ticker_;  ///< from the first counted operation on

  std::map<std::string, std::string> shared_environment_;

  Phase phase_ = Phase::kStarting;
  uint64_t start_ns_ = 0;
  uint64_t ticked_ns_ = 0;
  uint64_t awake_ns_ = 0;        ///< how long this program has run: bounds of silence count by it
  uint64_t phase_at_ns_ = 0;     ///< when the phase began
  uint64_t phase_since_ns_ = 0;  ///< the same, awake
  uint64_t last_moved_ns_ = 0;   ///< awake
  uint64_t last_bytes_ = 0, last_ended_ = 0;
  uint64_t granted_ = 0;
  bool final_ = false;
  bool told_to_abort_ = false;
  uint16_t exec_port_ = 0;              ///< MASTER_PORT of a command
  const RankLink* printing_ = nullptr;  ///< the rank whose output tells of operations
  uint64_t printed_ = 0;                ///< operations that it has ended
  bool printed_over_ = false;
  Outcome outcome_ = Outcome::kOk;
  std::string error_;
  uint64_t error_ns_ = 0;
  std::vector<LoggedEvent> notes_;
  uint64_t last_progress_ns_ = 0, last_progress_bytes_ = 0;
};

}  // namespace r2bench
