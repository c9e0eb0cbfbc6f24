// SPDX-License-Identifier: Apache-2.0
// What 'renew' of the engine nccl did: communicators that were aborted, shrunk or revoked, and new ones.
#include <algorithm>

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

}  // namespace

namespace metrics_of {

std::vector<Metric> renewal() {
  return {
      {.info = {.name = "renew_ms",
                .unit = Unit::kMilliseconds,
                .meaning = "engine nccl, 'renew': time from the end of a rank's communicators until it has "
                           "new ones; the "
                           "slowest rank counts",
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
                .meaning =
                    "engine nccl, 'renew': number of ranks that had an operation open on the GPU when their "
                    "communicators ended"},
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
  };
}

}  // namespace metrics_of
}  // namespace r2bench
