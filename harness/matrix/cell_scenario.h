// SPDX-License-Identifier: Apache-2.0
// A cell's job as a scenario file, which `r2bench run` takes as well.
#pragma once

#include <cstdint>
#include <string>

#include "harness/matrix/cell.h"

namespace r2bench::matrix {

/// Names of faults in the scenario.
inline constexpr const char* kClockFault = "clock";  ///< a noop that marks the message's post
inline constexpr const char* kProvokerFault =
    "provoker";                                    ///< what makes the migration that is then disturbed
inline constexpr const char* kCellFault = "cell";  ///< the cell's own: "cell-node0", "cell-node1"

/// Whether the host engine carries the operation: an AllReduce in mode allreduce, where the scenario forces
/// CollNet, so that faults strike the engine and not the ring that runs while nothing is degraded.
bool on_engine(Operation op, const std::string& mode);
/// The message in question, counted from 1 over those that node 0's NIC 0 sends, the engine's set-up included;
/// 0 where the moment is not one of a message. Before it nothing is broken.
int message_of(Moment moment, Operation op, bool on_engine);
/// Messages of node 0 to node 1 in one operation (the engine's: on one NIC), and operations in the job.
int messages_per_operation(Operation op, bool on_engine);
int operations_of(Moment moment, Operation op, bool on_engine);

/// `mode`: migrate, balance or allreduce, as in a scenario.
std::string scenario_text(const Cell& cell, uint64_t seed, const std::string& mode = "migrate");

}  // namespace r2bench::matrix
