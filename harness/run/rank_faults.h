// SPDX-License-Identifier: Apache-2.0
// The faults of one round that strike a rank and not a NIC: signals, and sleeps that the rank itself carries
// out. Never waits.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/judge/job_record.h"
#include "harness/measure/collector.h"
#include "harness/run/rank_link.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// Of a firing of one of them. `firing.rank` >= 0.
const RankFault& rank_fault_of(const Scenario& scenario, const Firing& firing);

class RankFaults {
 public:
  RankFaults(const Scenario& scenario, std::vector<RankLink>& ranks, const Collector& collector);

  /// Those of the round before are over.
  void begin_round() { states_.clear(); }
  /// What comes first: in that iteration, or at that time (CLOCK_MONOTONIC). A time in the scenario counts
  /// from the first iteration, and is given to run().
  struct Due {
    uint64_t iteration = UINT64_MAX;
    uint64_t time_ns = UINT64_MAX;
  };
  /// `firing`: the one with index `index`.
  void plan(size_t index, const Firing& firing, Due due);
  /// Begins and ends those that are due, and notes their times in `firings`. `first_round`: times of the
  /// scenario count. `ending`: no more are begun, except by ranks that know of theirs already.
  void run(uint64_t now_ns, bool first_round, bool ending, std::vector<Firing>& firings);
  /// A rank is stopped or asleep now.
  bool pausing() const;
  /// Continues all ranks that are stopped.
  void release(const std::vector<Firing>& firings);

 private:
  struct State {
    size_t firing = 0;  ///< index
    bool begun = false, over = false, told = false;
    Due due;
  };
  void begin(State& state, uint64_t now_ns, Firing& firing);
  void end(State& state, uint64_t now_ns, Firing& firing);

  const Scenario& scenario_;
  std::vector<RankLink>& ranks_;
  const Collector& collector_;
  std::vector<State> states_;
};

}  // namespace r2bench
