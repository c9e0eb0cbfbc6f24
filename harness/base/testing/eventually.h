// SPDX-License-Identifier: Apache-2.0
// Test support: a bounded wait for what another process or thread comes to by itself.
#pragma once

#include <chrono>
#include <thread>

namespace r2bench {

/// Looks every millisecond; false if `condition` does not hold within `limit`.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace r2bench
