// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/strikes.h"

#include <algorithm>
#include <map>

namespace r2bench {

using faultinject::Effect;
using faultinject::Witness;
using r2ccl::trace::EventType;

namespace {

// Two effects of one strike on different processes lie closer together than this; so do none of two strikes.
constexpr uint64_t kOneStrikeNs = 1'000'000;

/// What the program is shown later, or when a fault ends, begins no strike.
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
    case Effect::kWrSpoiled:
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

std::vector<const Witness*> witnesses_of(const JobRecord& job, uint32_t board_id) {
  std::vector<const Witness*> own;
  for (const Witness& witness : job.witnesses)
    if (witness.fault_id == board_id) own.push_back(&witness);
  std::stable_sort(own.begin(), own.end(),
                   [](const Witness* a, const Witness* b) { return a->time_ns < b->time_ns; });
  return own;
}

/// An outage from its link going down, as the first process saw it, to its coming up.
std::vector<Firing> outages(const Firing& firing, const JobRecord& job) {
  std::map<uint64_t, Firing> outages;  // by number
  for (const Witness* witness : witnesses_of(job, firing.board_id)) {
    if (witness->effect != Effect::kLinkDown && witness->effect != Effect::kLinkUp) continue;
    Firing& outage = outages.try_emplace(witness->value, firing).first->second;
    if (outage.strike == 0) outage.t0_ns = outage.healed_ns = 0, outage.strike = size_t(witness->value);
    uint64_t& time = witness->effect == Effect::kLinkDown ? outage.t0_ns : outage.healed_ns;
    if (time == 0) time = witness->time_ns;
  }
  std::vector<Firing> result;
  for (auto& [number, outage] : outages)
    if (outage.t0_ns != 0) result.push_back(outage);
  return result;
}

/// Rounds of `repeat`: `every` says when each begins; else one cannot begin before the one before is over.
std::vector<Firing> rounds(const Firing& firing, const faultinject::FaultSpec& spec, const JobRecord& job) {
  const uint64_t lasts = spec.duration ? uint64_t(spec.duration->count()) : 0;
  const uint64_t every = uint64_t(spec.every.count());
  std::vector<Firing> result;
  for (const Witness* witness : witnesses_of(job, firing.board_id)) {
    if (!begins_strike(witness->effect) || witness->time_ns < firing.t0_ns) continue;
    if (!result.empty()) {
      const Firing& before = result.back();
      uint64_t earliest = before.t0_ns + std::max(lasts, kOneStrikeNs);
      if (every != 0 && firing.triggered_ns != 0)
        earliest = firing.triggered_ns + (before.strike + 1) * every;
      if (witness->time_ns < earliest || result.size() >= firing.rounds) continue;
    }
    Firing round = firing;
    round.strike = result.empty() ? 0 : result.back().strike + 1;
    if (every != 0 && firing.triggered_ns != 0 && witness->time_ns > firing.triggered_ns)
      round.strike = std::max<size_t>(round.strike, size_t((witness->time_ns - firing.triggered_ns) / every));
    round.t0_ns = result.empty() ? firing.t0_ns : witness->time_ns;
    // The board keeps the last round's heal only; those before it healed by their duration.
    const bool last = round.strike + 1 >= spec.repeat;
    round.healed_ns = last || lasts == 0 ? firing.healed_ns : round.t0_ns + lasts;
    result.push_back(round);
  }
  for (size_t i = 0; i < result.size(); ++i) {
    if (lasts != 0 && i + 1 < result.size()) result[i].healed_ns = result[i].t0_ns + lasts;
    result[i].strike = i;
  }
  return result;
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

/// How many of a fault's rounds fired at `from_ns` or later, and when the first of them did.
std::pair<size_t, uint64_t> late_rounds(const Firing& firing, uint64_t every_ns, uint64_t from_ns) {
  size_t late = 0;
  uint64_t first_ns = UINT64_MAX;
  if (every_ns != 0 && firing.triggered_ns != 0) {  // the board goes on by the clock while the job closes
    const size_t due =
        firing.triggered_ns < from_ns ? size_t((from_ns - 1 - firing.triggered_ns) / every_ns) + 1 : 0;
    if (due < firing.rounds) late = firing.rounds - due, first_ns = firing.triggered_ns + due * every_ns;
    return {late, first_ns};
  }
  for (auto fired_ns = firing.recent_ns.rbegin(); fired_ns != firing.recent_ns.rend(); ++fired_ns) {
    if (*fired_ns < from_ns || late == firing.rounds) break;
    ++late;
    first_ns = std::min(first_ns, *fired_ns);
  }
  return {late, first_ns};
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

std::vector<Firing> strikes_of(const Scenario& scenario, const JobRecord& job) {
  std::vector<Firing> strikes;
  for (const Firing& firing : job.firings) {
    std::vector<Firing> own;
    if (!is_rank_fault(scenario, firing) && firing.t0_ns != 0) {
      const auto& spec = scenario.faults[firing.fault];
      if (spec.kind->ends == faultinject::Ends::kAfterItsTime)
        own = outages(firing, job);
      else if (spec.repeat > 1)
        own = rounds(firing, spec, job);
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
    if (is_rank_fault(scenario, firing) || firing.t0_ns == 0) continue;
    const auto& spec = scenario.faults[firing.fault];
    if (spec.repeat <= 1 || spec.kind->ends == faultinject::Ends::kAfterItsTime) continue;
    const auto [late, first_ns] = late_rounds(firing, uint64_t(spec.every.count()), late_from_ns);
    size_t seen = 0, seen_late = 0;
    for (const Firing& round : rounds(firing, spec, job)) ++(round.t0_ns < first_ns ? seen : seen_late);
    counts.seen += seen;
    counts.fired += std::max(firing.rounds - late, seen);
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
