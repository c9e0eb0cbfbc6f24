// SPDX-License-Identifier: Apache-2.0
// The ranks of a plan on this machine, as children of this process: the runner's own part of a job, and what
// an agent does on behalf of a runner elsewhere. Nothing of it outlives the object.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "faultinject/control/board_host.h"
#include "harness/fabric/device_fabric.h"
#include "harness/hosts/host.h"
#include "harness/hosts/local_rank.h"
#include "harness/launch/output.h"
#include "harness/measure/trace_rings.h"
#include "harness/real/real_faults.h"

namespace r2bench {

/// Without a clock of another: its offset and bound are 0.
HostFacts facts_of_this_host();

class LocalHost final : public Host {
 public:
  /// The folders of the build. `folder`: where the plan's files go; empty: into memory, with
  /// output() to read them.
  LocalHost(std::string bin_dir, std::string lib_dir, std::string folder);
  ~LocalHost() override;

  /// The interface over which the runner is reached; no real fault is made on it.
  void keep_up(std::string interface) { runner_link_ = std::move(interface); }

  void prepare(const HostPlan& plan) override;
  void start() override;
  void tick() override;
  faultinject::FaultBoard& board() override { return *board_; }
  RankPort& rank(int rank) override;
  uint64_t drain(int rank, std::vector<r2ccl::trace::Event>& out) override;
  std::vector<HostNote> notes() override { return std::exchange(notes_, {}); }
  void put_back() override;
  void decline(r2ccl::trace::EventType type) override { rings_->decline(type); }
  std::string evidence() const override { return fabric_->evidence(); }
  std::map<int, std::vector<std::string>> devices() const override;
  const std::map<std::string, std::string>& environment() const override { return environment_; }
  ThreadReport threads() override;
  void settle() override {}
  int log_error() const override { return output_ ? output_->write_error() : 0; }

  void release() override;
  std::optional<std::string> failure() override { return std::nullopt; }
  HostFacts facts() const override { return facts_of_this_host(); }

  /// Kills the ranks; what they have said and printed can still be read, and is complete.
  void end_ranks();

  static constexpr size_t kMostOutput = 64u << 10;
  /// What the rank has printed from byte `from` on, kMostOutput at most. Without a folder only.
  std::string output(int rank, size_t from) const;

 private:
  size_t index_of(int rank) const;
  /// Names of a node's devices, by NIC.
  std::vector<std::string> devices_of(int node) const;
  void plan_real_faults();
  void write_topology();
  void open_outputs();
  /// What fabric verbs may take of this host's devices.
  DeviceWish device_wish() const;
  /// Notes NICs of the job that the machine's way out goes over, too.
  void tell_control_ports();
  /// What machine, user and scenario say, without the fabric.
  std::map<std::string, std::string> users_environment(const RankPlan& rank) const;
  std::map<std::string, std::string> environment_of(const RankPlan& rank) const;

  std::string bin_dir_, lib_dir_, folder_, runner_link_;
  HostPlan plan_;
  std::string topology_path_;      ///< empty: the scenario declares none
  std::vector<int> memory_files_;  ///< without a folder: the topology and the outputs
  std::vector<int> logs_;          ///< of these the ranks' outputs, in the plan's order
  std::unique_ptr<DeviceFabric> fabric_;
  std::optional<faultinject::BoardHost> board_;
  std::unique_ptr<TraceRings> rings_;
  std::unique_ptr<Bootstrap> bootstrap_;  ///< until every rank has called
  std::unique_ptr<OutputCapture> output_;
  std::vector<int> outputs_;  ///< the ranks' ends, until they have been started
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  std::unique_ptr<RealFaults> real_;  ///< empty: the plan has none
  std::vector<HostNote> notes_;
  std::map<std::string, std::string> environment_;
};

}  // namespace r2bench
