// SPDX-License-Identifier: Apache-2.0
// Which channels are between two paths, and for how long, as the core's trace tells.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "r2ccl/tests/simulation/scheduler.h"
#include "r2ccl/trace/event.h"

namespace r2ccl::simulation {

class Migrations {
 public:
  void event(const trace::Event& event, int process);
  /// The migration that has ended last: since when it went on; nullopt: that is not known.
  std::optional<Time> last_since() const { return last_since_; }
  std::optional<Time> last_took() const { return last_took_; }
  /// Channels of that process that ended, or failed, between two paths.
  int ended_meanwhile(int process) const { return ended_meanwhile_[process]; }

 private:
  std::map<std::pair<int, uint32_t>, Time> under_way_;  // process, channel; since when, kNever: not known
  std::optional<Time> last_since_, last_took_;
  int ended_meanwhile_[2] = {0, 0};
};

}  // namespace r2ccl::simulation
