// SPDX-License-Identifier: Apache-2.0
// What one end of a channel does when one of its paths fails or changes, or when its peer reports that of a
// path. Written once, for the channel, which carries it out with NICs and threads, and for the exploration in
// tests/model, which simulates both. Pure. PROTOCOL.md gives the reason of each rule.
//
// A Host is the rest of that end. It answers:
//   holds(Rule)               true, except in the exploration, which disables rules
//   state(path)               std::optional<PathState>; nothing: unknown at this end, or given up
//   marked_failed(path)       it carries traffic, and is left when the migration under way is over
//   connected()               some path has been in use before
//   active()                  the active path, 0: none
//   paths()                   those in use at this end, in the order in which they were made
//   paths_on(nic), paths_to(nic)   those over that NIC of this end, or of the peer
//   opening(path)             sender: it is being opened
//   opening_over(nic)         sender: the path that is being opened over that NIC of this end, 0: none
//   another_stands_by(path)   there is a standby path other than this one
//   may_leave()               turn::may_leave(): not before the greeting, nor if the peer has closed
//   carries_traffic()         there is an active path, none is being left, and nothing is over
//   any_marked()              something that carries is marked failed (as of look_for_marked())
//   failed()                  the channel has
//   is_over(path)             sender: it waits for nothing that this lane has carried (sent.h)
// and carries out:
//   owning(f)                 f(), as the owner of messages and paths
//   leaving(path, target)     records the reason, before anything happens
//   told(path)                … that the peer has, which leaves it
//   hear()                    takes in what the peer has said
//   as_marked(path)           it is left for the reason for which it was marked
//   begin_fence(path)         the migration begins: nothing is posted any more, and clocks start. False, and
//                             nothing happens: the channel has failed or is closed
//   take_out(path)            it is none of the paths that carry any more
//   stop(path)                has it moved to ERR, which may take long
//   fence_given_up(path)      fences a path that was given up before
//   prove_anew(path)          probes it with a whole packet, whatever was asked before
//   mark(path)                marks it failed
//   drop(path, tell)          gives up a standby path; `tell`: and sends kDrop
//   forget(path)              retires a path that is being fenced, but that neither end is leaving any more
//   opening_refused(path)     the path that is being opened cannot be used
//   home_nic(), peer_home_nic()   the NICs of the home rail
//   send_nic_lost(nic), send_nic_back(nic)
//   home_may_work()           a NIC of the home rail is back: it is tried soon
//   rails_changed()           there may be a rail for a standby path that was not there before
//   lane(path)                it carries segments beside the active path
//   stand_by(path)            it no longer does
//   activate(path, first, moved)   it is the active path, the channel's first, another one than before
//   carries_on(moved)         missing segments are retransmitted, or CTS entries repeated
//   look_for_marked()         looks whether anything that carries is marked failed
//   resume()                  posts are allowed. False: the channel has failed or is closed
//   carried(path, first)      traffic flows
//   send_migrate(path), send_drop(path), send_use(path), send_lane(path), send_rest(path)
//   send_fenced(stopped)      receiver: with its ledger
// sending.h and receiving.h have what only one of the ends does.
#pragma once

#include <cstdint>
#include <optional>

#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/rules.h"

namespace r2ccl {

/// What a work request that failed means for the channel.
enum class FailedWork : uint8_t {
  kNothing,  ///< that path is known to have failed, or the peer is closed, whose queue pairs are gone
  kFail,     ///< there is no other path
  kLeave,    ///< the path is marked failed, and left
};
constexpr FailedWork failed_work(bool marked_failed, bool peer_closed, bool resilient) {
  if (marked_failed || peer_closed) return FailedWork::kNothing;
  return resilient ? FailedWork::kLeave : FailedWork::kFail;
}

template <class Host>
class ChannelEnd {
 public:
  ChannelEnd(MigrationEnd& end, Host& host) : end_(end), host_(host) {}

  // --- this end
  /// It leaves `path`, which carries traffic; `target`: the path to migrate to, 0: any that works.
  void leave(uint32_t path, uint32_t target = 0) {
    if (end_.phase() != Phase::kRunning || !host_.may_leave()) return;
    host_.leaving(path, target);
    end_.leave(path, target);
    fence(path, true);
  }
  /// Something that carries is marked failed, and none is being left. The peer is heard first: one that has
  /// closed has said so before its queue pairs went.
  void leave_marked() {
    host_.hear();
    if (!host_.carries_traffic()) return;
    const uint32_t path = host_.owning([&] {
      host_.look_for_marked();
      const uint32_t marked = first_marked();
      if (marked != 0)
        host_.as_marked(marked);
      else
        host_.resume();
      return marked;
    });
    if (path != 0) leave(path);
  }
  /// A path that carries traffic has failed: it is left now, or as soon as the migration under way is over.
  void mark_failed(uint32_t path) {
    if (end_.phase() == Phase::kRunning)
      leave(path);
    else if (carries(path) && !host_.marked_failed(path))
      host_.mark(path);
  }
  /// A queue pair of `path`, or its completion queue, has failed by itself.
  void path_failed(uint32_t path) {
    const auto state = host_.state(path);
    if (!state || state == PathState::kFencing) return;
    if (carries(path)) return mark_failed(path);
    if (host_.opening(path)) return host_.opening_refused(path);
    host_.drop(path, true);
  }
  /// A NIC of this end cannot be used: its port is down, it is removed, or it cannot register buffers. The
  /// peer is told after the kMigrate that follows from it, and before standby paths are given up.
  void nic_lost(int nic) {
    const auto paths = host_.paths_on(nic);
    for (const uint32_t path : paths)
      if (carries(path)) mark_failed(path);
    host_.send_nic_lost(nic);
    if (const uint32_t path = host_.opening_over(nic); path != 0) host_.opening_refused(path);
    for (const uint32_t path : paths)
      if (const auto state = host_.state(path); state && state != PathState::kFencing && !carries(path))
        host_.drop(path, true);
  }
  /// The same of a NIC of the peer, which gives up its standby paths itself.
  void peer_nic_lost(int nic) {
    for (const uint32_t path : host_.paths_to(nic))
      if (carries(path)) mark_failed(path);
  }
  /// A NIC of this end may be used again. The peer is told, and rails over it are tried.
  void nic_back(int nic) {
    host_.send_nic_back(nic);
    rails_back(nic == host_.home_nic());
  }
  void peer_nic_back(int nic) { rails_back(nic == host_.peer_home_nic()); }
  /// The sender, which decides, or the receiver, which has been told, uses `path`. kUse is sent before
  /// anything is posted: if this path then fails, that belongs to the next epoch.
  void use(uint32_t path) {
    if (end_.sender()) host_.send_use(path);
    carry(path);
  }
  /// This end has fenced the path that is left, perhaps after cannot_fence().
  void fenced() {
    host_.send_fenced(true);
    end_.fenced();
  }
  /// This end cannot fence it. The ledger that is sent here does not change any more.
  void cannot_fence() {
    host_.send_fenced(false);
    end_.cannot_fence();
  }
  /// Sender, when the path that is left is fenced: the path to use from here on, 0: any that works. `active`:
  /// a lane was left, and this path remains the active one.
  uint32_t destination(uint32_t active) {
    if (active != 0) return active;
    return end_.target() != 0 && host_.state(end_.target()) == PathState::kStandby ? end_.target() : 0;
  }
  /// Sender: a standby path becomes a lane.
  void start_lane(uint32_t path) {
    host_.lane(path);
    host_.send_lane(path);
  }
  /// A lane becomes a standby path; if there is another one, it is given up. False: not yet.
  bool rest_lane(uint32_t path) {
    if (!stand_by(path)) return false;
    host_.send_rest(path);
    if (host_.another_stands_by(path)) host_.drop(path, true);
    return true;
  }

  // --- the peer
  /// `planned`: the path has not failed there.
  void on_migrate(uint32_t epoch, uint32_t path, bool planned = false) {
    if (!host_.holds(Rule::kSenderFirst) && epoch == end_.epoch()) return;
    switch (end_.peer_leaves(host_.holds(Rule::kMigrateEpoch) ? epoch : end_.epoch() + 1, path, carries(path),
                             planned)) {
      case MigrateReply::kFenceActive:
        host_.told(path);
        return fence(path, false);
      case MigrateReply::kFenceGivenUp:
        return host_.fence_given_up(path);
      case MigrateReply::kOther: {
        if (carries(path)) return mark_failed(path);
        if (!host_.holds(Rule::kDropReceiversPath)) return;
        const auto state = host_.state(path);
        if (state == PathState::kStandby) return host_.drop(path, true);
        // Given up before: the receiver, which has yielded by the time it receives this, retires it.
        if (!state) host_.send_drop(path);
        return;
      }
      default:
        return;
    }
  }
  /// True: it is accepted, and so is the ledger that comes with it.
  bool on_fenced(uint32_t epoch, uint32_t path, bool stopped) {
    if (!host_.holds(Rule::kKernelFence) && end_.own_fence() == MigrationEnd::Fence::kDone) stopped = true;
    return end_.peer_has_fenced(
        host_.holds(Rule::kFencedEpoch) ? epoch : end_.epoch(),
        host_.holds(Rule::kFencedEpoch) && host_.holds(Rule::kFencedPath) ? path : end_.leaving(), stopped);
  }
  void on_use(uint32_t epoch, uint32_t path) {
    const bool can = host_.state(path) == PathState::kStandby || carries(path);
    switch (
        end_.peer_uses(host_.holds(Rule::kUseEpoch) ? epoch : end_.epoch(), path, can, host_.connected())) {
      case MigrateReply::kUse:
        return use(path);
      case MigrateReply::kFenceGivenUp:
        host_.send_migrate(path);
        return host_.fence_given_up(path);
      default:
        return;
    }
  }
  void on_drop(uint32_t path) {
    const auto state = host_.state(path);
    if (!state) return;
    if (host_.opening(path)) return host_.opening_refused(path);
    switch (after_drop(*state)) {
      case AfterDrop::kNothing:  // unless this end has yielded to the peer's migration
        if (path != end_.leaving()) host_.forget(path);
        return;
      case AfterDrop::kLeave:
        if (state == PathState::kActive || host_.holds(Rule::kLaneGivenUp)) mark_failed(path);
        return;
      case AfterDrop::kDrop:
        return host_.drop(path, false);
    }
  }
  void on_lane(uint32_t path) {  // if it was given up, the sender is told, and leaves it
    if (!end_.sender() && host_.state(path) == PathState::kStandby) host_.lane(path);
  }
  void on_rest(uint32_t path) {  // if it is marked failed, the sender is being told
    if (!end_.sender() && host_.state(path) == PathState::kLane) (void)stand_by(path);
  }

 private:
  // The peer is told before the path is stopped, which takes longer; `tell`: it has not told this end. If no
  // path carries traffic any more, the sender probes those that may take over: whether they work is known by
  // the time the ledgers have been exchanged.
  void fence(uint32_t path, bool tell) {
    const bool begun = host_.owning([&] {
      if (!host_.begin_fence(path)) return false;
      if (tell) host_.send_migrate(path);
      host_.take_out(path);
      host_.stop(path);
      return true;
    });
    if (!begun || !end_.sender() || host_.active() != 0) return;
    for (const uint32_t other : host_.paths())
      if (const auto state = host_.state(other); state && may_take_over(*state)) host_.prove_anew(other);
  }
  // What the receiver lacks is sent before the program may post. If something that carries is marked failed,
  // perhaps by that, nothing is posted before it has been left.
  void carry(uint32_t path) {
    const bool first = !host_.connected(), moved = path != host_.active();
    const bool goes_on = host_.owning([&] {
      host_.activate(path, first, moved);
      end_.running();
      if (!first) host_.carries_on(moved);
      host_.look_for_marked();
      return !host_.failed() && (host_.any_marked() || host_.resume());
    });
    if (goes_on) host_.carried(path, first);
  }
  // False, and nothing changes: it is left soon, or something that it carried is still waited for.
  bool stand_by(uint32_t path) {
    return host_.owning([&] {
      if (host_.marked_failed(path) || !host_.is_over(path)) return false;
      host_.stand_by(path);
      return true;
    });
  }
  uint32_t first_marked() {
    for (const uint32_t path : host_.paths())
      if (const auto state = host_.state(path); state && is_suspect(*state, host_.marked_failed(path)))
        return path;
    return 0;
  }
  void rails_back(bool home) {
    if (home) host_.home_may_work();
    host_.rails_changed();
  }
  bool carries(uint32_t path) {
    const auto state = host_.state(path);
    return state && is_in_use(*state);
  }

  MigrationEnd& end_;
  Host& host_;
};

}  // namespace r2ccl
