// SPDX-License-Identifier: Apache-2.0
// When data last moved on channels to a peer process while their control connections were broken: the process
// lived then, whether or not it could be reached. Pure; `alive` is the service thread's clock.
#pragma once

#include <cstdint>
#include <map>

#include "r2ccl/protocol/migration.h"

namespace r2ccl {

/// What a channel knows of it.
struct MovedSight {
  uint64_t progress = 0;  ///< its count, when it last took a turn
  uint64_t here = 0;      ///< alive; when data last moved on the channel itself, 0: never
  uint64_t anywhere = 0;  ///< … on any channel to that process, as far as this one may rely on it
};

class DataMoved {
 public:
  /// A channel to `process` takes a turn. One that leaves a path needs the control connection: what moves on
  /// other channels from then on is no reason for it to wait.
  void look(uint64_t process, MovedSight& seen, uint64_t progress, Phase phase, uint64_t alive) {
    if (progress != seen.progress) at_[process] = seen.here = alive;
    seen.progress = progress;
    if (phase == Phase::kRunning) seen.anywhere = at(process);
  }
  /// Its connection breaks. What it has moved until now is no news; `lasts`: an outage goes on.
  static void broke(MovedSight& seen, uint64_t progress, bool lasts) {
    if (!lasts) seen.progress = progress;
  }
  /// On any channel; 0: never.
  uint64_t at(uint64_t process) const {
    const auto it = at_.find(process);
    return it == at_.end() ? 0 : it->second;
  }

 private:
  std::map<uint64_t, uint64_t> at_;
};

}  // namespace r2ccl
