// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/engine_pace.h"

#include <algorithm>

namespace r2ccl::collective {

std::optional<EnginePace::Yield> EnginePace::ended(
    const EnginePeriod& period, double ring_seconds, uint64_t now_ns,
    const std::function<double(uint64_t bytes)>& predicted_to_ring) {
  const uint64_t until = until_ns_.load(std::memory_order_relaxed);
  if (now_ns < until || ring_seconds < kLeastRingSeconds) return std::nullopt;
  const double to_ring = double(period.took_ns) * 1e-9 / ring_seconds;
  const double ring_ns = ring_seconds * 1e9, in_time_ns = double(period.took_ns) - double(period.late_ns);
  const bool because_of_host = in_time_ns < kSlow * ring_ns || double(period.added_ns) > ring_ns;
  if (to_ring < kSlow || !because_of_host) {
    slow_ = 0;
    well_ns_ += period.took_ns;
    return std::nullopt;
  }
  if (slow_ == 0) since_ns_ = now_ns - std::min(now_ns, period.took_ns), spent_ns_ = most_bytes_ = 0;
  spent_ns_ += period.took_ns;
  most_bytes_ = std::max(most_bytes_, period.bytes);
  if (slow_ == 0 || to_ring < best_to_ring_) {
    best_ = period;
    best_to_ring_ = to_ring;
  }
  ++slow_;
  if (slow_ < kPeriods || now_ns - since_ns_ < kLeastNs) return std::nullopt;
  slow_ = 0;
  double pace = predicted_to_ring(best_.bytes) / best_to_ring_;
  if (!(pace <= kNoDifference)) return std::nullopt;  // also if it is not a number
  // All sizes were slow. The largest ones gain most by prediction, and go back, too: while the engine yields
  // nobody judges what it still runs.
  if (most_bytes_ != best_.bytes) pace = std::min(pace, predicted_to_ring(most_bytes_));
  // Not having run is no proof of being well: another rank's engine may have yielded, or nothing was to be
  // done.
  const bool again = well_ns_ < hold_ns_;
  well_ns_ = 0;
  hold_ns_ = std::clamp(std::max(kTimes * spent_ns_, again ? 2 * hold_ns_ : 0), kFirstNs, kMostNs);
  relative_.store(std::max(pace, 0.01), std::memory_order_relaxed);
  until_ns_.store(now_ns + hold_ns_, std::memory_order_release);
  const auto part = [this](uint64_t ns) { return double(ns) / double(best_.took_ns); };
  return Yield{best_to_ring_, part(best_.late_ns), part(best_.added_ns), hold_ns_};
}

double EnginePace::relative(uint64_t now_ns) const {
  return now_ns < until_ns_.load(std::memory_order_acquire) ? relative_.load(std::memory_order_relaxed) : 1;
}

}  // namespace r2ccl::collective
