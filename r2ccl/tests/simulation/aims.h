// SPDX-License-Identifier: Apache-2.0
// Aims: what random faults seldom meet, and the plans that bring it about.
#pragma once

#include <set>
#include <utility>

#include "r2ccl/tests/simulation/plan.h"

namespace r2ccl::simulation {

/// What shows in the trace that a plan has brought about what it aims at: at one end of a channel `then`
/// follows `first`, and no `unless` comes in between. kNone: its faults alone show it.
struct Sign {
  trace::EventType first = trace::EventType::kNone, then = trace::EventType::kNone,
                   unless = trace::EventType::kNone;
};
class SignWatch {
 public:
  explicit SignWatch(const Plan& plan);
  void event(const trace::Event& event, int process);
  bool seen() const { return seen_; }

 private:
  const Sign sign_;
  std::set<std::pair<int, uint32_t>> first_seen_;  // process, channel
  bool seen_ = false;
};

struct Aim {
  const char* name;
  void (*make)(Plan&, Random&);
  Sign sign;
};
/// nullptr: the faults of that seed are drawn at random.
const Aim* aim_of(uint64_t seed, Random& random);

}  // namespace r2ccl::simulation
