// SPDX-License-Identifier: Apache-2.0
// Delivered payload over time, and what it tells about a fault: the recovery metrics of README.md.
// Pure: it looks at records that were taken elsewhere, so every number is tested against an exact table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/open_time.h"
#include "harness/measure/result.h"

namespace r2bench {

inline constexpr uint16_t kNoNic = 0xffff;
inline constexpr uint16_t kNoNode = 0xffff;

/// One direction between two ranks, as its receiver sees it.
struct Stream {
  uint32_t rank = 0;     ///< the receiver's
  uint32_t channel = 0;  ///< number within the receiver's process
  uint16_t rx_node = 0;
  uint16_t tx_node = 0;
  uint32_t tx_process = 0;  ///< as the plugin's events name the sender; 0: they do not
};

/// Payload that has arrived.
struct Delivery {
  uint64_t time_ns = 0;
  uint32_t bytes = 0;
  uint32_t stream = 0;  ///< index into the streams
  uint16_t rx_nic = kNoNic;
  uint16_t tx_nic = kNoNic;  ///< kNoNic: not known
  uint32_t path = 0;         ///< the plugin's id of the path; 0 when it has none
};

/// A NIC of the job.
struct NicId {
  uint16_t node = 0;
  uint16_t nic = 0;
  bool operator==(const NicId&) const = default;
};

/// Start of a fence that was not planned.
struct FenceStart {
  uint64_t time_ns = 0;
  uint16_t node = 0;
  uint16_t nic = kNoNic;
  std::optional<uint32_t> stream;  ///< when the receiver of that stream fenced it
  std::string detected_by;
  uint32_t path = 0;             ///< the plugin's id of the path that is left; 0 when it has none
  uint16_t peer_node = kNoNode;  ///< the other end of that path, as far as the plugin's events say
  uint16_t peer_nic = kNoNic;
};

/// Everything that was recorded of a job.
struct Record {
  std::vector<Stream> streams;
  std::vector<Delivery> deliveries;  ///< in order of time
  std::vector<Delivery> path_uses;   ///< in order of time, of 0 bytes: the stream uses that path from then on
  std::vector<OperationSpan> operations;  ///< in order of iteration, which is that of their begins
  OpenTime open;
  std::vector<FenceStart> fences;  ///< in order of time
  uint64_t end_ns = 0;             ///< nothing was recorded after this
};

/// Bytes delivered in (begin, end].
uint64_t bytes_between(const std::vector<Delivery>& deliveries, uint64_t begin_ns, uint64_t end_ns);

/// Gbit/s per open time in the window. Whole operations are taken when two or more of them lie inside (so
/// that the beginning and the end of an operation weigh what they should), else the window as it is. An
/// operation that an edge of the window cuts counts by what it delivered inside when that part is longer than
/// the median of the whole ones: it stalled. 0 for a window without open time.
double rate_gbps(const Record& record, Interval window);

/// From `from_ns` on the mode can carry this fraction of its rate before.
struct LimitStep {
  uint64_t from_ns = 0;
  double limit = 1;
};

/// Another strike that may be what a fence answers.
struct OtherStrike {
  uint64_t t0_ns = 0;
  std::vector<NicId> targets;
  uint64_t heal_ns = UINT64_MAX;  ///< from then on it takes nothing away; UINT64_MAX: it was not healed
};

/// What is asked about one strike of a fault.
struct FaultWindow {
  uint64_t t0_ns = 0;
  uint64_t before_from_ns = 0;   ///< the undisturbed time begins here …
  uint64_t before_until_ns = 0;  ///< … and ends here: this strike, or an earlier one that is still there
  uint64_t until_ns = 0;         ///< the settled window ends: its heal, the next strike or the end of the job
  uint64_t heal_ns = 0;          ///< 0: it was not healed
  uint64_t end_ns = 0;  ///< what the stream does is followed up to here, whatever is healed meanwhile
  std::vector<NicId> targets;
  bool single_qp = false;  ///< it hits single QPs: only the streams that were fenced are affected
  bool spread = false;     ///< a stream uses several NICs at a time (mode balance)
  bool takes_away = true;  ///< nothing travels on the target any more: a fence is to follow
  /// What the rate is held against, from t0 on, in order of time; the first holds at t0. A limit of 0 cannot
  /// be met.
  std::vector<LimitStep> limits;
  /// In order of time: later ones that take something away or may break a path; and those up to t0 that take
  /// something away, asked only if this one only slows.
  std::vector<OtherStrike> later, earlier;
  double operation_ms = 0;            ///< a whole operation before the fault; 0: there was none
  uint64_t path_rate_bits_per_s = 0;  ///< of one port; 0: unlimited, then the stream's own rate before counts
};

/// Fills everything that is derived from the record (sampled, why_not_sampled, times, rates, floor, window);
/// the identity of the fault and its witness are the caller's.
void analyse_fault(const Record& record, const FaultWindow& window, FaultSample& sample);

/// The curve for the picture: bins of wall time, rates per open time. Raw deliveries within `raw_around` of a
/// mark, at most `max_raw`.
Timeline make_timeline(const Record& record, uint64_t start_ns, double bin_ms,
                       const std::vector<uint64_t>& marks_ns, uint64_t raw_around_ns, size_t max_raw);

}  // namespace r2bench
