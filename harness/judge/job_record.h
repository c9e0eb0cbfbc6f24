// SPDX-License-Identifier: Apache-2.0
// What a job leaves: what evaluate() makes a ModeResult of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "faultinject/control/fault_board.h"
#include "harness/measure/collector.h"
#include "harness/measure/result.h"
#include "harness/measure/timeline.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// One arming of one fault, and what became of it.
struct Firing {
  size_t fault = 0;  ///< index into faults, then rank_faults
  size_t repetition = 0;
  uint32_t board_id = 0;  ///< 0: a rank fault, or not on the board yet
  int rank = -1;          ///< of a rank fault
  uint64_t armed_ns = 0;
  uint64_t triggered_ns = 0;
  uint64_t t0_ns = 0;
  uint64_t healed_ns = 0;
  uint32_t rounds = 0;              ///< how often it fired by itself (`repeat`)
  std::vector<uint64_t> recent_ns;  ///< when the last of these rounds fired (FaultState::recent_ns)
  size_t strike = 0;                ///< which of them this is, once they are told apart (strikes.h)
  uint64_t back_ns = 0;         ///< a channel whose queue pair was struck has come back to the NIC; 0: none
  uint64_t before_from_ns = 0;  ///< since when the job had run undisturbed
  std::vector<NicId> nics;      ///< NICs that the fault strikes
};

/// What a job leaves: the raw material of a ModeResult.
struct JobRecord {
  const Mode* mode = nullptr;
  Outcome outcome = Outcome::kOk;
  std::string error;
  uint64_t error_ns = 0;
  std::vector<RankResult> ranks;
  Correctness correctness;
  Record record;
  std::vector<RankEvent> trace;
  std::vector<std::string> labels;  ///< of the ranks
  std::string gave_up;              ///< why the driver struck no more faults; else empty
  uint64_t trace_lost = 0;
  std::vector<Firing> firings;
  std::vector<faultinject::Witness> witnesses;
  uint64_t witnesses_lost = 0;                     ///< FaultBoard::witnesses_lost()
  std::set<uint32_t> added_faults;                 ///< on the board, not the scenario's: `r2bench inject`
  size_t faults_ended_outside = 0;                 ///< of the scenario, removed or healed by `r2bench inject`
  std::vector<LoggedEvent> notes;                  ///< the runner's own
  size_t most_events = 1'000'000;                  ///< that the log keeps
  Distribution wakeup_ms;                          ///< of the runner's own ticker
  bool ports_limit = true;                         ///< the fabric holds its ports to the scenario's rate
  std::map<std::string, std::string> environment;  ///< of the ranks, without what concerns one rank only
  std::string plugin;                              ///< "r2ccl v11"
  std::map<std::string, std::string> facts;        ///< RankLink::facts of all ranks
  std::string evidence;
  std::map<int, std::vector<std::string>> devices;  ///< their names, by node and NIC
  uint64_t start_ns = 0, end_ns = 0;
  std::vector<HostResult> hosts;    ///< of a cluster; empty: all ranks were on this machine
  uint64_t first_iteration_ns = 0;  ///< begin of the first counted operation of any rank; 0: there was none
};

/// The NICs of the job that a target names.
std::vector<NicId> nics_of(const faultinject::Target& target, const Fabric& fabric);

}  // namespace r2bench
