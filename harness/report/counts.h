// Metrics that are counted, round by round: each round of the faults (--repeats) has to meet an expectation
// of a count, so that an expectation means the same however often the faults are repeated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/scenario/expectation.h"

namespace r2bench {

/// The metric in each round; one number where there were no repeats. Empty: the metric is not counted.
std::vector<uint64_t> counts_by_round(const ModeResult& mode, const std::string& metric);

/// "2", "2 in each of 20 rounds", "1 … 3 in 20 rounds".
std::string in_words(const std::vector<uint64_t>& counts);

/// Whether a count that can only grow misses the expectation already, so that no rest of the run could meet
/// it.
bool exceeded(uint64_t count, Comparison comparison, double bound);

}  // namespace r2bench
