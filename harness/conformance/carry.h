// SPDX-License-Identifier: Apache-2.0
// How much two devices carry at once, both ways, when nothing limits them: what a slow fabric's speed is
// chosen by.
#pragma once

#include <chrono>

#include "harness/conformance/endpoint.h"

namespace r2bench::conformance {

/// Bits of payload per second, both directions together, over `time` (after a start that does not count).
/// Throws Broken when a write fails.
double carried_bits_per_s(Device& a, Device& b, std::chrono::milliseconds time);

}  // namespace r2bench::conformance
