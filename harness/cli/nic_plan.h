// SPDX-License-Identifier: Apache-2.0
// What NICs change in a plan, in sentences; and what a job in mode 3 does on these NICs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/collective/planner.h"

namespace r2bench {

/// Why the plan does not count the job's NICs. Empty: it does (`counted`), no NIC is lost or slow, or NICs
/// are not known.
std::string nics_in_words(const r2ccl::collective::Job& job, bool counted);

/// What `plan`, by capacities alone, would ask of the job's NICs.
std::string by_capacities_in_words(const r2ccl::collective::Job& job,
                                   const r2ccl::collective::Plan& by_capacities);

/// What a job in mode 3 does with AllReduces of Job::bytes among nodes with these NICs, where a CollNet group
/// uses all NICs of a node: the tuner's decision with `margin` percent, and the plan of the pieces that NCCL
/// makes. Nodes, NICs, bytes, rate and rate of additions are those of `job`, everything else is the engine's.
struct Mode3 {
  uint64_t least_bytes = 0;  ///< from this size on AllReduces go over CollNet; kNever: none does
  std::string decides;       ///< the tuner's words on the size that decides about `least_bytes`
  bool collnet = false;      ///< this one does: it is not below `least_bytes`
  bool worth_it = false;     ///< this size alone is worth it, whatever the others are
  std::string tuner;         ///< the tuner's words on this size alone
  uint64_t piece_bytes = 0, pieces = 0;
  uint32_t in_flight = 1;
  r2ccl::collective::Plan plan;  ///< of a piece that goes over CollNet
};
Mode3 mode3_of(const r2ccl::collective::Job& job, int margin);
std::string mode3_in_words(const r2ccl::collective::Job& job, int margin);

}  // namespace r2bench
