// SPDX-License-Identifier: Apache-2.0
// CPU time of a rank's transport: of the whole process but the thread that fills and compares the buffers.
#pragma once

#include <cstdint>
#include <ctime>

namespace r2bench {

inline uint64_t read_clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

/// Of this process so far, user and system, without the calling thread's.
inline uint64_t cpu_beside_this_thread_ns() {
  // This thread's first: what it uses in between is counted, not subtracted, and the sum never falls below 0.
  const uint64_t own = read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  return read_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own;
}

}  // namespace r2bench
