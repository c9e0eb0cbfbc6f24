// SPDX-License-Identifier: Apache-2.0
// The one clock of the project: CLOCK_MONOTONIC in nanoseconds, comparable between processes of one host.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace r2ccl {

inline uint64_t now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

inline constexpr uint64_t kNsPerMs = 1'000'000;

constexpr uint64_t nanoseconds(std::chrono::milliseconds m) { return uint64_t(m.count()) * kNsPerMs; }

}  // namespace r2ccl
