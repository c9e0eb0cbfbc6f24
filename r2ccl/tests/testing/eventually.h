// SPDX-License-Identifier: Apache-2.0
// Test support: a bounded wait for what another process or thread comes to by itself.
#pragma once

#include <chrono>
#include <thread>

namespace r2ccl::testing_support {

/// Looks every millisecond; false if `condition` does not hold within 30 s.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace r2ccl::testing_support
