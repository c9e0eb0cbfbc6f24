// SPDX-License-Identifier: Apache-2.0
// When a path that is out of use is destroyed, and when what its NIC may still touch is given up. Pure; times
// are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace r2ccl {

struct Retirement {
  /// With more of them the NIC might have no room for new ones.
  static constexpr size_t kMost = 8;
  /// How long a device that fails may take to say so (DEVICE_FATAL) while it says that commands succeed:
  /// memory is deregistered so long after its queue pair was destroyed.
  static constexpr uint64_t kConfessionNs = 100'000'000;

  /// Of a queue pair that is destroyed: may its NIC still touch its buffers? `done`: the driver has returned;
  /// `refused`: with an error; `removed`: the kernel has stopped the device.
  static constexpr bool may_access(bool done, bool refused, bool removed) {
    return !done || (refused && !removed);
  }
  /// Its end is waited for before buffers are given back. A driver that is `stuck` is not: its program would
  /// hang with it, and is warned (may_access()).
  static constexpr bool is_waited_for(bool done, bool stuck) { return !done && !stuck; }
  /// Is the oldest of `kept` to be destroyed now? `calm`: nobody searches for a path, which needs the NICs'
  /// workers; `keep_until`: a probe that was given up may be answered until then.
  static constexpr bool is_due(size_t kept, bool calm, uint64_t keep_until, uint64_t now) {
    return kept > 0 && (kept > kMost || (calm && now >= keep_until));
  }
};

}  // namespace r2ccl
