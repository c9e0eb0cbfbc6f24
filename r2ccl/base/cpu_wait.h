// SPDX-License-Identifier: Apache-2.0
// How long the calling thread has waited for a CPU since it began, although it could have run: preempted, or
// not yet scheduled after it woke up. Linux, /proc/thread-self/schedstat (Documentation/scheduler/sched-stats).
#pragma once

#include <cstdint>
#include <optional>

namespace r2ccl {

/// In ns. Nothing: the kernel does not say (CONFIG_SCHED_INFO), or /proc is not mounted. Three system calls.
std::optional<uint64_t> waited_for_cpu_ns() noexcept;

}  // namespace r2ccl
