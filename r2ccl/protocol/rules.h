// SPDX-License-Identifier: Apache-2.0
// The rules of the protocol. The exploration disables one at a time, and must then find a run that goes wrong
// (PROTOCOL.md). In a channel all rules are enabled, at no cost.
#pragma once

#include <cstdint>

namespace r2ccl {

/// A rule of the protocol, with its name in PROTOCOL.md's table, which gives the reason of each.
enum class Rule : uint8_t {
  kNone,
  kReceiverFence,     ///< the sender replays nothing before the receiver has fenced the path
  kSenderFence,       ///< the sender replays nothing before it has fenced the path itself
  kReceiverSentinel,  ///< the receiver's queue pair is fenced when its sentinels are flushed, not earlier
  kSenderSentinel,    ///< the sender's queue pair is fenced when its sentinels are flushed, not earlier
  kGivenUpFence,      ///< a standby path that this end gave up is fenced if the sender has used it
  kNewQueuePairs,     ///< a path that was left is never used again
  kStrictAck,         ///< a send is complete only when the receiver has acknowledged it
  kNicReport,         ///< a send is complete only when its completion has been polled
  kReceiverIsRight,   ///< the sender replays what the receiver lacks, whatever its own NIC reported
  kMigrateEpoch,      ///< a kMigrate of this epoch or an earlier one is ignored
  kFencedEpoch,       ///< a kFenced counts only in its own epoch
  kUseEpoch,          ///< a kUse counts only in its own epoch
  kOrder,             ///< control messages arrive in the order in which they were sent
  kRepeatCts,         ///< the receiver repeats its CTS entries on a new path, and after a long wait
  kRepeatAck,         ///< a sender that has waited long queries the ACK over the control connection
  kSilentLoss,        ///< if the receiver twice lacks what the NIC reported, the sender marks the path failed
  kStuckQueuePair,    ///< a queue pair whose work is never reported as complete is marked failed
  kWatchdog,          ///< an end with open messages detects a dead path by a timer
  kLiveSegments,      ///< lanes: segments on paths that are not left are not replayed
  kNicReportOnLanes,  ///< lanes: the sender waits for their completions, even if the receiver has them
  kSenderFirst,       ///< if the ends leave different paths in one epoch, both leave the sender's path
  kFencedPath,        ///< a kFenced counts only for the path that this end leaves
  kRestReported,      ///< a lane rests only when its NIC has reported all that it carried
  kRestConfirmed,     ///< a lane rests only when the receiver has acknowledged all that it carried
  kSegmentsOfPath,    ///< the sender replays all segments assigned to the path that is left, written or not
  kLaneGivenUp,       ///< the sender leaves a lane that the receiver has given up
  kDropReceiversPath,  ///< the sender gives up the path that a receiver that yielded wanted to leave, unless
                       ///< it uses that path
  kRestOnce,           ///< kRest is delivered exactly once
  kCopyKept,           ///< copies: the sender keeps a copy until the receiver has the message
  kRequestAckQuery,    ///< copies: a receiver that has waited long requests that the sender query the ACK
  kLackingCounts,      ///< copies: time without a path counts while the receiver lacks a message
  kWatchAfterRequest,  ///< copies: after kRequestAckQuery the watchdog acts as if the sender's program waited
  kOneFence,           ///< if the sender cannot fence, the receiver's fence suffices
  kRefusedNotFenced,   ///< a device that refuses commands does not count as fenced
  kKernelFence,        ///< if the receiver cannot fence, the sender's fence does not suffice
  kSettle,             ///< copies: a sender that is closed stays until the receiver has what was sent
  kLastAck,            ///< a receiver that is closed says what it has received
};

/// All of them hold: a channel's.
struct AllRules {
  static constexpr bool holds(Rule) { return true; }
};

}  // namespace r2ccl
