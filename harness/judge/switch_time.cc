// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/switch_time.h"

#include <algorithm>
#include <map>
#include <utility>

namespace r2bench {

using r2ccl::trace::EventType;

std::optional<double> switch_ms(const std::vector<RankEvent>& trace, uint64_t detected_ns,
                                uint64_t until_ns) {
  struct End {
    uint64_t fenced_ns = UINT64_MAX, done_ns = UINT64_MAX;
  };
  std::map<std::pair<size_t, uint32_t>, End> ends;  // by rank and channel
  const auto within = [&](const RankEvent& e) {
    return e.event.time_ns >= detected_ns && e.event.time_ns < until_ns;
  };
  for (const RankEvent& e : trace)
    if (within(e) && e.event.type == EventType::kFenceStarted && e.event.c != 1) {
      End& end = ends[{e.rank, e.event.channel}];
      end.fenced_ns = std::min(end.fenced_ns, e.event.time_ns);
    }
  for (const RankEvent& e : trace) {
    if (!within(e) || e.event.type != EventType::kMigrationDone) continue;
    const auto end = ends.find({e.rank, e.event.channel});
    if (end != ends.end() && e.event.time_ns >= end->second.fenced_ns)
      end->second.done_ns = std::min(end->second.done_ns, e.event.time_ns);
  }
  uint64_t last_ns = 0;
  for (const auto& [unused, end] : ends) last_ns = std::max(last_ns, end.done_ns);
  if (ends.empty() || last_ns == UINT64_MAX) return std::nullopt;
  return double(last_ns - detected_ns) / 1e6;
}

}  // namespace r2bench
