// SPDX-License-Identifier: Apache-2.0
// What one part of the data means in an operation: where it is sent from and received to, what is filled and
// poisoned before, and what must be there afterwards. Pure; offsets are elements of the part.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/workload/cpu/pattern.h"
#include "harness/workload/cpu/rank_config.h"

namespace r2bench {

/// `count` elements from `first` on; they are numbered alike in the pattern unless `pattern_first` says
/// otherwise.
struct Stretch {
  size_t first = 0;
  size_t count = 0;
};

/// These elements must be the reduction of the contributors' inputs from element `pattern_first` on.
struct Wanted {
  Stretch at;
  size_t pattern_first = 0;
  Contributors from;
};

struct CollectivePlan {
  size_t send_first = 0, receive_first = 0;  ///< of the buffers, as NCCL is told
  size_t count = 0;                          ///< … in its own measure: per rank where ranks own chunks
  Stretch filled;                            ///< own data of the buffer that is sent from; may be empty
  bool poisoned = true;                      ///< the receiving buffer, before `filled` is written
  std::vector<Wanted> wanted;                ///< in the receiving buffer
  std::vector<Stretch> untouched;            ///< still poison there
};

/// `part`: the rank's configuration with `bytes` as those of the part. In place both buffers are one.
CollectivePlan plan_collective(const RankConfig& part);

}  // namespace r2bench
