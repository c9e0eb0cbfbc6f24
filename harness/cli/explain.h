// SPDX-License-Identifier: Apache-2.0
// Scenarios in sentences: for `explain` and `run --dry-run`.
#pragma once

#include <string>

#include "harness/cli/console.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// What the scenario does and expects, metric by metric.
void print_explanation(const Scenario& scenario, const Console& console);

/// What `run` would start: ranks, environment, faults with their triggers, expectations.
void print_plan(const Scenario& scenario, const Console& console);

std::string fault_in_words(const faultinject::FaultSpec& fault);
std::string fault_in_words(const RankFault& fault);
std::string expectation_in_words(const Expectation& expectation);

}  // namespace r2bench
