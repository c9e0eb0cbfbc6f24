// The creator's side of the fault board: a memfd that lives as long as this object, or any process that has
// it mapped. Faults are armed, fired and healed here while the job runs; what took effect, and where, is read
// here. It never touches a verbs device and never waits for an injected process.
#pragma once

#include <cstdint>
#include <memory>
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
};

// One thing that a fault did in one process.
struct Witness {
  uint32_t fault_id = 0;
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

class BoardHost {
 public:
  // nodes: the names that injected processes give in FAULTINJECT_NODE (at most 256 nodes, 64 NICs each,
  // names up to 31 bytes). seed: of every random phase and choice. Throws std::system_error (no memory, no
  // descriptor) or std::invalid_argument (limits).
  static BoardHost create(const std::vector<NodeShape>& nodes, uint64_t seed);

  BoardHost(BoardHost&&) noexcept;
  BoardHost& operator=(BoardHost&&) noexcept;
  ~BoardHost();  // heals everything, then lets the board go

  // For FAULTINJECT_BOARD: /proc/<pid>/fd/<n>, valid while this object lives. The descriptor is
  // close-on-exec.
  const std::string& path() const;

  // The board's clock for 'at: {time: …}' starts at create(); this starts it anew, now.
  void restart_clock();

  // Puts a fault on the board; it then waits for its trigger. May be called while the job runs. Returns its
  // id, from 1. Throws PlanError (impossible target, no such fault to come after) or std::length_error (4096
  // faults were armed already).
  uint32_t arm(const FaultSpec& spec, TimeOrigin origin = TimeOrigin::kBoard);

  // Fires an armed fault now, without its random phase; a fault that has fired or healed stays as it is.
  void fire(uint32_t id);

  // Ends a fault, or withdraws one that has not fired. What each fault leaves behind is in
  // faultinject/README.md.
  void heal(uint32_t id);
  void heal_all();

  FaultState state(uint32_t id) const;  // throws std::out_of_range
  const FaultSpec& spec(uint32_t id) const;
  uint32_t armed() const;  // ids are 1..armed()

  // Every record since create(), in the order of their time. witnesses_lost(): records that found the log
  // full.
  std::vector<Witness> witnesses() const;
  std::vector<Witness> witnesses(uint32_t id) const;
  uint64_t witnesses_lost() const;

  // For faults that no injected process carries out (is_real in plan/kind.h): one took effect on that NIC, or
  // was put back there (Effect::kPutBack, which is a record only). Throws std::out_of_range.
  void report(uint32_t id, uint64_t time_ns, uint32_t node, uint32_t nic, Effect effect);

  // What faultinject_event() does inside a process, from the creator's side.
  void event(const std::string& name, uint64_t value);

  // Live injected processes that have opened a device.
  uint32_t processes() const;

 private:
  struct Impl;
  explicit BoardHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultinject
