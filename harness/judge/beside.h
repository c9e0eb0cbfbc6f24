// SPDX-License-Identifier: Apache-2.0
// What a job shows whose operations are of two sides in turn (harness/scenario/turns.h). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "harness/measure/result.h"

namespace r2bench {

/// Operations are counted that begin so long after the last fault took effect: until then channels migrate.
inline constexpr double kBesideSettleMs = 500;

struct SidesCompared {
  /// Median time of the mode's operations divided by that of the other side's; the median over the pairs of
  /// communicators, of all jobs. nullopt: `why_not`.
  std::optional<double> ratio;
  size_t operations = 0;  ///< that are counted, half of them of each side
  std::string why_not;
};

/// Counts whole turns, which have eight operations of each side. `iters`: operations of one job.
SidesCompared compare_sides(const ModeResult& mode, size_t iters);

}  // namespace r2bench
