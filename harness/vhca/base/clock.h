// SPDX-License-Identifier: Apache-2.0
// The clock that all times in the fabric are of: CLOCK_MONOTONIC, the same for all processes of a machine.
#pragma once

#include <time.h>

#include <cstdint>

namespace vhca {

inline constexpr std::uint64_t kNever = ~0ull;

inline std::uint64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace vhca
