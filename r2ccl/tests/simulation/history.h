// SPDX-License-Identifier: Apache-2.0
// One history: a plan carried out, and what must hold whatever the plan.
#pragma once

#include <string>
#include <vector>

#include "r2ccl/tests/simulation/plan.h"

namespace r2ccl::simulation {

/// How often the log claimed what is checked (failure_claims.h).
struct ClaimCount {
  uint64_t detectors = 0, failures = 0, searches = 0, outages = 0, drivers = 0;
  void add(const ClaimCount& other) {
    detectors += other.detectors, failures += other.failures, searches += other.searches;
    outages += other.outages, drivers += other.drivers;
  }
  bool has_all() const { return detectors > 0 && failures > 0 && searches > 0 && outages > 0 && drivers > 0; }
};

struct Verdict {
  std::string violation;  ///< empty: everything holds
  uint64_t events = 0;
  uint64_t digest = 0xcbf29ce484222325;  ///< of the trace and the log, with their times
  Time simulated = 0;
  Time longest_gap = 0;  ///< between two messages of a channel, without pauses of its programs
  int migrations = 0;
  int errors = 0;           ///< that had to be
  std::vector<Fate> fates;  ///< of the plan's faults
  ClaimCount claims;
  bool sign = false;  ///< the sign of the plan's aim was seen
};
/// At most once in an operating-system process. `tell`: the log and the faults go to stdout.
Verdict run(const Plan& plan, bool tell);

}  // namespace r2ccl::simulation
