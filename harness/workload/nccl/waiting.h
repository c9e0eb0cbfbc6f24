// SPDX-License-Identifier: Apache-2.0
// Polling, as whoever waits for a GPU has to.
#pragma once

#include <sched.h>

#include <chrono>

namespace r2bench {

/// Until `condition()` holds. Calls `look()` every two milliseconds; what it throws passes through.
template <typename Condition, typename Look>
void poll_until(Condition&& condition, Look&& look) {
  using namespace std::chrono_literals;
  for (auto due = std::chrono::steady_clock::now() + 2ms; !condition(); sched_yield()) {
    if (std::chrono::steady_clock::now() < due) continue;
    look();
    due = std::chrono::steady_clock::now() + 2ms;
  }
}

}  // namespace r2bench
