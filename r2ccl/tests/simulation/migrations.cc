// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/migrations.h"

namespace r2ccl::simulation {

void Migrations::event(const trace::Event& event, int process) {
  const std::pair channel(process, event.channel);
  switch (event.type) {
    case trace::EventType::kMigrationStarted:
      under_way_.try_emplace(channel, Migration{scheduler().now()});
      break;
    case trace::EventType::kFenceDone:  // what the peer had begun to leave when this end had no event of it
      ++under_way_[channel].fences;
      break;
    case trace::EventType::kMigrationDone: {
      const Migration& it = under_way_[channel];
      last_since_ = last_took_ = std::nullopt;
      last_fences_ = it.fences;
      if (it.since != kNever) {
        last_since_ = it.since;
        last_took_ = scheduler().now() - it.since;
      }
      under_way_.erase(channel);
      break;
    }
    case trace::EventType::kChannelClosing:
    case trace::EventType::kChannelFailed:
      ended_meanwhile_[process] += int(under_way_.erase(channel));
      break;
    default:
      break;
  }
}

}  // namespace r2ccl::simulation
