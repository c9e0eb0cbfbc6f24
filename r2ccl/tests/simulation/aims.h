// SPDX-License-Identifier: Apache-2.0
// Aims: what random faults seldom meet, and the plans that bring it about.
#pragma once

#include "r2ccl/tests/simulation/plan.h"

namespace r2ccl::simulation {

/// What shows in the trace that a plan without aimed faults has brought about what it aims at: at one channel
/// (of process `by`), `then` follows `first`. kNone: nothing shows it.
struct Sign {
  trace::EventType first = trace::EventType::kNone, then = trace::EventType::kNone;
};

struct Aim {
  const char* name;
  void (*make)(Plan&, Random&);
  Sign sign;
};
/// nullptr: the faults of that seed are drawn at random.
const Aim* aim_of(uint64_t seed, Random& random);

}  // namespace r2ccl::simulation
