// SPDX-License-Identifier: Apache-2.0
// Breaks things on schedule: arms the scenario's faults on the board, sends the signals that are no verbs
// fault, and, for --repeats, heals and breaks again at seeded random phases, each time only once the target
// carries traffic again. Called once per tick; never waits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "faultinject/control/fault_board.h"
#include "harness/judge/job_record.h"
#include "harness/measure/collector.h"
#include "harness/run/rank_faults.h"
#include "harness/run/rank_link.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// A line for the event log and the live display.
using Note = std::function<void(uint64_t time_ns, const std::string& name, const std::string& text)>;

class FaultDriver {
 public:
  FaultDriver(const Scenario& scenario, size_t repeats, uint64_t seed, faultinject::FaultBoard& board,
              std::vector<RankLink>& ranks, const Collector& collector, Note note);

  /// All ranks are warm and wait for their first iteration: arms the first round.
  void arm_first();
  /// Advances. `now_ns` is CLOCK_MONOTONIC.
  void tick(uint64_t now_ns);
  /// Nothing more is to be fired, healed or waited for; the job may end after its planned iterations.
  bool done() const { return phase_ == Phase::kDone; }
  /// A rank is stopped or asleep now by our own doing: silence is no stall.
  bool pausing() const { return rank_faults_.pausing(); }
  /// Ends what is still going on (SIGCONT, heal), so that the job can stop.
  void release() { rank_faults_.release(firings_); }

  size_t repetition() const { return repetition_; }
  const char* phase_name() const;
  /// Times as the board has them now.
  std::vector<Firing> firings() const;
  /// Why it gave up before all repetitions were through; empty when it did not.
  const std::string& gave_up() const { return gave_up_; }

 private:
  enum class Phase { kIdle, kSteady, kArmed, kSettling, kCarrying, kDone };

  /// Later rounds keep the distances of the first, and begin at a random moment.
  struct Round {
    uint64_t now_ns = 0, phase_ns = 0;
    uint64_t iteration = 0;  ///< in which it can begin at the earliest
    uint64_t base_iteration = UINT64_MAX;
    int64_t base_time = INT64_MAX;
  };

  Round new_round(uint64_t now_ns);
  void arm_round(uint64_t now_ns);
  void arm_injected(size_t i, const Round& round);
  void plan_rank_fault(size_t i, const Round& round);
  Firing firing_of(size_t fault, uint64_t now_ns) const;
  void advance_phase(uint64_t now_ns);
  void give_up(uint64_t now_ns, const std::string& why);
  bool last_round() const { return repetition_ + 1 >= repeats_; }
  uint64_t steady_iterations() const;  ///< that have ended in this phase
  bool is_steady(uint64_t now_ns) const;
  void arm_pending(uint64_t now_ns);
  bool waits_for_pending(const faultinject::Trigger& trigger) const;
  uint64_t random_phase_ns();
  void fire_due(uint64_t now_ns);
  void run_rank_faults(uint64_t now_ns);
  bool all_fired() const;
  bool round_over(uint64_t now_ns) const;
  uint64_t own_healing_ns() const;
  void heal_round(uint64_t now_ns);
  bool all_healed() const;
  bool carries_again() const;
  bool everybody_home(uint64_t now_ns) const;
  void move(Phase phase, uint64_t now_ns);

  /// To be fired by hand.
  struct Due {
    uint32_t board_id;
    uint64_t at_ns;
  };
  /// To be fired by hand once every rank is in that iteration: the moment at which the first one begins it is
  /// too early, as nothing is in flight while another still verifies.
  struct Pending {
    size_t firing;  ///< index into firings_
    faultinject::FaultSpec spec;
    uint64_t iteration;
  };

  const Scenario& scenario_;
  size_t repeats_;
  std::mt19937_64 random_;
  faultinject::FaultBoard& board_;
  const Collector& collector_;
  Note note_;
  RankFaults rank_faults_;

  Phase phase_ = Phase::kIdle;
  uint64_t phase_since_ns_ = 0;
  uint64_t phase_iterations_ = 0;  ///< ended by all when the phase began
  uint64_t steady_from_ns_ = 0;
  uint64_t healed_at_ns_ = 0;
  size_t repetition_ = 0;
  std::vector<Firing> firings_;
  size_t round_begin_ = 0;  ///< first firing of this round
  std::vector<Due> due_;
  std::vector<Pending> pending_;
  std::vector<size_t> noted_;
  std::string gave_up_;
};

}  // namespace r2bench
