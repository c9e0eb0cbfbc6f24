// SPDX-License-Identifier: Apache-2.0
// A group's view of its own engine: which AllReduces are judged, by which bytes per second, and what follows
// (engine_periods.h cuts them into periods, engine_pace.h decides). Pure, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/engine_pace.h"
#include "r2ccl/collective/host/engine_periods.h"

namespace r2ccl::collective {

/// One thread tells of operations and polls; relative() is for any. All times in ns, by one clock; `added`:
/// what the engine has spent in additions since whenever.
class EngineJudge {
 public:
  /// An operation begins beside `open` others, by `view`. `planned`: an AllReduce whose schedule the planner
  /// has chosen. Others are not judged, nor what runs where no node is degraded: there nobody asks how fast
  /// the engine is.
  void begins(size_t open, const ViewPointer& view, bool planned, uint64_t now, uint64_t added);
  /// polled() is asked for.
  bool counts() const { return periods_.counts(); }
  void polled(uint64_t from, uint64_t to, bool moved) { periods_.polled(from, to, moved); }
  /// An operation of `bytes` has ended, and `open` others are under way. `speeds`: of the group; `seen_rate`:
  /// what its NICs have been seen to carry at most, relative to that; 0: not known, and nothing is judged.
  /// Asked only at the end of a period.
  std::optional<EnginePace::Yield> ended(uint64_t bytes, size_t open, uint64_t now, uint64_t added,
                                         const Speeds& speeds, const std::function<double()>& seen_rate);
  /// EnginePace::relative().
  double relative(uint64_t now) const { return pace_.relative(now); }

 private:
  EnginePace pace_;
  EnginePeriods periods_;
  ViewPointer view_;  // of the newest operation
};

}  // namespace r2ccl::collective
