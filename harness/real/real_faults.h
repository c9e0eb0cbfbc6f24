// SPDX-License-Identifier: Apache-2.0
// The real faults of a job: watches its fault board, has the guard make those that have fired and put back
// those that are healed, and reports to the board what the machine said and when. Called once per tick; never
// waits but at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "faultinject/control/board_host.h"
#include "harness/fabric/device_fabric.h"
#include "harness/real/guard_link.h"
#include "harness/real/lifelines.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

bool has_real_faults(const Scenario& scenario);

/// Throws FabricError with a sentence unless the scenario's real faults, if any, may be made on this fabric:
/// allowed, as root, on NICs that are not virtual. `fabric`: vhca, rxe, verbs or none.
void check_real_faults(const Scenario& scenario, const std::string& fabric, bool allowed, bool root);

/// Those of the scenario's faults that are real.
std::vector<faultinject::FaultSpec> real_faults_of(const Scenario& scenario);

/// Where this machine keeps what real faults need to know.
struct MachinePlaces {
  std::string sys = "/sys";
  std::string undo_folder = kUndoFolder;
  std::vector<Lifeline> lifelines;  ///< NICs that carry one of these are refused
};

class RealFaults {
 public:
  using Note = std::function<void(uint64_t time_ns, const std::string& name, const std::string& text)>;
  /// The RDMA devices of a node, nic0 first.
  using Devices = std::function<std::vector<std::string>(int node)>;

  /// Plans every change to this machine's NICs, which are those of `nodes`, before the job starts; faults
  /// elsewhere are other machines'. Throws FabricError where one cannot be made, std::system_error when the
  /// guard cannot be started.
  RealFaults(const std::vector<faultinject::FaultSpec>& faults, const Fabric& fabric, const NodesHere& nodes,
             const Devices& devices, const std::string& guard_program, Note note,
             const MachinePlaces& machine = {});
  /// Puts back what is still changed.
  ~RealFaults();

  /// What will be done, a sentence for each fault and NIC.
  std::vector<std::string> in_words() const;
  void tick(faultinject::BoardHost& board);
  /// The job is over: puts back what is still changed, and waits for that.
  void finish(faultinject::BoardHost& board);

  pid_t guard_pid() const { return guard_->pid(); }

 private:
  struct Planned {
    NicPlace place;
    Change change;
  };
  enum class State { kAsItWas, kApplying, kApplied, kUndoing };
  /// One fault of the board on one NIC.
  struct Live {
    uint32_t board_id = 0;
    const Planned* planned = nullptr;
    State state = State::kAsItWas;
    uint32_t rounds = 0;  ///< of the fault that it has been made for
  };

  bool busy() const;
  void adopt(faultinject::BoardHost& board);
  void hear(faultinject::BoardHost& board);

  std::map<std::string, std::vector<Planned>> plans_;  ///< by the fault's name
  Note note_;
  uint32_t adopted_ = 0;  ///< ids of the board that have been looked at
  std::vector<Live> live_;
  std::unique_ptr<GuardLink> guard_;
  int told_takeovers_ = 0;
  bool told_lost_ = false;
};

}  // namespace r2bench
