// SPDX-License-Identifier: Apache-2.0
// For how long the sender has had no path that works, and when that is too long. Only time counts in which
// somebody wants a path and nothing but the network explains that there is none. Pure: `alive` is the service
// thread's clock, on which its own pauses count for nothing; all times are in nanoseconds.
//
// A Host answers:
//   peer_owes()        the peer has owed an answer for long: it is slow or stopped, which is no failure
//   misses_a_path()    somebody waits for a path (sending.h)
//   fence_waits()      the driver call that its fence waits for is behind calls of other channels, which
//                      return
//   opening_waits()    … or the one that the path waits for that is being opened
#pragma once

#include <algorithm>
#include <cstdint>

#include "r2ccl/protocol/migration.h"

namespace r2ccl {

enum class SearchAct : uint8_t { kWait, kFail };

/// Does somebody wait for a path?
constexpr bool lacks_path(Phase phase, bool setting_up) { return setting_up || phase != Phase::kRunning; }

class PathSearch {
 public:
  /// `bound`: without a path for so long, the channel fails. `proven_after`: a path that has carried for so
  /// long was one, whether or not anything moved.
  PathSearch(uint64_t bound, uint64_t proven_after) : bound_(bound), proven_after_(proven_after) {}

  /// A path is left; the channel's count of progress is `progress`. True: the search is a new one. False: the
  /// path broke before it carried anything, and the search for it goes on.
  bool begin(uint64_t alive, uint64_t progress) {
    const bool is_new = progress != progress_ || alive - used_at_ > proven_after_;
    if (is_new) pathless_ = queued_ = 0;
    before_ = {pathless_, queued_};
    looked_at_ = alive;
    progress_ = progress;
    return is_new;
  }
  /// Behind the fence of the path that was left the receiver has said what it has, in a number that grows
  /// with it. If that is more than at the fence before, this path carried something, though nothing came
  /// back: only time since it was left counts.
  void receiver_has(uint64_t received) {
    if (received == received_) return;
    received_ = received;
    pathless_ -= before_.pathless;
    queued_ -= before_.queued;
    before_ = {};
  }
  /// A path carries.
  void carries(uint64_t alive) { used_at_ = alive; }

  /// In each round of an end that may have none; `phase`: the sender's.
  template <class Host>
  SearchAct look(Host& host, Phase phase, uint64_t alive) {
    if (phase == Phase::kRunning) return SearchAct::kWait;
    const uint64_t step = alive - looked_at_;
    looked_at_ = alive;
    if (phase == Phase::kWaitingForPeer || phase == Phase::kUnfenced || host.peer_owes() ||
        !host.misses_a_path())
      return SearchAct::kWait;
    if (phase == Phase::kFencing ? host.fence_waits() : host.opening_waits()) {
      queued_ += step;
      return SearchAct::kWait;
    }
    pathless_ += step;
    return pathless_ > bound_ ? SearchAct::kFail : SearchAct::kWait;
  }

  /// Until it fails.
  uint64_t left() const { return bound_ - std::min(bound_, pathless_); }
  /// Not counted: the time in queues of the NICs' drivers.
  uint64_t queued() const { return queued_; }

 private:
  const uint64_t bound_, proven_after_;
  uint64_t pathless_ = 0, queued_ = 0;
  struct {
    uint64_t pathless = 0, queued = 0;
  } before_;               // until the last path was left
  uint64_t received_ = 0;  // said at the fence before
  uint64_t used_at_ = 0;   // when the active path became that
  uint64_t looked_at_ = 0;
  uint64_t progress_ = 0;  // when it began
};

}  // namespace r2ccl
