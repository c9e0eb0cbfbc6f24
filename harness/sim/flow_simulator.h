// SPDX-License-Identifier: Apache-2.0
// How long a schedule takes on ports of given capacities: transfers as flows that share ports, operations as
// events. Runs the same schedules as the executor and the checker; knows nothing of packets, messages or
// verbs. Pure: no clock, no threads.
#pragma once

#include <cstdint>

#include "harness/sim/ports.h"
#include "r2ccl/base/result.h"
#include "r2ccl/collective/schedule.h"

namespace r2bench {

struct SimulationResult {
  double seconds = 0;
  uint64_t transfers = 0;
  uint64_t steps = 0;         ///< moments at which something happened
  uint64_t memory_bytes = 0;  ///< schedule and state
};

/// Transfers that end within this part of their time alone on the port count as ending together; what they
/// had left is added to the connection's next one, so that nothing is gained.
inline constexpr double kSameMoment = 1e-2;

/// The time until every operation of `schedule` has run on `bytes` of data. Over NICs the parts of a chunk
/// travel at the same time, each behind its connection's earlier ones on that rail; an operation has
/// completed when all parts have. kInvalidArgument: it never ends, a needed port has no capacity, or
/// shared_ports().
r2ccl::Result<SimulationResult> simulate(const r2ccl::collective::Schedule& schedule, const Ports& ports,
                                         uint64_t bytes);

}  // namespace r2bench
