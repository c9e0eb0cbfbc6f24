// SPDX-License-Identifier: Apache-2.0
// The parts of contradictions() (consistency.h) that compute with the structures a result was written from.
#pragma once

#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/report/findings.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// What a result says, read back (read_back.h).
struct ReadBack {
  const nlohmann::json& json;
  const Scenario& scenario;  ///< fabric and workload
  const RunResult& result;   ///< as many modes as json["runs"]
};

/// A run's list of faults: its counts, percentiles and marks.
void check_fault_list(const nlohmann::json& run, Findings& findings);

/// Percentiles grow, and there are some if something was measured.
void check_order(const std::string& what, const nlohmann::json& distribution, Findings& findings);

/// A run's bandwidths, durations, CPU time and rates from its operations, ranks and faults.
void check_speed(const ReadBack& all, const nlohmann::json& run, const ModeResult& mode, Findings& findings);

/// `metrics.values` from the rest of the run, each by its own metric.
void check_values(const ReadBack& all, const nlohmann::json& run, const ModeResult& mode, Findings& findings);

/// Jobs of pairs: the bandwidth of each, what they lost pair by pair, and what the modes pool of them.
void check_pairs(const ReadBack& all, std::vector<std::string>& found);

}  // namespace r2bench
