// The one clock of the project: CLOCK_MONOTONIC in nanoseconds, comparable between processes of one host.
#pragma once

#include <time.h>

#include <cstdint>

namespace r2ccl {

inline uint64_t now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

inline constexpr uint64_t kNsPerMs = 1'000'000;

}  // namespace r2ccl
