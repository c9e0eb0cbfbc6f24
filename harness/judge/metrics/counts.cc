// SPDX-License-Identifier: Apache-2.0
// Metrics that are counted, round by round: each round of the faults (--repeats) has to meet an expectation
// of a count, so that an expectation means the same however often the faults are repeated.
#include <algorithm>

#include "harness/judge/metric.h"

namespace r2bench {
namespace {

std::vector<uint64_t> witnesses_by_round(const ModeResult& mode) {
  std::vector<uint64_t> counts;
  for (const FaultSample& sample : mode.faults) {
    counts.resize(std::max(counts.size(), sample.repetition + 1));
    counts[sample.repetition] += sample.witnessed;
  }
  // The job that a fault ended need not have come to its last round.
  while (mode.outcome != Outcome::kOk && counts.size() > 1 && counts.back() == 0) counts.pop_back();
  if (counts.size() < 2) counts = {mode.faults_witnessed};
  return counts;
}

/// "2", "2 in each of 20 rounds", "1 … 3 in 20 rounds".
std::string in_words(const std::vector<uint64_t>& counts) {
  if (counts.empty()) return "";
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (counts.size() == 1) return std::to_string(*most);
  const std::string rounds = std::to_string(counts.size()) + " rounds";
  return *least == *most ? std::to_string(*most) + " in each of " + rounds
                         : std::to_string(*least) + " … " + std::to_string(*most) + " in " + rounds;
}

Metric counted(const char* name, const char* meaning, Needs needs,
               std::function<std::vector<uint64_t>(const ModeResult&)> by_round, std::string place) {
  return {.info = {.name = name, .meaning = meaning, .needs = needs},
          .wanted = "a count, in each round",
          .value =
              [by_round](const Measured& m) {
                const auto counts = by_round(m.mode);
                return Value::of(double(*std::max_element(counts.begin(), counts.end())), in_words(counts));
              },
          .by_round = by_round,
          .place = std::move(place),
          .grows = true};
}

Metric counted(const char* name, const char* meaning, Needs needs, size_t ModeResult::*whole,
               size_t RoundCounts::*of_round, const char* group) {
  return counted(
      name, meaning, needs,
      [whole, of_round](const ModeResult& mode) -> std::vector<uint64_t> {
        if (mode.rounds.size() < 2) return {mode.*whole};
        std::vector<uint64_t> counts;
        for (const RoundCounts& round : mode.rounds) counts.push_back(round.*of_round);
        return counts;
      },
      std::string("/metrics/") + group + "/" + name);
}

}  // namespace

namespace metrics_of {

std::vector<Metric> counts() {
  const Needs of_trace = {.trace = true}, of_balance = {.balance = true, .trace = true};
  return {
      counted("fault_witness", "faults of the scenario that were seen to take effect", {.fault = true},
              witnesses_by_round, "/metrics/faults/witnessed"),
      counted("migrations",
              "unplanned fences (not for a failback), counted at both ends: a channel that leaves a path "
              "counts twice",
              of_trace, &ModeResult::migrations, &RoundCounts::migrations, "recovery"),
      counted("failbacks", "failbacks to a repaired NIC, counted at both ends of a channel", of_trace,
              &ModeResult::failbacks, &RoundCounts::failbacks, "recovery"),
      counted("gray_nics",
              "how often a rank declared a NIC degraded, because it carried clearly less than the others "
              "(mode balance)",
              of_balance, &ModeResult::gray_nics, &RoundCounts::gray_nics, "balance"),
      counted("well_nics", "how often a rank declared a degraded NIC healthy again (mode balance)",
              of_balance, &ModeResult::well_nics, &RoundCounts::well_nics, "balance"),
      counted("lanes",
              "additional paths (lanes) that channels began to use beside their active path (mode balance)",
              of_balance, &ModeResult::lanes, &RoundCounts::lanes, "balance"),
  };
}

}  // namespace metrics_of
}  // namespace r2bench
