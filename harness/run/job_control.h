// SPDX-License-Identifier: Apache-2.0
// By which `r2bench inject` reaches a running job's fault board. What comes from outside is noted in the
// job's log and is never taken for a fault of the scenario.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/control/board_service.h"
#include "harness/control/control_server.h"
#include "harness/run/fault_driver.h"

namespace r2bench {

/// "run-4711": where commands find the job of that process.
std::string job_control_name(pid_t pid);

class JobControl {
 public:
  /// Listens under job_control_name() of this process. When that cannot be had, one note says so, and the job
  /// runs without. `what` says in words what runs. The board must outlive it.
  JobControl(faultinject::FaultBoard& board, std::vector<faultinject::NodeShape> nodes,
             const std::string& what, Note note);

  /// Serves what is there; never waits. Called once per tick.
  void serve();
  /// Faults that came from outside.
  const std::set<uint32_t>& added() const { return service_.added(); }
  /// Faults of the scenario that were ended from outside.
  const std::set<uint32_t>& ended() const { return service_.ended(); }

 private:
  BoardService service_;
  std::unique_ptr<ControlServer> server_;
};

}  // namespace r2bench
