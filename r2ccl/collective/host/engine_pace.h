// SPDX-License-Identifier: Apache-2.0
// Whether the host engine is as fast as predicted. What was measured when a group connected does not show
// that the CPUs are busy now: with the job's own threads, with other ranks, with another job. Then AllReduces
// take longer over the engine than NCCL's ring under Balance would need, and go back to it for some time.
// Pure, no clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "r2ccl/collective/host/engine_periods.h"

namespace r2ccl::collective {

/// One thread tells of periods; relative() is for any.
class EnginePace {
 public:
  struct Yield {
    double to_ring = 1;          ///< how many times as long as NCCL's ring, at best
    double late = 0, added = 0;  ///< parts of that time: EnginePeriod
    uint64_t for_ns = 0;
  };

  /// At `now_ns` a period is over. `ring_seconds`: what NCCL's ring under Balance would need for its bytes,
  /// at the rate that the NICs have been seen to carry. Yields if it is the last of kPeriods at least, in a
  /// row and for kLeastNs, that were slow because of the host. `predicted_to_ring`: how many
  /// times as long as NCCL's ring the engine is predicted to take for so many bytes; asked only then.
  std::optional<Yield> ended(const EnginePeriod& period, double ring_seconds, uint64_t now_ns,
                             const std::function<double(uint64_t bytes)>& predicted_to_ring);
  /// Operations go by another view from now on: what was slow before them says nothing of it.
  void view_changes() { slow_ = 0; }
  /// How fast the engine is, relative to what is predicted: 1 but while it yields.
  double relative(uint64_t now_ns) const;

  static constexpr uint32_t kPeriods = 4;
  static constexpr uint64_t kLeastNs = 1'000'000'000;
  /// Slow: longer than this times what NCCL's ring would need. Because of the host: it would not be without
  /// the time for which nobody polled, or additions alone take longer than the ring.
  static constexpr double kSlow = 1.08;
  static constexpr double kNoDifference = 0.97;  ///< nothing to report (differ() in agreement.h)
  /// Shorter ones show latencies.
  static constexpr double kLeastRingSeconds = 2e-3;
  /// For how long it yields: so many times as long as it took to find out, at least kFirstNs, twice as long
  /// each time, at most kMostNs. After periods of as long that were not slow it begins with kFirstNs.
  static constexpr uint64_t kTimes = 32, kFirstNs = 30'000'000'000, kMostNs = 64 * kFirstNs;

 private:
  uint32_t slow_ = 0;           // in a row
  uint64_t since_ns_ = 0;       // the first of them began
  uint64_t spent_ns_ = 0;       // … and what they took, without what was between them
  uint64_t most_bytes_ = 0;     // of one of them
  uint64_t well_ns_ = 0;        // what those that were not slow took, since it yielded
  EnginePeriod best_;           // of them, …
  double best_to_ring_ = 0;     // … which took so many times as long as NCCL's ring
  uint64_t hold_ns_ = 0;        // how long it yielded last
  std::atomic<uint64_t> until_ns_{0};
  std::atomic<double> relative_{1};  // until then
};

}  // namespace r2ccl::collective
