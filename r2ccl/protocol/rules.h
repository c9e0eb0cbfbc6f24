// SPDX-License-Identifier: Apache-2.0
// The rules of the protocol, so that the exploration can leave one out and find why it is there
// (PROTOCOL.md). In a channel all hold, and asking costs nothing.
#pragma once

#include <cstdint>

namespace r2ccl {

/// A rule of the protocol, as PROTOCOL.md numbers them. The exploration without one must find why it is
/// there.
enum class Rule : uint8_t {
  kNone,
  kReceiverFence,     ///< nothing is replayed before the receiver has fenced
  kSenderFence,       ///< nor before the sender has
  kReceiverSentinel,  ///< a queue pair is fenced when its sentinels are back, not when the move to ERR
                      ///< returns
  kSenderSentinel,
  kGivenUpFence,     ///< a path that one end has given up is fenced there, too, when the other has used it
  kNewQueuePairs,    ///< a path is never used again
  kStrictAck,        ///< a buffer is given back after the receiver's ACK only
  kNicReport,        ///< … and not before the NIC has done with it
  kReceiverIsRight,  ///< replayed is what the receiver lacks, whatever the NIC reported
  kMigrateEpoch,     ///< epochs on kMigrate, kFenced, kUse
  kFencedEpoch,
  kUseEpoch,
  kOrder,             ///< the control connection keeps the order
  kRepeatCts,         ///< the receiver repeats its CTS entries on another path and when it waits for long
  kRepeatAck,         ///< a sender that waits for long asks
  kDisbelief,         ///< a receiver that lacks twice what the NIC reported marks the path failed
  kStandstill,        ///< work that stands still marks the queue pair failed
  kWatchdog,          ///< an end with open messages notices a dead path
  kLiveSegments,      ///< lanes: what a path carries that is not left is not replayed
  kNicReportOnLanes,  ///< … and there the NIC's completion is waited for, whatever the receiver has
  kSenderFirst,       ///< two ends that leave different paths in one epoch leave the sender's
  kFencedPath,        ///< kFenced counts only for the path that this end leaves
  kRestReported,      ///< a lane rests when its NIC has reported all that it carried
  kRestConfirmed,     ///< a lane rests when all that is confirmed, too
  kSegmentsOfPath,    ///< replayed is what a path was to carry, written or not
  kLaneGivenUp,       ///< a lane that the receiver has given up is left
  kYielded,        ///< the sender says that a path is given up that the receiver was about to leave, and that
                   ///< it does not use itself
  kRestOnce,       ///< kRest comes once
  kCopyKept,       ///< copies: what was given back is kept until the receiver has it
  kAskToAsk,       ///< … and a receiver that waits for long has the sender ask
  kLackingCounts,  ///< … and time without a path counts while the receiver lacks what was given back
  kAwaited,        ///< … which then watches as if its program waited, too
  kOneFence,       ///< the receiver's fence is enough where the sender's device is gone
  kRefusal,        ///< that a device refuses commands is no fence
  kHeld,           ///< the sender's is not, where the receiver's is: it may hold what it has taken in
};

}  // namespace r2ccl
