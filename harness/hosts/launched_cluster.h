// SPDX-License-Identifier: Apache-2.0
// The machines of a run: starts an agent on each through mpirun or srun, or takes those that somebody else
// has started. Ends what it has started on every exit path.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/cluster.h"
#include "harness/hosts/remote_host.h"
#include "harness/launch/output.h"
#include "harness/launch/process.h"
#include "harness/launch/rendezvous.h"

namespace r2bench {

/// Who starts the agents: nobody (all ranks are this program's children), mpirun, srun, or whoever started
/// this program itself with RANK, WORLD_SIZE and MASTER_ADDR in its environment, as torchrun does.
enum class Launcher { kLocal, kMpi, kSlurm, kEnv };
const char* name(Launcher launcher);
std::optional<Launcher> launcher_named(const std::string& name);

struct ClusterOptions {
  Launcher launcher = Launcher::kLocal;
  std::vector<std::string> hosts;             ///< empty: all that mpirun or srun has been given
  std::string program;                        ///< of r2bench, on every host
  int most_hosts = 0;                         ///< the scenarios' nodes: more hosts are of no use; 0: whatever
  const std::atomic<bool>* cancel = nullptr;  ///< true: wait no longer
};

/// The hosts have not come together: the launcher has failed, or a host was lost or cannot reach the runner.
class LauncherError : public FabricError {
 public:
  using FabricError::FabricError;
};

class LaunchedCluster final : public Cluster {
 public:
  /// Starts the agents and waits until each has called. Throws LauncherError, or FabricError for what another
  /// command line or installation mends, with what the launcher said.
  explicit LaunchedCluster(const ClusterOptions& options);
  ~LaunchedCluster() override;

  std::vector<Host*> hosts(const std::string& log_folder) override;
  std::optional<std::string> failure() override;
  /// Of launcher env, this program's own MASTER_ADDR. Else the name of the first host.
  std::string master_address() override;

 private:
  void start_launcher(const ClusterOptions& options);
  void wait_for_agents(const ClusterOptions& options);
  /// A host's number in the launcher's order and the count that it was told must agree with those of the
  /// others.
  void check_place(const std::string& host, int order, int count);
  template <class Error = FabricError>
  [[noreturn]] void fail(const std::string& what);
  std::string launcher_output() const;
  void end_launcher();

  struct Called {
    std::string host;
    int order, count;
  };

  std::unique_ptr<Rendezvous> rendezvous_;
  std::vector<Called> called_;  ///< in the order of their calls
  std::string launcher_name_;
  int launcher_said_ = -1;  ///< a file in memory
  std::unique_ptr<OutputCapture> output_;
  std::unique_ptr<Process> launcher_;
  std::vector<std::unique_ptr<RemoteHost>> hosts_;
};

/// The command that starts an agent on each host, without the environment that finds the runner.
std::vector<std::string> launcher_command(const ClusterOptions& options);

/// The environment of that command: `environment` without what would start another number of agents.
std::map<std::string, std::string> launcher_environment(const ClusterOptions& options,
                                                        std::map<std::string, std::string> environment);

/// Of `environment`: what the launcher tells a process of its own place. Ranks must not inherit it: a command
/// would take it for theirs.
std::vector<std::string> launchers_own(Launcher launcher,
                                       const std::map<std::string, std::string>& environment);

/// What a process that mpirun, srun or torchrun has started is told about its place.
struct LaunchedPlace {
  int order = 0, count = 1;  ///< among the agents: one per host
  bool first_of_host = true;
};
/// Of this process's environment. Throws FabricError when `launcher` has not started it.
LaunchedPlace launched_place(Launcher launcher);

/// Of launcher env: where the runner listens, R2BENCH_PORT or MASTER_PORT + 1. Throws FabricError when the
/// variable is no port.
uint16_t port_of_environment();

/// What `r2bench host-agent` does: finds the runner by its environment, and serves it. Exit status: 0, or 1
/// when the runner was not found or went away.
int host_agent(Launcher launcher);

}  // namespace r2bench
