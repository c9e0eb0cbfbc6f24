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

/// The weight of a stream's flows for each piece that they are behind the oldest one: the engine sends what
/// is furthest behind first, so a port has little left for later pieces.
inline constexpr double kLaterPiece = 0.2;

/// One operation in pieces, as NCCL gives them to the host engine: each runs the whole schedule. Piece n runs
/// in slot n modulo `slots`, which has connections of its own: each of its lanes goes on with the slot's next
/// piece when it is done with one. A rank begins piece n when all pieces up to n - `in_flight` have ended
/// there. None may be 0.
struct PieceStream {
  uint32_t pieces = 1;
  uint32_t slots = 1;
  uint32_t in_flight = 1;
};

/// The time until every operation of `schedule` has run on `bytes` of data, for each piece of `stream`. Over
/// NICs the parts of a chunk travel at the same time, each behind its connection's earlier ones on that rail;
/// an operation has completed when all parts have. kInvalidArgument: it never ends, a needed port has no
/// capacity, `stream` has a 0, or shared_ports().
r2ccl::Result<SimulationResult> simulate(const r2ccl::collective::Schedule& schedule, const Ports& ports,
                                         uint64_t bytes, const PieceStream& stream = {});

}  // namespace r2bench
