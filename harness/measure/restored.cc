// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/restored.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/measure/statistics.h"

namespace r2bench {

using r2ccl::trace::EventType;

std::optional<uint64_t> home_since(const std::vector<RankEvent>& trace, uint64_t until_ns, std::string& why) {
  struct End {
    bool away = false, moving = false;
    uint64_t carrying = 1;   // paths are numbered from 1, and the first one carries
    uint64_t left_path = 0;  // by the migration that is under way
  };
  std::map<std::pair<uint32_t, uint32_t>, End> ends;  // rank, channel
  uint64_t since_ns = 0;
  for (const RankEvent& e : trace) {
    if (e.event.time_ns > until_ns) continue;
    End& end = ends[{e.rank, e.event.channel}];
    switch (e.event.type) {
      case EventType::kMigrationStarted:
        end.left_path = e.event.b;
        end.moving = true;
        break;
      case EventType::kMigrationDone:
        // One that comes back to the path that it was about to leave has not moved, nor has one that left a lane.
        if (e.event.c != end.left_path && e.event.c != end.carrying) end.away = true;
        end.carrying = e.event.c;
        end.moving = false;
        break;
      case EventType::kFailback:
        end.away = false;
        break;
      default:
        continue;
    }
    since_ns = std::max(since_ns, e.event.time_ns);
  }
  const auto away = std::count_if(ends.begin(), ends.end(),
                                  [](const auto& entry) { return entry.second.away || entry.second.moving; });
  if (away > 0) {
    why = std::to_string(away) + " ends of channels were not home again";
    return std::nullopt;
  }
  return since_ns;
}

Restored restored(const std::vector<OperationSpan>& operations, uint64_t first_fault_ns, Interval repaired,
                  const std::string& round) {
  std::vector<double> before, after;
  for (const OperationSpan& operation : operations) {
    if (!operation.complete) continue;
    const double ms = double(operation.span.end_ns - operation.span.begin_ns) / 1e6;
    if (operation.span.end_ns <= first_fault_ns) before.push_back(ms);
    if (operation.span.begin_ns >= repaired.begin_ns && operation.span.end_ns <= repaired.end_ns)
      after.push_back(ms);
  }
  Restored result;
  result.operations_before = before.size();
  result.operations_after = after.size();
  result.before_ms = summarize(before).p50;
  result.after_ms = summarize(after).p50;
  if (before.size() < kLeastOperations)
    result.why_not = "only " + std::to_string(before.size()) + " operations before the first fault; " +
                     std::to_string(kLeastOperations) + " are wanted";
  else if (after.size() < kLeastOperations)
    result.why_not = round + "only " + std::to_string(after.size()) +
                     " operations once everything was repaired; " + std::to_string(kLeastOperations) +
                     " are wanted";
  else if (result.after_ms > 0)
    result.ratio = result.before_ms / result.after_ms;
  return result;
}

Restored worst_of(const std::vector<Restored>& all) {
  if (all.empty()) return {};
  const auto known = [](const Restored& each) { return each.ratio.value_or(HUGE_VAL); };
  Restored worst = *std::min_element(
      all.begin(), all.end(), [&](const Restored& a, const Restored& b) { return known(a) < known(b); });
  worst.why_not.clear();
  worst.rounds = worst.rounds_home = worst.rounds_late = 0;
  for (const Restored& each : all) {
    if (worst.why_not.empty()) worst.why_not = each.why_not;
    worst.rounds += each.rounds;
    worst.rounds_home += each.rounds_home;
    worst.rounds_late += each.rounds_late;
  }
  return worst;
}

}  // namespace r2bench
