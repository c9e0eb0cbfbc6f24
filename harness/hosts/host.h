// SPDX-License-Identifier: Apache-2.0
// One machine's part of a job: its nodes' fabric, fault board, trace rings, ranks and their output. The
// runner drives every host through this interface, its own machine among them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "faultinject/control/fault_board.h"
#include "harness/hosts/host_plan.h"
#include "harness/hosts/rank_port.h"
#include "r2ccl/trace/event.h"

namespace r2bench {

/// Where the threads of a host's ranks are.
struct ThreadReport {
  std::map<int, std::string> brief;  ///< by rank: threads_in_brief()
  std::string full;                  ///< write_threads_in_full()
};

/// What is known of a host, for the result.
struct HostFacts {
  std::string name;
  std::string kernel;
  std::string boot_id;   ///< of the kernel that runs: two hosts that share it are one machine
  std::string revision;  ///< of the build
  int order = 0;         ///< among the processes that the launcher has started
  int cores = 0;
  double clock_offset_ms = 0;  ///< its CLOCK_MONOTONIC minus the runner's
  double clock_bound_ms = 0;   ///< how far a time of it may be off on the runner's clock
  double clock_beyond_ms = 0;  ///< ClockOffset::beyond_ns
};

/// Something that happened on a host, for the log of the run.
struct HostNote {
  uint64_t time_ns = 0;
  std::string name, text;
};

class Host {
 public:
  virtual ~Host() = default;

  /// Makes everything that the ranks of the plan need. Throws FabricError (what the user can mend) and
  /// std::system_error.
  virtual void prepare(const HostPlan& plan) = 0;
  /// Starts the ranks. Throws std::system_error.
  virtual void start() = 0;
  /// Looks after what the host has to do by itself. Once per tick; never waits.
  virtual void tick() = 0;

  virtual faultinject::FaultBoard& board() = 0;
  /// Of one of the plan's ranks, from start() on.
  virtual RankPort& rank(int rank) = 0;
  /// Appends the rank's trace events since the last call, in the runner's time. Returns how many were lost.
  virtual uint64_t drain(int rank, std::vector<r2ccl::trace::Event>& out) = 0;
  /// What has happened there since the last call, in the runner's time: real faults, above all.
  virtual std::vector<HostNote> notes() = 0;
  /// Puts back what real faults have changed there, and waits for it: two minutes at most.
  virtual void put_back() = 0;
  /// Its ranks need not record events of this type any more.
  virtual void decline(r2ccl::trace::EventType type) = 0;

  /// simulated, emulated, rxe or hardware. From prepare() on.
  virtual std::string evidence() const = 0;
  /// Names of its nodes' devices, by node and NIC; without a node whose NICs have their usual names (vhca0).
  /// From prepare() on.
  virtual std::map<int, std::vector<std::string>> devices() const = 0;
  /// The environment of its first rank, without what concerns that rank only. From prepare() on.
  virtual const std::map<std::string, std::string>& environment() const = 0;
  /// Takes some hundred ms.
  virtual ThreadReport threads() = 0;
  /// Returns once everything that the host has seen up to now can be read here; output is complete only after
  /// release().
  virtual void settle() = 0;
  /// errno of the first output that could not be written; 0: all went well.
  virtual int log_error() const = 0;
  /// Ends what the job has there; prepare() may then be called again. Takes seconds; a
  /// minute at most.
  virtual void release() = 0;
  /// The host cannot be reached any more: why. Its ranks count as killed.
  virtual std::optional<std::string> failure() = 0;
  /// Of a host that cannot be reached any more: when it was last heard, on the runner's clock.
  virtual uint64_t heard_ns() const { return UINT64_MAX; }
  virtual HostFacts facts() const = 0;
};

}  // namespace r2bench
