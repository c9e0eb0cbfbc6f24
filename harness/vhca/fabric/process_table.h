// SPDX-License-Identifier: Apache-2.0
// Who uses the fabric, who of them is still alive, and how to wake another process's engine. Must never take
// a live process for a dead one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

enum class Liveness { kAlive, kStopped, kDead };

// Start time of a process in clock ticks since boot (it tells a reused pid), nothing if it cannot be had.
std::optional<std::uint64_t> process_start_time(pid_t pid);

// A process whose threads have not all ended yet is not dead: one of them may still be copying.
Liveness process_liveness(pid_t pid, std::uint64_t start_time);
Liveness process_liveness(const Fabric& fabric, ProcessId id);

// Whether a process that lives, `but` excepted, holds the QP or has not found out yet that its hold is
// revoked: the QP's receive ring and slot must not be given to others then.
bool has_living_holder(const Fabric& fabric, const QpSlot& qp, ProcessId but = 0);

// The same of any QP of that owner that `is_meant` (a QP slot): one that is destroyed already, but whose slot
// was not given away.
template <typename IsMeant>
bool some_holder_may_come_late(Fabric& fabric, ProcessId owner, IsMeant&& is_meant) {
  for (const QpSlot& qp : fabric.queue_pairs.used())
    // In this order: a QP that another thread is making has no holder, and its other fields are in the making.
    if (qp.owner.load() == owner && has_living_holder(fabric, qp) && is_meant(qp)) return true;
  return false;
}

// Takes a slot for the calling process after reclaiming dead ones. 0 when all slots are taken by live
// processes. `memory_node`: the NUMA node of its memory, or kNoMemoryNode.
ProcessId register_process(Fabric& fabric, std::uint32_t node, std::uint32_t memory_node,
                           const std::uint64_t* beacon);
void unregister_process(Fabric& fabric, ProcessId id);

// Frees all that dead processes own. Any number of processes may do this at the same time, and may die while
// doing it.
void reclaim_dead_processes(Fabric& fabric);

// Wakes the engine of a process; a system call only if it sleeps.
void wake_engine(Fabric& fabric, ProcessId id);
// The same, and the engine looks at all flags of the process's objects, which takes longer the more there are.
void ring_doorbell(Fabric& fabric, ProcessId id);

// NUMA node of the memory of the process that owns the QP, kNoMemoryNode when it did not say or is gone.
std::uint32_t memory_node_of_owner(Fabric& fabric, std::uint32_t qp_number);

// The process's slot if it is still that process's, else nullptr.
ProcessSlot* find_process(Fabric& fabric, ProcessId id);

}  // namespace vhca
