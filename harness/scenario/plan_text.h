// SPDX-License-Identifier: Apache-2.0
// What a scenario does to its job, in one line each: for results and for people.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// "during iteration 60", "after 200 ms", "at the event migration_started" …
std::string trigger_in_words(const faultinject::Trigger& trigger);

/// Every fault of the scenario, in its order, with all that the file says of it: "during iteration 60:
/// throttle node1/nic0 (rate: 100 Mbit/s), for 2.00 s". Two scenarios whose plans are equal strike alike.
std::vector<std::string> plan_in_words(const Scenario& scenario);

/// The environment that the file gives the ranks of a mode: the scenario's, and the mode's on top.
std::map<std::string, std::string> stated_environment(const Scenario& scenario, const Mode& mode);

}  // namespace r2bench
