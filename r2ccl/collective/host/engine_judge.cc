// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/engine_judge.h"

namespace r2ccl::collective {

void EngineJudge::begins(size_t open, const ViewPointer& view, bool planned, uint64_t now, uint64_t added) {
  if (view_ && view_->epoch != view->epoch) {
    pace_.view_changes();
    periods_.cut(open, now, added);
  }
  view_ = view;
  const bool degraded = view->epoch > 0 && view->capacities.size() > 1 && any_degraded(view->capacities);
  periods_.begins(open, planned && degraded, now, added);
}

std::optional<EnginePace::Yield> EngineJudge::ended(uint64_t bytes, size_t open, uint64_t now, uint64_t added,
                                                    const Speeds& speeds,
                                                    const std::function<double()>& seen_rate) {
  const auto period = periods_.ended(bytes, open, now, added);
  if (!period) return std::nullopt;
  Speeds seen = speeds;
  seen.bytes_per_second *= seen_rate();
  if (!(seen.bytes_per_second > 0)) return std::nullopt;
  const double ring = ring_seconds(view_->capacities, period->bytes, seen);
  // In large groups latencies alone are longer than what is judged.
  if (ring - ring_seconds(view_->capacities, 0, seen) < EnginePace::kLeastRingSeconds) return std::nullopt;
  return pace_.ended(*period, ring, now, [&](uint64_t of_bytes) {
    const EngineAdvice advice = advise(view_->capacities, of_bytes, speeds, view_->nics);
    return advice.ring_seconds > 0 ? advice.predicted_seconds / advice.ring_seconds : 1;
  });
}

}  // namespace r2ccl::collective
