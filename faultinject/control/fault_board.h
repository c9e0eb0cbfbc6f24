// SPDX-License-Identifier: Apache-2.0
// The creator's view of a fault board, of one machine's processes or of several machines' together: what is
// armed, fired and healed, and what took effect. Plain types and one interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "faultinject/control/effects.h"
#include "faultinject/plan/plan.h"

namespace faultinject {

// All times are CLOCK_MONOTONIC in ns; 0 = has not happened.
struct FaultState {
  enum class Phase : uint32_t { kArmed, kFired, kHealed };
  Phase phase = Phase::kArmed;
  uint64_t armed_ns = 0;
  uint64_t triggered_ns = 0;  // its trigger was met (random phase included); says nothing about an effect
  uint64_t t0_ns = 0;         // it first took effect in some process; 0: it has touched nothing
  uint64_t healed_ns = 0;     // healed by duration or by heal()
  uint64_t witnesses = 0;     // records written for it
  uint32_t rounds = 0;        // how often it has fired; while it waits for its next round it is kArmed again
  std::vector<uint64_t> recent_ns;  // when the last of them fired, 16 at most, in their order
};

// One thing that a fault did in one process.
struct Witness {
  uint32_t fault_id = 0;
  uint32_t round = 0;  // of the fault, from 0
  uint64_t time_ns = 0;
  int32_t pid = 0;
  std::string rank;     // FAULTINJECT_RANK of that process
  std::string node;     // of the process in which it happened
  uint32_t nic = 0;     // of that process
  uint32_t qp_num = 0;  // 0: concerns no single queue pair
  Effect effect = Effect::kNone;
  uint64_t value = 0;
  std::string what;  // a sentence: "WC 12 shown"
};

// From when 'at: {time: …}' counts: the board's clock, or the moment of arming. 'since: first_op' is the
// board's in both cases.
enum class TimeOrigin { kBoard, kArming };

class FaultBoard {
 public:
  virtual ~FaultBoard() = default;

  // The board's clock for 'at: {time: …}' starts when the board is made; this starts it anew, now.
  virtual void restart_clock() = 0;

  // Puts a fault on the board; it then waits for its trigger. May be called while the job runs. Returns its
  // id, from 1. Throws PlanError (impossible target, no such fault to come after) or std::length_error (4096
  // faults were armed already).
  virtual uint32_t arm(const FaultSpec& spec, TimeOrigin origin) = 0;
  uint32_t arm(const FaultSpec& spec) { return arm(spec, TimeOrigin::kBoard); }

  // Fires an armed fault now, without its random phase; a fault that has fired or healed stays as it is.
  virtual void fire(uint32_t id) = 0;

  // Ends a fault, or withdraws one that has not fired. What each fault leaves behind is in
  // faultinject/README.md.
  virtual void heal(uint32_t id) = 0;
  virtual void heal_all() = 0;

  virtual FaultState state(uint32_t id) const = 0;  // throws std::out_of_range
  virtual const FaultSpec& spec(uint32_t id) const = 0;
  virtual uint32_t armed() const = 0;  // ids are 1..armed()

  // Every record so far, in the order of their time. witnesses_lost(): records that found the log
  // full, and strikes that were not made because the table of claims was (one for each process that tried).
  virtual std::vector<Witness> witnesses() const = 0;
  virtual uint64_t witnesses_lost() const = 0;
};

}  // namespace faultinject
