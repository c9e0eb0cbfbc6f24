// SPDX-License-Identifier: Apache-2.0
#include "harness/run/rank_faults.h"

#include <algorithm>
#include <csignal>

namespace r2bench {

const RankFault& rank_fault_of(const Scenario& scenario, const Firing& firing) {
  return scenario.rank_faults[firing.fault - scenario.faults.size()];
}

RankFaults::RankFaults(const Scenario& scenario, std::vector<RankLink>& ranks, const Collector& collector)
    : scenario_(scenario), ranks_(ranks), collector_(collector) {}

void RankFaults::plan(size_t index, const Firing& firing, Due due) {
  const RankFault& fault = rank_fault_of(scenario_, firing);
  State state;
  state.firing = index;
  state.due = due;
  // A rank that knows beforehand sleeps in exactly that iteration.
  state.told = rank_fault_info(fault.kind).signal == 0 && due.iteration != UINT64_MAX;
  if (state.told)
    ranks_[size_t(firing.rank)].send(
        {{"type", "sleep"}, {"ns", int64_t(fault.duration.count())}, {"at", due.iteration}});
  states_.push_back(state);
}

void RankFaults::run(uint64_t now_ns, bool first_round, bool ending, std::vector<Firing>& firings) {
  for (State& state : states_) {
    Firing& firing = firings[state.firing];
    if (state.over) continue;
    if (state.begun) {
      end(state, now_ns, firing);
      continue;
    }
    if (ending && !state.told) continue;
    const auto& at = rank_fault_of(scenario_, firing).at_time;
    const uint64_t first = collector_.first_iteration_ns();
    if (first_round && at && first) state.due.time_ns = first + uint64_t(at->count());
    if (now_ns < state.due.time_ns && collector_.begun_by_any() <= state.due.iteration) continue;
    begin(state, now_ns, firing);
  }
}

void RankFaults::begin(State& state, uint64_t now_ns, Firing& firing) {
  const RankFault& fault = rank_fault_of(scenario_, firing);
  const RankFaultInfo& kind = rank_fault_info(fault.kind);
  RankLink& rank = ranks_[size_t(firing.rank)];
  state.begun = true;
  firing.triggered_ns = now_ns;
  if (kind.signal == 0) {
    if (!state.told) rank.send({{"type", "sleep"}, {"ns", int64_t(fault.duration.count())}});
    return;
  }
  firing.t0_ns = rank.signal(kind.signal);
  if (!kind.lasts) state.over = true;
}

void RankFaults::end(State& state, uint64_t now_ns, Firing& firing) {
  const RankFault& fault = rank_fault_of(scenario_, firing);
  RankLink& rank = ranks_[size_t(firing.rank)];
  if (rank_fault_info(fault.kind).signal == 0) {
    if (rank.slept.empty()) return;
    firing.t0_ns = rank.slept.front().first;
    firing.healed_ns = rank.slept.front().second;
    rank.slept.pop_front();
    state.over = true;
  } else if (now_ns >= firing.t0_ns + uint64_t(fault.duration.count())) {
    firing.healed_ns = rank.signal(SIGCONT);
    state.over = true;
  }
}

bool RankFaults::pausing() const {
  return std::any_of(states_.begin(), states_.end(),
                     [](const State& state) { return state.begun && !state.over; });
}

void RankFaults::release(const std::vector<Firing>& firings) {
  for (State& state : states_) {
    if (!state.begun || state.over) continue;
    ranks_[size_t(firings[state.firing].rank)].signal(SIGCONT);
    state.over = true;
  }
}

}  // namespace r2bench
