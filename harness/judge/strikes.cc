// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/strikes.h"

#include <algorithm>
#include <map>

namespace r2bench {

using faultinject::Effect;
using faultinject::Witness;
using r2ccl::trace::EventType;

namespace {

/// What the program is shown later, or when a fault ends, begins no strike; nor does the post of a WR that is
/// to fail: the program sees its completion.
bool begins_strike(Effect effect) {
  switch (effect) {
    case Effect::kNone:
    case Effect::kPortActiveDelivered:
    case Effect::kLinkUp:
    case Effect::kThawed:
    case Effect::kNextSeen:
    case Effect::kFlushShown:
    case Effect::kWcShown:
    case Effect::kPutBack:
    case Effect::kWrSpoiled:
      return false;
    case Effect::kQpToErr:
    case Effect::kQpConnectedDead:
    case Effect::kPortErrDelivered:
    case Effect::kQpFatalDelivered:
    case Effect::kWcWithheld:
    case Effect::kWcRewritten:
    case Effect::kWrWithheld:
    case Effect::kWrSeen:
    case Effect::kWcDropped:
    case Effect::kReordered:
    case Effect::kPostRefused:
    case Effect::kPollRefused:
    case Effect::kRegistrationRefused:
    case Effect::kModifyRefused:
    case Effect::kCreateRefused:
    case Effect::kEventDelivered:
    case Effect::kLinkDown:
    case Effect::kFrozen:
    case Effect::kGidHidden:
    case Effect::kCqDead:
    case Effect::kDatagramLost:
    case Effect::kDeviceGone:
    case Effect::kCommandRefused:
    case Effect::kCommandIgnored:
    case Effect::kDescriptorEnded:
    case Effect::kChannelEnded:
    case Effect::kKernelLinkDown:
    case Effect::kQdiscSet:
    case Effect::kFlowRuleSet:
    case Effect::kPciDeviceGone:
    case Effect::kCommandChecked:
      return true;
  }
  return true;  // a number that this version does not know
}

std::vector<Firing> in_order_of_time(std::vector<Firing> strikes) {
  std::stable_sort(strikes.begin(), strikes.end(),
                   [](const Firing& a, const Firing& b) { return a.t0_ns < b.t0_ns; });
  return strikes;
}

void earlier(uint64_t& time_ns, uint64_t other_ns) {
  if (time_ns == 0 || other_ns < time_ns) time_ns = other_ns;
}

/// An outage from its link going down, as the first process saw it, to its coming up.
std::vector<Firing> outages(const Firing& firing, const JobRecord& job) {
  std::map<std::pair<uint32_t, uint64_t>, Firing> outages;  // by round, and number in it
  for (const Witness& witness : job.witnesses) {
    if (witness.fault_id != firing.board_id) continue;
    if (witness.effect != Effect::kLinkDown && witness.effect != Effect::kLinkUp) continue;
    const auto [outage, added] = outages.try_emplace({witness.round, witness.value}, firing);
    if (added) outage->second.t0_ns = outage->second.healed_ns = 0;
    earlier(witness.effect == Effect::kLinkDown ? outage->second.t0_ns : outage->second.healed_ns,
            witness.time_ns);
  }
  std::vector<Firing> result;
  for (auto& [number, outage] : outages)
    if (outage.t0_ns != 0) result.push_back(outage);
  return result;
}

/// When a round fired; 0: the board does not say.
uint64_t fired_ns(const Firing& firing, uint32_t round, uint64_t every_ns) {
  const size_t forgotten = firing.rounds - std::min<size_t>(firing.rounds, firing.recent_ns.size());
  if (round >= forgotten && round < firing.rounds) return firing.recent_ns[round - forgotten];
  return every_ns != 0 && firing.triggered_ns != 0 ? firing.triggered_ns + round * every_ns : 0;
}

/// Each round of `repeat` that has an effect on record, by its number: from the first of them on.
std::map<uint32_t, Firing> rounds(const Firing& firing, const faultinject::FaultSpec& spec,
                                  const JobRecord& job) {
  std::map<uint32_t, Firing> rounds;
  for (const Witness& witness : job.witnesses) {
    if (witness.fault_id != firing.board_id || !begins_strike(witness.effect)) continue;
    const auto [round, added] = rounds.try_emplace(witness.round, firing);
    if (added) round->second.t0_ns = 0;
    earlier(round->second.t0_ns, witness.time_ns);
  }
  // The board keeps the last heal only. Rounds before the last one healed by their duration: the first one
  // from its effect on, the others from their firing on.
  const uint64_t lasts = spec.duration ? uint64_t(spec.duration->count()) : 0;
  for (auto& [number, round] : rounds)
    if (lasts != 0 && number + 1 < spec.repeat) {
      const uint64_t fired = number == 0 ? 0 : fired_ns(firing, number, uint64_t(spec.every.count()));
      round.healed_ns = std::max((fired != 0 ? fired : round.t0_ns) + lasts, round.t0_ns);
    }
  return rounds;
}

// The last operation of a job without a stall takes no longer than so many usual ones of those before it.
constexpr uint64_t kUsualOperations = 2;

/// From here on a round may find nothing to strike, because the job is about to end. If the last operation
/// took longer than usual, only when it had ended: a fault may have stalled it. A job that was cut short did
/// not wait for its end.
uint64_t begin_of_last_operation_ns(const JobRecord& job) {
  const Record& record = job.record;
  const auto last_one = std::max_element(
      record.operations.begin(), record.operations.end(),
      [](const OperationSpan& a, const OperationSpan& b) { return a.span.end_ns < b.span.end_ns; });
  if (last_one == record.operations.end()) return record.end_ns;
  const Interval last = last_one->span;
  if (job.outcome == Outcome::kCancelled && !last_one->complete) return last.begin_ns;
  std::vector<uint64_t> lengths;
  for (const OperationSpan& operation : record.operations)
    if (&operation != &*last_one) lengths.push_back(operation.span.end_ns - operation.span.begin_ns);
  if (lengths.empty()) return last.end_ns;
  const auto middle = lengths.begin() + std::ptrdiff_t(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return last.end_ns - last.begin_ns <= kUsualOperations * *middle ? last.begin_ns : last.end_ns;
}

/// How many of a fault's rounds fired at `from_ns` or later.
size_t late_rounds(const Firing& firing, uint64_t every_ns, uint64_t from_ns) {
  if (every_ns != 0 && firing.triggered_ns != 0) {  // the board goes on by the clock while the job closes
    const size_t due =
        firing.triggered_ns < from_ns ? size_t((from_ns - 1 - firing.triggered_ns) / every_ns) + 1 : 0;
    return firing.rounds - std::min<size_t>(firing.rounds, due);
  }
  size_t late = 0;
  for (auto fired_ns = firing.recent_ns.rbegin(); fired_ns != firing.recent_ns.rend(); ++fired_ns) {
    if (*fired_ns < from_ns || late == firing.rounds) break;
    ++late;
  }
  return late;
}

uint64_t first_failback_ns(const Scenario& scenario, const JobRecord& job, const Firing& strike) {
  for (const RankEvent& e : job.trace) {
    if (e.event.type != EventType::kFailback || e.event.time_ns <= strike.t0_ns) continue;
    const NicId nic{uint16_t(int(e.rank) / std::max(scenario.fabric.ranks_per_node, 1)), e.event.nic};
    if (std::find(strike.nics.begin(), strike.nics.end(), nic) != strike.nics.end()) return e.event.time_ns;
  }
  return 0;
}

}  // namespace

bool is_rank_fault(const Scenario& scenario, const Firing& firing) {
  return firing.fault >= scenario.faults.size();
}

bool of_nic(const Scenario& scenario, const Firing& strike) {
  return strike.t0_ns != 0 && !is_rank_fault(scenario, strike);
}

bool takes_away(const Scenario& scenario, const Firing& strike) {
  return scenario.faults[strike.fault].kind->moves_traffic();
}

std::vector<Firing> strikes_of(const Scenario& scenario, const JobRecord& job) {
  std::vector<Firing> strikes;
  for (const Firing& firing : job.firings) {
    std::vector<Firing> own;
    if (!is_rank_fault(scenario, firing) && firing.t0_ns != 0) {
      const auto& spec = scenario.faults[firing.fault];
      if (spec.kind->ends == faultinject::Ends::kAfterItsTime)
        own = outages(firing, job);
      else if (spec.repeat > 1)
        for (const auto& [number, round] : rounds(firing, spec, job)) own.push_back(round);
      own = in_order_of_time(std::move(own));
    }
    if (own.empty()) own = {firing};
    for (size_t i = 0; i < own.size(); ++i) {
      own[i].strike = i;
      if (!is_rank_fault(scenario, own[i]) && own[i].t0_ns != 0 &&
          scenario.faults[own[i].fault].kind->takes == faultinject::Takes::kQueuePairs)
        own[i].back_ns = first_failback_ns(scenario, job, own[i]);
      strikes.push_back(own[i]);
    }
  }
  return strikes;
}

RoundCounts count_rounds(const Scenario& scenario, const JobRecord& job) {
  RoundCounts counts;
  const uint64_t late_from_ns = begin_of_last_operation_ns(job);
  for (const Firing& firing : job.firings) {
    if (is_rank_fault(scenario, firing)) continue;
    const auto& spec = scenario.faults[firing.fault];
    if (spec.repeat <= 1) continue;
    // One that never fired is told as a strike that was not witnessed.
    counts.not_fired += spec.repeat - std::clamp(firing.rounds, 1u, spec.repeat);
    if (firing.t0_ns == 0 || spec.kind->ends == faultinject::Ends::kAfterItsTime) continue;
    const size_t late = late_rounds(firing, uint64_t(spec.every.count()), late_from_ns);
    size_t seen = 0, seen_late = 0;
    for (const auto& [number, round] : rounds(firing, spec, job))
      ++(number + late < firing.rounds ? seen : seen_late);
    counts.seen += seen;
    counts.fired += firing.rounds - late;
    counts.at_end += late - std::min(late, seen_late);
  }
  return counts;
}

uint64_t acts_until_ns(const Firing& strike) {
  uint64_t until = UINT64_MAX;
  if (strike.healed_ns != 0) until = strike.healed_ns;
  if (strike.back_ns != 0) until = std::min(until, strike.back_ns);
  return until;
}

}  // namespace r2bench
