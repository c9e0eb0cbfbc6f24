// SPDX-License-Identifier: Apache-2.0
// The typed events that the core and the workloads write into the trace ring, and the names they carry in
// logs and in fault triggers (`on: migration_started`). One event is one cache line of plain data: readers
// are other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace r2ccl::trace {

/// What happened. The values are part of the ring's format: append, never renumber.
enum class EventType : uint16_t {
  kNone = 0,
  // --- workload ---
  kIteration = 1,        ///< an operation starts: a = iteration, b = bytes of the operation
  kIterationDone = 2,    ///< it ended: a = iteration, b = elements that were wrong
  kMessageReceived = 3,  ///< a receive request completed: channel, a = bytes, b = message number
  // --- channel, hot (never offered to fault triggers) ---
  kSegmentDelivered = 16,  ///< at the receiver: nic, channel, a = bytes, b = message number, c = path id
  // --- channel, rare ---
  kChannelUp =
      32,  ///< nic = the channel's home NIC, channel, peer; a = this process, as its peers' events call it
  kFenceStarted =
      33,  ///< nic of the suspected path, a = DetectedBy, b = path id, c = 1 when it is a planned failback
  kFenceDone = 34,         ///< a = path id, b = microseconds it took
  kMigrationStarted = 35,  ///< a = epoch, b = path id that is left
  kReplayed = 36,          ///< at the sender: a = segments replayed, b = bytes replayed, c = path id now used
  kMigrationDone = 37,     ///< nic = NIC now used, a = NIC that was left, b = epoch, c = path id now used
  kNicDown = 38,           ///< nic, a = DetectedBy
  kNicUp = 39,             ///< nic: it is trusted again; a = DetectedBy when its port is active again, else 0
  kFailback = 40,          ///< nic = home NIC that carries the channel again
  kDuplicateDropped = 41,  ///< a segment arrived twice: b = message number. Must never be seen
  kPeerSlow = 42,          ///< the peer's NIC answers, the peer does not: no failure
  kChannelFailed = 43,     ///< no path is left or the peer is gone: an error goes to NCCL
  kPathOpened = 44,      ///< at the sender: a path is proved and stands by: nic, a = path id, b = remote NIC
  kProbeFailed = 45,     ///< nic, a = path id
  kPathOpening = 46,     ///< at the sender: its half of a path is made next: nic, a = path id, b = remote NIC
  kChannelClosing = 47,  ///< nic = the channel's home NIC: its queue pairs go next, whatever is open
  kControlRestored = 48,  ///< the control connection had broken; a = microseconds without it
  kLaneUp = 49,  ///< at the sender: pieces of messages go over this path, too: nic, a = path id, b = remote
                 ///< NIC, c = thousandths of the channel's traffic that the rail is to carry
  kLaneRests = 50,     ///< no longer: nic, a = path id
  kNicGray = 51,       ///< nic carries clearly less than its neighbours: a = thousandths of what it should
  kNicWell = 52,       ///< nic carries as much as its neighbours again
  kPathAccepted = 54,  ///< at the receiver: its half of a path is made: nic, a = path id, b = remote NIC
  // --- collective, rare; channel = number of the group within its process ---
  kPlanAgreed = 53,  ///< a group has a new view of its nodes' capacities: a = epoch, b = operation from which
                     ///< it holds, c = thousandths that the weakest node carries, peer = this rank
  kAlgorithmChosen = 55,  ///< what AllReduces run by a view: a = its epoch, b = bytes of the operation, 0 when NCCL's
                          ///< tuner leaves all of them to NCCL, c = PlannedAlgorithm, peer = this rank
  kPlansEnded = 56,       ///< a group has ended: its plans hold no more; peer = this rank
};

/// Who noticed a failure first. Printed as `detected_by`.
enum class DetectedBy : uint8_t { kNone = 0, kCompletion = 1, kEvent = 2, kWatchdog = 3, kPeer = 4 };

/// What runs AllReduces in mode 3: NCCL's own choice on Balance, or a schedule of the host engine.
enum class PlannedAlgorithm : uint8_t { kNccl, kRing, kUnequalRing, kDoubleTree, kR2cclAllReduce, kFourStage, kMix, kDirect };
inline constexpr size_t kPlannedAlgorithms = 8;

/// One event, 64 bytes. `sequence` is written last (release).
struct alignas(64) Event {
  uint64_t sequence;  ///< 1-based position in the stream; in the ring also 0 (empty) and ~0 (being written)
  uint64_t time_ns;   ///< CLOCK_MONOTONIC
  EventType type;
  uint16_t nic;      ///< index of the local NIC, 0xffff when none
  uint32_t channel;  ///< number of the channel, or of the group, within its process
  uint64_t a;
  uint64_t b;
  uint64_t c;
  uint32_t peer;    ///< rank, node or process tag of the other side; 0 when unknown
  uint32_t thread;  ///< kernel thread id of the writer
  uint64_t reserved;
};
static_assert(sizeof(Event) == 64);

/// The event's name as used in logs, event files and fault triggers, e.g. "migration_started".
std::string_view name(EventType type);
/// "completion", "event", "watchdog", "peer" or "none".
std::string_view name(DetectedBy by);
/// "nccl", or the schedule's name as in R2CC_ALGORITHM; "none" for a value that is none of them.
std::string_view name(PlannedAlgorithm algorithm);
/// The type with that name, kNone when there is none.
EventType event_from_name(std::string_view name);

}  // namespace r2ccl::trace
