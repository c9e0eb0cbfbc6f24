// SPDX-License-Identifier: Apache-2.0
// What 'renew' of the engine nccl did: communicators that were aborted, shrunk or revoked, and new ones.
#include <algorithm>
#include <set>

#include "harness/base/format.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

/// Over all ranks; none unless every rank has renewed its own.
template <typename Pick>
Value over_ranks(const ModeResult& mode, Pick pick) {
  double most = 0;
  for (const RankResult& rank : mode.ranks) {
    if (!rank.renewal) return Value::none(rank.label + " did not renew its communicators");
    most = std::max(most, double(pick(*rank.renewal)));
  }
  if (mode.ranks.empty()) return Value::none("no rank has reported");
  return Value::of(most, "");
}

/// Whether a channel of the rank had left a path when its communicators began to be ended, and was not on
/// another one yet: between fence_started and migration_done.
bool in_migration(const ModeResult& mode, const RankResult& rank) {
  std::set<int64_t> moving;
  for (const LoggedEvent& event : mode.events) {
    if (event.time_ns > rank.renewal->begun_ns) break;
    if (event.source != rank.label) continue;
    if (event.name == "fence_started" && event.c != 1) moving.insert(event.channel);  // 1: a planned failback
    if (event.name == "migration_done" || event.name == "channel_failed" || event.name == "channel_closing")
      moving.erase(event.channel);
  }
  return !moving.empty();
}

Value renewed_in_migration(const ModeResult& mode) {
  const Value known = over_ranks(mode, [](const RenewalResult&) { return 0; });
  if (!known.number) return known;
  uint64_t found = 0;
  for (const RankResult& rank : mode.ranks) {
    if (mode.events_left_out > 0 && mode.events.back().time_ns < rank.renewal->begun_ns)
      return Value::none("the event log ends before " + rank.label + " renewed its communicators");
    found += in_migration(mode, rank);
  }
  return Value::of_count(found);
}

}  // namespace

namespace metrics_of {

std::vector<Metric> renewal() {
  return {
      {.info = {.name = "renew_ms",
                .unit = Unit::kMilliseconds,
                .meaning = "engine nccl, 'renew': time from the end of a rank's communicators until it has "
                           "new ones; the slowest rank counts",
                .compared = Compared{.better = Better::kLower}},
       .wanted = "a time",
       .value =
           [](const Measured& m) {
             Value value = over_ranks(m.mode, [](const RenewalResult& r) { return r.renew_ms; });
             if (value.number) value.text = milliseconds(*value.number);
             return value;
           },
       .without_fault = true},
      {.info = {.name = "renewed_open",
                .meaning = "engine nccl, 'renew': number of ranks that had an operation open on the GPU when "
                           "their communicators ended"},
       .wanted = "a count",
       .value =
           [](const Measured& m) {
             const Value known = over_ranks(m.mode, [](const RenewalResult&) { return 0; });
             if (!known.number) return known;
             return Value::of_count(
                 uint64_t(std::count_if(m.mode.ranks.begin(), m.mode.ranks.end(), [](const RankResult& rank) {
                   return rank.renewal->operation_open;
                 })));
           },
       .without_fault = true},
      {.info = {.name = "renewed_in_migration",
                .meaning = "engine nccl, 'renew': number of ranks that had a channel between fence_started "
                           "and migration_done when their communicators ended",
                .needs = {.fault = true, .trace = true}},
       .wanted = "a count",
       .value = [](const Measured& m) { return renewed_in_migration(m.mode); }},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
