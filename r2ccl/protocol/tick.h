// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace r2ccl {

/// The service thread's two clocks, in nanoseconds: `now` is CLOCK_MONOTONIC; `alive` advances only while
/// this thread really runs, in capped steps, so that our own pause makes nobody suspect.
struct Tick {
  uint64_t now;
  uint64_t alive;
};

}  // namespace r2ccl
