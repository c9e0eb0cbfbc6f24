// SPDX-License-Identifier: Apache-2.0
// Metrics that are counted, round by round: each round of the faults (--repeats) has to meet an expectation
// of a count, so that an expectation means the same however often the faults are repeated.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "harness/judge/job_record.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

using r2ccl::trace::Event;
using r2ccl::trace::EventType;

std::vector<uint64_t> witnesses_by_round(const ModeResult& mode) {
  std::vector<uint64_t> counts;
  for (const FaultSample& sample : mode.faults) {
    counts.resize(std::max(counts.size(), sample.repetition + 1));
    counts[sample.repetition] += sample.witnessed;
  }
  // A job that a fault ended need not have come to its last round. Of several jobs each has one round.
  while (mode.outcome != Outcome::kOk && !mode.jobs_without_fault && counts.size() > 1 && counts.back() == 0)
    counts.pop_back();
  if (counts.size() < 2) counts = {mode.faults_witnessed};
  return counts;
}

std::function<bool(const Event&)> events_of(EventType type) {
  return [type](const Event& event) { return event.type == type; };
}

/// When the last rank took each plan. A plan that a rank has not taken does not count. Ranks number their
/// groups as they make them, so a group has the same number on all ranks if they make their groups in the
/// same order.
std::vector<uint64_t> plans_agreed(const JobRecord& job) {
  struct Plan {
    std::set<uint32_t> ranks;
    uint64_t last_ns = 0;
  };
  std::map<std::pair<uint32_t, uint64_t>, Plan> plans;  // by group and epoch
  for (const RankEvent& e : job.trace) {
    if (e.event.type != EventType::kPlanAgreed) continue;
    Plan& plan = plans[{e.event.channel, e.event.a}];
    if (plan.ranks.insert(e.rank).second) plan.last_ns = std::max(plan.last_ns, e.event.time_ns);
  }
  std::vector<uint64_t> times;
  for (const auto& [number, plan] : plans)
    if (plan.ranks.size() == job.labels.size()) times.push_back(plan.last_ns);
  return times;
}

Metric counted(const char* name, const char* meaning, Needs needs, const char* group,
               std::function<bool(const Event&)> counts) {
  return {.info = {.name = name, .meaning = meaning, .needs = needs},
          .wanted = "a count, in each round",
          .counts = std::move(counts),
          .place = std::string("/metrics/") + group + "/" + name,
          .grows = true};
}

}  // namespace

namespace metrics_of {

std::vector<Metric> counts() {
  const Needs of_trace = {.trace = true}, of_balance = {.balance = true, .trace = true};
  return {
      {.info = {.name = "fault_witness",
                .meaning = "faults of the scenario that were seen to take effect",
                .needs = {.fault = true}},
       .wanted = "a count, in each round",
       .by_round = witnesses_by_round,
       .place = "/metrics/faults/witnessed",
       .grows = true},
      counted("migrations",
              "fences, except those for failback and spreading, counted at both ends: a channel that leaves "
              "a path counts twice",
              of_trace, "recovery",
              [](const Event& event) { return event.type == EventType::kFenceStarted && event.c != 1; }),
      counted("failbacks", "failbacks to a repaired NIC, counted at both ends of a channel", of_trace,
              "recovery", events_of(EventType::kFailback)),
      counted("peer_slow",
              "how often a channel found its peer slow: its NIC answers, but the peer does not (no failure)",
              of_trace, "recovery", events_of(EventType::kPeerSlow)),
      counted("gray_nics",
              "how often a rank declared a NIC degraded, because it carried clearly less than the others "
              "(mode balance)",
              of_balance, "balance", events_of(EventType::kNicGray)),
      counted("well_nics", "how often a rank declared a degraded NIC healthy again (mode balance)",
              of_balance, "balance", events_of(EventType::kNicWell)),
      counted("lanes",
              "additional paths (lanes) that channels began to use beside their active path (mode balance)",
              of_balance, "balance", events_of(EventType::kLaneUp)),
      {.info = {.name = "plans_agreed",
                .meaning =
                    "plans that replaced the first one and that every rank of the job has taken; a plan "
                    "belongs to the round in which the last rank took it (mode allreduce)",
                .needs = {.trace = true, .plans = true}},
       .wanted = "a count, in each round",
       .times = plans_agreed,
       .grows = true},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
