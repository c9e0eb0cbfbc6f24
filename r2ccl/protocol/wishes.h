// SPDX-License-Identifier: Apache-2.0
// Who wanted the path that a sender opens, and learns what has become of it: the retries of standby paths and
// lanes, failback, the move to another NIC. Pure; times are `now` (tick.h), in nanoseconds.
#pragma once

#include <cstdint>

#include "r2ccl/protocol/failback.h"
#include "r2ccl/protocol/opening.h"
#include "r2ccl/protocol/rail_choice.h"
#include "r2ccl/protocol/rail_record.h"
#include "r2ccl/protocol/spread_move.h"

namespace r2ccl {

/// What follows when a path is open.
enum class Opened : uint8_t {
  kStandsBy,   ///< nothing: whoever needs it finds it
  kUse,        ///< it is the channel's first: it is taken into use
  kLookLanes,  ///< the plan of lanes is looked at soon
};

struct Wishes {
  OpeningRetries& retries;
  RailRecord& rails;
  Failback& failback;
  SpreadMove& move;

  Opened opened(Purpose purpose, uint32_t path, const Rail& rail, uint64_t now) {
    switch (purpose) {
      case Purpose::kFirst:
        return Opened::kUse;
      case Purpose::kRescue:
        break;
      case Purpose::kStandby:
        retries.standby_opened();
        rails.forget_counts();
        break;
      case Purpose::kLane:
        retries.lane_opened(rail.local, rail.remote);
        return Opened::kLookLanes;
      case Purpose::kFailback:
        failback.opened(path, now);
        break;
      case Purpose::kSpread:
        move.takes(path);
        break;
    }
    return Opened::kStandsBy;
  }
  /// It could not be opened: its rail is left alone for a while.
  void failed(Purpose purpose, const Rail& rail, uint64_t now) {
    rails.failed(rail.local, rail.remote, now + OpeningRetries::kRailNs);
    switch (purpose) {
      case Purpose::kFirst:
      case Purpose::kRescue:
        break;  // another rail is chosen
      case Purpose::kStandby:
        retries.standby_failed(now);
        break;
      case Purpose::kLane:
        rails.bar(rail.local, rail.remote, retries.lane_failed(rail.local, rail.remote, now));
        break;
      case Purpose::kFailback:
        failback.opening_failed(now);
        break;
      case Purpose::kSpread:
        move.failed(rail.local, now);
        break;
    }
  }
  /// A path carries the traffic from here on: a move to another NIC is over, whatever came of it, and the
  /// path that stood by may be the one.
  void carries(uint64_t now) {
    move.carries();
    retries.standby_wanted(now);
  }
  /// There is no rail to open one over.
  void no_rail(Purpose purpose, uint64_t now) {
    if (purpose == Purpose::kStandby) retries.no_standby(now);
  }
  /// An open path is given up.
  void dropped(uint32_t path, uint64_t now) {
    failback.dropped(path, now);
    move.dropped(path);
  }
};

}  // namespace r2ccl
