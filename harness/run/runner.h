// SPDX-License-Identifier: Apache-2.0
// Runs a scenario: for each of its modes a fabric, a fault board, trace rings and the rank processes, the
// faults on schedule, a watchdog over everything, and the measurements at the end. Never leaves a process, a
// file in /dev/shm or a socket behind, whatever the exit; never waits without a bound.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

class Cluster;

/// What the live line shows. Handed out about ten times a second while a job runs, and at each change of
/// phase.
struct Progress {
  std::string mode;
  size_t mode_index = 0, mode_count = 0;
  size_t pair = 0, pairs = 0;  ///< pairs == 0: not a paired run
  std::string phase;           ///< "starting", "running", "fault", "recovered", "healing", "stopping", "done"
  uint64_t iteration = 0;      ///< completed by every rank
  uint64_t iterations = 0;     ///< planned; 0 when it runs until all repetitions are through
  size_t repetition = 0, repeats = 0;
  double gbps = 0;   ///< over the last 100 ms or so
  std::string note;  ///< last event in words: "node1/nic0 port_down", "migrated in 3.1 ms (completion)"
  std::chrono::milliseconds elapsed{0};
};

struct RunOptions {
  std::vector<std::string> modes;  ///< names of the scenario's modes to run, in this order; empty: all
  size_t repeats = 0;              ///< firings of the fault list within one job; 0: the scenario's
  std::optional<uint64_t> seed;    ///< overrides the scenario's
  std::string out_dir;             ///< exists; per-rank logs go to <out_dir>/logs
  /// Folders of the build: programs and libraries. Empty: beside the running program (<exe>/.. as in
  /// build/bin and build/lib).
  std::string bin_dir;
  std::string lib_dir;
  /// Overrides the scenario's fabric: vhca, verbs, or none (for net plugins that need no RDMA device).
  std::string fabric;
  /// TCP port on the loopback for the ranks' bootstrap; 0: no port at all (socket pairs).
  uint16_t bootstrap_port = 0;
  bool allow_real_faults = false;  ///< real_* faults, which change the machine, may be made
  Cluster* cluster = nullptr;      ///< the machines on which the nodes live; nullptr: all on this one
  std::optional<std::chrono::milliseconds>
      time_limit;  ///< per job; else the scenario's, and 20 s more for each repetition after the first
  std::function<void(const Progress&)> progress;  ///< may be empty; called on the caller's thread
};

/// The user's mistake, or a machine that cannot run this: exit code 64. The text is one sentence for the
/// user.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a run happens: kernel, cpu, cores, revision, compiler, build, sanitizer.
std::map<std::string, std::string> machine_facts();

/// Runs everything on the caller's thread (which must outlive the call: the ranks die with it). When `cancel`
/// becomes true the job is ended within a second and the result says cancelled. Throws UsageError for what
/// the user can mend, std::system_error when the system refuses something it should not. Where a job cannot
/// begin and others have run, the run ends there: that job's outcome is cancelled, with the reason.
RunResult run_scenario(const Scenario& scenario, const RunOptions& options, const std::atomic<bool>& cancel);

}  // namespace r2bench
