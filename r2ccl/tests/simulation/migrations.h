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
  /// How many paths it has fenced one after another: one that fails before it is used is left, too.
  int last_fences() const { return last_fences_; }
  /// Channels of that process that ended, or failed, between two paths.
  int ended_meanwhile(int process) const { return ended_meanwhile_[process]; }

 private:
  struct Migration {
    Time since = kNever;  // kNever: not known
    int fences = 0;
  };
  std::map<std::pair<int, uint32_t>, Migration> under_way_;  // process, channel
  std::optional<Time> last_since_, last_took_;
  int last_fences_ = 0;
  int ended_meanwhile_[2] = {0, 0};
};

}  // namespace r2ccl::simulation
