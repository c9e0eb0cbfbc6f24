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
  if (to_ring < kSlow || double(period.host_ns) < kHostShare * double(period.took_ns)) {
    slow_ = 0;
    return std::nullopt;
  }
  if (slow_ == 0) since_ns_ = now_ns - std::min(now_ns, period.took_ns);
  if (slow_ == 0 || to_ring < best_to_ring_) {
    best_ = period;
    best_to_ring_ = to_ring;
  }
  ++slow_;
  const uint64_t lasts = now_ns - since_ns_;
  if (slow_ < kPeriods || lasts < kLeastNs) return std::nullopt;
  slow_ = 0;
  const bool again = hold_ns_ > 0 && since_ns_ < until + hold_ns_;
  hold_ns_ = std::clamp(std::max(kTimes * lasts, again ? 2 * hold_ns_ : 0), kFirstNs, kMostNs);
  relative_.store(std::clamp(predicted_to_ring(best_.bytes) / best_to_ring_, 0.01, 1.0),
                  std::memory_order_relaxed);
  until_ns_.store(now_ns + hold_ns_, std::memory_order_release);
  return Yield{best_to_ring_, double(best_.host_ns) / double(best_.took_ns), hold_ns_};
}

double EnginePace::relative(uint64_t now_ns) const {
  return now_ns < until_ns_.load(std::memory_order_acquire) ? relative_.load(std::memory_order_relaxed) : 1;
}

}  // namespace r2ccl::collective
