// SPDX-License-Identifier: Apache-2.0
// Which streams a strike concerns, what each of them went on to receive, and which fence answers the strike.
// For recovery.cc. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/measure/timeline.h"

namespace r2bench {

/// What one affected stream did around the strike.
struct Affected {
  const Delivery* last_before = nullptr;  ///< its last delivery; of a stream without any its last path use
  const Delivery* at_t0 = nullptr;        ///< last_before or a later path use: tells the path used at t0
  uint32_t left_path = 0;                 ///< that was fenced; 0 when it is not known: then that of at_t0
  std::vector<const Delivery*> after;     ///< in (t0, end]: neither a heal nor a later strike ends them
  const Delivery* first_moved = nullptr;
};

/// By the stream's index. Affected are the streams whose path at t0 crosses the target, at either end: the
/// path of the last delivery, or one that the plugin's events name later (a migration, a failback, a channel
/// that came up). They must have delivered something since the operation before last began; of a stream that
/// has never delivered the last path use counts instead. Where a stream uses several NICs at a time, it is
/// affected if it used the target since then. Of single queue pairs those are affected that were fenced, when
/// any was.
std::map<uint32_t, Affected> affected_streams(const Record& record, const FaultWindow& window);

/// True if some other stream may have used the target at t0: its sender is on the target's node, and no event
/// says on which NIC.
bool may_affect_others(const Record& record, const FaultWindow& window);

/// End of the last operation that was open at t0, t0 when there was none; UINT64_MAX when it never ended.
uint64_t open_operation_end(const Record& record, uint64_t t0_ns);

/// The first unplanned fence from t0 on of a path that crosses a target, or nullptr. Of two strikes that a
/// fence may answer it answers the later one, unless the operation that the earlier one met was still open:
/// then both. One that comes after that operation and after the heal answers nothing. What leaves the NIC
/// carrying has no claim to a fence that another strike explains, be it later or earlier.
const FenceStart* answering_fence(const Record& record, const FaultWindow& window);

/// When the stream stopped being used: an operation that begins then, in (from_ns, to_ns), completed although
/// the stream delivered nothing in between (another algorithm has other channels). to_ns when there is none.
uint64_t used_until_ns(const Record& record, uint64_t from_ns, uint64_t to_ns);

/// Times of silence, on the open-time clock, in which an affected stream received nothing for longer than
/// `longest_ms` although it was used: from its last delivery before t0 to the end of the record. In order,
/// and apart from each other.
std::vector<Interval> silences(const Record& record, const FaultWindow& window,
                               const std::map<uint32_t, Affected>& streams, double longest_ms);

}  // namespace r2bench
