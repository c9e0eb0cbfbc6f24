#include "harness/report/counts.h"

#include <algorithm>

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

}  // namespace

std::vector<uint64_t> counts_by_round(const ModeResult& mode, const std::string& metric) {
  if (metric == "fault_witness") return witnesses_by_round(mode);
  struct Counted {
    const char* metric;
    size_t ModeResult::*whole;
    size_t RoundCounts::*of_round;
  };
  static constexpr Counted kCounted[] = {{"migrations", &ModeResult::migrations, &RoundCounts::migrations},
                                         {"failbacks", &ModeResult::failbacks, &RoundCounts::failbacks},
                                         {"gray_nics", &ModeResult::gray_nics, &RoundCounts::gray_nics},
                                         {"well_nics", &ModeResult::well_nics, &RoundCounts::well_nics},
                                         {"lanes", &ModeResult::lanes, &RoundCounts::lanes}};
  for (const Counted& counted : kCounted) {
    if (metric != counted.metric) continue;
    if (mode.rounds.size() < 2) return {mode.*counted.whole};
    std::vector<uint64_t> counts;
    for (const RoundCounts& round : mode.rounds) counts.push_back(round.*counted.of_round);
    return counts;
  }
  return {};
}

std::string in_words(const std::vector<uint64_t>& counts) {
  if (counts.empty()) return "";
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (counts.size() == 1) return std::to_string(*most);
  const std::string rounds = std::to_string(counts.size()) + " rounds";
  return *least == *most ? std::to_string(*most) + " in each of " + rounds
                         : std::to_string(*least) + " … " + std::to_string(*most) + " in " + rounds;
}

bool exceeded(uint64_t count, Comparison comparison, double bound) {
  switch (comparison) {
    case Comparison::kLess:
      return double(count) >= bound;
    case Comparison::kLessEqual:
    case Comparison::kEqual:
      return double(count) > bound;
    case Comparison::kNotEqual:
    case Comparison::kGreaterEqual:
    case Comparison::kGreater:
      return false;
  }
  return false;
}

}  // namespace r2bench
