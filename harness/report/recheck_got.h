// SPDX-License-Identifier: Apache-2.0
// The part of conclusion_mismatches() (recheck.h) that looks for what an expectation says in the run that it
// is about: what was got, and the bound that this was held against. Each function adds one sentence for each
// thing that is not there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/judge/metric.h"
#include "harness/scenario/expectation.h"

namespace r2bench {

/// An expectation of a result.json, and what it is about.
struct Stored {
  const std::string& name;
  const Metric& metric;
  const nlohmann::json& expectation;
  const nlohmann::json& run;
};

/// The value that was got, in numbers and in words.
void check_got(const Stored& stored, std::vector<std::string>& found);

/// A time is the run's own, or, where the bound names `floor`, that of the fault that decides.
void check_time(const Stored& stored, const Numeric& numeric, std::vector<std::string>& found);

/// The bound follows from the run's own wake-up latency and limit, and from the floor of the run or a
/// fault.
void check_bound(const Stored& stored, const Numeric& numeric, std::vector<std::string>& found);

}  // namespace r2bench
