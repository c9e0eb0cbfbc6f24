// SPDX-License-Identifier: Apache-2.0
// For how long the sender has had no working path, and when the channel fails for that. Time counts only
// while a path is needed and the network is the only explanation for having none. Pure: `alive` is the
// service thread's clock, which does not count the thread's own pauses; all times are in nanoseconds.
//
// A Host answers:
//   peer_owes()        the peer has not answered for long: it is slow or stopped, which is no network failure
//   misses_a_path()    a path is needed (sending.h)
//   fence_call()       the driver call on the path that is left, as a CallSight
//   opening_call()     … on the path that is being opened
#pragma once

#include <algorithm>
#include <cstdint>

#include "r2ccl/protocol/bounds.h"
#include "r2ccl/protocol/migration.h"

namespace r2ccl {

enum class SearchAct : uint8_t { kWait, kFail };

/// A call of a NIC's driver that this end waits for.
struct CallSight {
  bool given = false;   ///< there is one
  bool done = false;    ///< it has returned
  bool queued = false;  ///< it has not begun: calls for other paths on the same NIC come before it
};
/// As long as those get on, time says nothing of any path.
constexpr bool is_queued(const CallSight& call) { return call.given && !call.done && call.queued; }

/// Is there no path that carries?
constexpr bool lacks_path(Phase phase, bool setting_up) { return setting_up || phase != Phase::kRunning; }

class PathSearch {
 public:
  /// `bound`: the channel fails after this time without a path. `proven_after`: a path that was in use for
  /// this long counts as one that has worked, even if no progress was seen.
  PathSearch(uint64_t bound, uint64_t proven_after) : bound_(bound), proven_after_(proven_after) {}

  /// A path is left; `progress` is the channel's count of progress. True: a new search begins. False: the
  /// path broke before it carried anything, so the search that led to it continues.
  bool begin(uint64_t alive, uint64_t progress) {
    const bool is_new = progress != progress_ || alive - used_at_ > proven_after_;
    if (is_new) pathless_ = queued_ = 0;
    before_ = {pathless_, queued_};
    looked_at_ = alive;
    progress_ = progress;
    return is_new;
  }
  /// The receiver's ledger has come, after the fence of the path that was left; `received` grows with what
  /// the receiver has. If it has grown since the fence before, that path has carried something, even if no
  /// ACK came back: then only the time since it was left counts.
  void receiver_has(uint64_t received) {
    if (received == received_) return;
    received_ = received;
    pathless_ -= before_.pathless;
    queued_ -= before_.queued;
    before_ = {};
  }
  /// A path is in use from now on.
  void carries(uint64_t alive) { used_at_ = alive; }

  /// In each turn; `phase`: the sender's.
  template <class Host>
  SearchAct look(Host& host, Phase phase, uint64_t alive) {
    if (phase == Phase::kRunning) return SearchAct::kWait;
    const uint64_t step = alive - looked_at_;
    looked_at_ = alive;
    if (phase == Phase::kWaitingForPeer || phase == Phase::kUnfenced || host.peer_owes() ||
        !host.misses_a_path())
      return SearchAct::kWait;
    if (is_queued(phase == Phase::kFencing ? host.fence_call() : host.opening_call())) {
      queued_ += step;
      return SearchAct::kWait;
    }
    pathless_ += step;
    return pathless_ > bound_ ? SearchAct::kFail : SearchAct::kWait;
  }

  /// How long the first transfer over a path may take; `limit`: what a probe may. While a path is lacking,
  /// those of `untried()`, other rails that have not been seen to fail, share the time that is left.
  template <class Untried>
  uint64_t first_probe(const Bounds& bounds, uint64_t limit, bool lacks, Untried&& untried) const {
    if (!lacks) return bounds.first_probe(limit);
    // All that have not been tried are to have their turn early, however long the search may go on.
    const uint64_t early = pathless_ < bounds.fail ? bounds.fail - pathless_ : left();
    return bounds.first_probe(limit, std::min(early, left()), 1 + untried());
  }
  /// The time that is left until the channel fails.
  uint64_t left() const { return bound_ - std::min(bound_, pathless_); }
  /// The time that was not counted because the NICs' drivers were busy with other channels.
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
