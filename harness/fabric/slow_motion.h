// SPDX-License-Identifier: Apache-2.0
// A scenario in slow motion, for a fabric that is slower than the NICs it stands for: every second of the
// scenario takes `factor` seconds. Rates are divided and times multiplied, all by the same factor, so that
// what the scenario claims (ratios, and times on top of the run's own floor and wake-up) stays the same claim
// at another speed. Pure.
#pragma once

#include "harness/scenario/scenario.h"

namespace r2bench {

/// The least power of two by which all NICs together send no more than `payload_bits_per_s`; 1 … 4096. A
/// fabric of unlimited rate, which claims no speed, gets `unlimited`.
int slow_motion_factor(const Fabric& fabric, uint64_t payload_bits_per_s, int unlimited);

/// Divided: the NICs' rate and every rate of a fault. Multiplied: latency, every time of a fault, timeouts,
/// numbers of milliseconds in expectations (a factor of floor, wakeup or limit is none), the transport's
/// timeout (by its exponent) and every R2CC_*_MS, the core's defaults included (halved again
/// while the core does not take so much). Unchanged: bytes, counts,
/// ratios. `factor` is a power of two, 1 changes nothing. What was changed stands in `overrides` and in each
/// expectation's `wanted`.
Scenario in_slow_motion(Scenario scenario, int factor);

}  // namespace r2bench
