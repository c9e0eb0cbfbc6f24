// SPDX-License-Identifier: Apache-2.0
// How long an AllReduce takes by each algorithm: closed forms, and a queueing model for streams of
// operations. Pure.
#pragma once

#include <cstdint>

#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {

inline constexpr uint32_t kBuilderDepth = 2;  ///< of the rings' builders

/// The algorithm's time with K = `segments`; `leaves`: of four-stage, at least 1 and fewer than there are
/// nodes. `least`: of an operation that is alone, without what its lanes wait for, which takes longer to find
/// out: no more seconds than without it, up to rounding.
Candidate predict(const Job& job, Algorithm algorithm, uint32_t segments, uint32_t leaves = 0,
                  bool least = false);
/// The same of a schedule of `shape`: its algorithm, leaves, parts, order and rails.
Candidate predict(const Job& job, const Candidate& shape, uint32_t segments, bool least = false);

/// A chunk that is this part of the data, cut into fewer messages than there are NICs, takes so many times as
/// long as if all of them had their share of it.
double messages_in_turn(const Job& job, double chunk);

/// Those whose lanes wait for each other, so that queued_seconds() holds in a stream: double tree, four-stage,
/// mix and direct.
bool queues(Algorithm algorithm);
/// Seconds of each operation of a stream, at least, if operations queue for the ports between the latencies
/// that each of them waits for.
struct Queued {
  double slots = 0;  ///< `beside` operations, each of whose lanes goes on with another one when it is done
  double operations =
      0;  ///< `in_flight` operations, each of which is followed by another one when it is done
  double most() const { return slots > operations ? slots : operations; }
};
Queued queued_seconds(const Candidate& candidate, uint32_t in_flight, uint32_t beside);

}  // namespace r2ccl::collective
