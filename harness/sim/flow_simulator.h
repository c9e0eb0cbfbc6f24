// SPDX-License-Identifier: Apache-2.0
// How long a schedule takes on ports of given capacities: transfers as flows that share ports, operations as
// events. Runs the same schedules as the executor and the checker; knows nothing of packets, NICs or verbs.
// Pure: no clock, no threads.
#pragma once

#include <cstdint>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/schedule.h"

namespace r2bench {

enum class Sharing {
  kMaxMin,  ///< weighted max-min: what a flow cannot use the others get, in proportion to their connections'
            ///< weights
  kExclusive,  ///< each group has its part of each port to itself, in proportion to its weight there; within
               ///< it max-min
};

/// What the schedule runs on.
struct Ports {
  /// Bytes per second of each node, sending and receiving alike; [0] of all its rails, further ones by
  /// ConnectionGroup::rail_class.
  std::vector<std::vector<double>> capacity;
  std::vector<uint32_t> node_of_rank;  ///< empty: each rank is a node. Within a node nothing takes time
  double latency_s = 0;  ///< from the last byte sent to the receiver's operation; credits return at once
  double reduce_bytes_per_second = 0;  ///< of each rank, one addition at a time; 0: no limit
  Sharing sharing = Sharing::kMaxMin;
};

struct SimulationResult {
  double seconds = 0;
  uint64_t transfers = 0;
  uint64_t steps = 0;         ///< moments at which something happened
  uint64_t memory_bytes = 0;  ///< schedule and state
};

/// Transfers that end within this part of their time alone on the port count as ending together; what they
/// had left is added to the connection's next one, so that nothing is gained.
inline constexpr double kSameMoment = 1e-2;

/// The time until every operation of `schedule` has run on `bytes` of data. kInvalidArgument when it never
/// ends, or a needed port has no capacity.
r2ccl::Result<SimulationResult> simulate(const r2ccl::collective::Schedule& schedule, const Ports& ports,
                                         uint64_t bytes);

}  // namespace r2bench
