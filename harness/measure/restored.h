// SPDX-License-Identifier: Apache-2.0
// What a job's rate has come back to once everything is repaired: the NICs are well and every channel is home
// again. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/collector.h"
#include "harness/measure/open_time.h"
#include "harness/measure/result.h"

namespace r2bench {

/// So many whole operations are wanted before the first fault, and as many once everything is repaired.
inline constexpr size_t kLeastOperations = 10;

/// Since when every channel has been home again: the last failback (or other change of path) up to
/// `until_ns`, 0 when none ever left. Nothing if some channel is elsewhere then; `why` tells. A channel is
/// followed at either end by the plugin's own words: it is away once it has come to carry its traffic on
/// another path, and home once it says that it has failed back.
std::optional<uint64_t> home_since(const std::vector<RankEvent>& trace, uint64_t until_ns, std::string& why);

/// Times of operations decide, by their medians: those that had ended by `first_fault_ns`, and those that
/// lie wholly in the time `repaired` of a round. `round` stands before the reason why that round is missing.
Restored restored(const std::vector<OperationSpan>& operations, uint64_t first_fault_ns, Interval repaired,
                  const std::string& round = "");

/// Several rounds or jobs as one: the ratio, and the times and operations behind it, are those of the worst
/// one that is known; `why_not` tells of the first one that is not. Rounds are added up.
Restored worst_of(const std::vector<Restored>& all);

}  // namespace r2bench
