// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/evaluate_restored.h"

#include <algorithm>
#include <map>

#include "harness/judge/job_times.h"
#include "harness/judge/settle_bound.h"
#include "harness/measure/restored.h"

namespace r2bench {
namespace {

// Every channel is home so long after the last heal of a round, or after 50 operations as they took before.
constexpr double kHomeBoundMs = 5000;
constexpr double kHomeOperations = 50;

bool over_once_it_struck(const faultinject::FaultSpec& spec) {
  return spec.kind->ends == faultinject::Ends::kAfterStrikes && spec.ends_by_itself();
}

}  // namespace

void measure_restored(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes,
                      ModeResult& mode) {
  struct Round {
    uint64_t struck_ns = UINT64_MAX, healed_ns = 0;
    uint64_t until_ns = UINT64_MAX;  // a strike that leaves_last_place()
    std::string not_healed;          // the name of such a fault
  };
  std::map<size_t, Round> rounds;
  for (size_t i = 0; i < strikes.size(); ++i) {
    const Firing& strike = strikes[i];
    if (strike.t0_ns == 0 || strike.t0_ns > job.record.end_ns) continue;
    Round& round = rounds[strike.repetition];
    if (leaves_last_place(mode.faults[i].strike, mode.faults[i].why_not_sampled)) {
      round.until_ns = std::min(round.until_ns, strike.t0_ns);
      continue;
    }
    round.struck_ns = std::min(round.struck_ns, strike.t0_ns);
    // What is over with its strike, as a queue pair that broke, leaves nothing to be healed.
    if (!is_rank_fault(scenario, strike) && over_once_it_struck(scenario.faults[strike.fault])) {
      round.healed_ns = std::max(round.healed_ns, strike.t0_ns);
      continue;
    }
    if (strike.healed_ns == 0 || strike.healed_ns > job.record.end_ns) round.not_healed = mode.faults[i].name;
    round.healed_ns = std::max(round.healed_ns, strike.healed_ns);
  }
  std::string why = "there was no fault";
  std::vector<Restored> healed;
  size_t left_out = 0;
  std::string why_left_out;
  const uint64_t first_ns = rounds.empty() ? 0 : rounds.begin()->second.struck_ns;
  const uint64_t bound_ns =
      uint64_t(1e6 * std::max(kHomeBoundMs, kHomeOperations * operation_ms(job.record, 0, first_ns)));
  for (auto round = rounds.begin(); round != rounds.end(); ++round) {
    const auto next = std::next(round);
    const auto& [struck_ns, healed_ns, before_ns, not_healed] = round->second;
    const uint64_t until_ns =
        std::min(before_ns, next == rounds.end() ? job.record.end_ns : next->second.struck_ns);
    if (!not_healed.empty()) {
      why = not_healed + " was still there when the job ended";
      ++left_out;
      if (why_left_out.empty()) why_left_out = why;
      continue;
    }
    const std::string name = rounds.size() > 1 ? "round " + std::to_string(round->first + 1) + ": " : "";
    Restored& of_round = healed.emplace_back();
    const auto home_ns = home_since(job.trace, until_ns, why);
    const uint64_t at_latest_ns = healed_ns + bound_ns;
    if (home_ns && std::max(*home_ns, healed_ns) <= at_latest_ns) {
      of_round = restored(job.record.operations, first_ns, {std::max(*home_ns, healed_ns), until_ns}, name);
      of_round.rounds_home = 1;
    } else if (until_ns > at_latest_ns) {
      of_round = restored(job.record.operations, first_ns, {at_latest_ns, until_ns}, name);
      of_round.rounds_late = 1;
    } else {
      of_round.why_not = name + why;
    }
    of_round.rounds = 1;
  }
  mode.restored = worst_of(healed);
  mode.restored.rounds_not_healed = left_out;
  mode.restored.why_not_healed = why_left_out;
  if (healed.empty()) mode.restored.why_not = why;
}

}  // namespace r2bench
