// SPDX-License-Identifier: Apache-2.0
// What the service thread does with a channel in one turn, in which order, and how soon the next turn is due.
// Pure: a turn is asked for one act after the other, because each may change what is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "r2ccl/protocol/bounds.h"
#include "r2ccl/protocol/migration.h"

namespace r2ccl {

/// When a channel wants its next turn.
enum class Urgency : uint8_t {
  kIdle,      ///< only when something happens
  kBusy,      ///< at the next tick: requests are open
  kWatching,  ///< at a short tick: a probe is under way
  kHot,       ///< at once: a fence is under way
};

/// Set-up has taken longer than `bound` (R2CC_CONNECT_MS). All times in nanoseconds.
constexpr bool is_late(uint64_t created, uint64_t bound, uint64_t now) { return now > created + bound; }

/// What may be due in a turn, in this order.
enum class TurnAct : uint8_t {
  kClose,        ///< continue to close. Ends the turn
  kAfterError,   ///< tell the peer of the error. Ends the turn
  kTooLate,      ///< fail: the channel could not be set up in time
  kPeerEnded,    ///< the peer's process has ended: take in what it sent before, then fail
  kSetUp,        ///< replace a control connection that brings nothing during set-up
  kOutage,       ///< restore the control connection
  kClosedEarly,  ///< fail: the peer has closed while the channel was being set up
  kPeerClosed,   ///< the peer has closed: wait for what is still lacking. Ends the turn
  kHalves,       ///< take the halves of paths that the NICs' workers have made
  kPaths,        ///< continue to open a path, or begin to open one
  kTime,         ///< advance the watchdog's clock
  kLeave,        ///< leave a path that an error has marked failed
  kWatch,        ///< look whether the paths in use have stalled
  kProbes,       ///< read the answers of probes
  kFence,        ///< continue to fence the path that is being left
  kRemoval,      ///< look whether the kernel has stopped a device that this end could not fence
  kUnfenced,     ///< look whether the receiver's kernel takes too long to stop its device
  kChoose,       ///< choose the path that takes over
  kSearch,       ///< fail if no path has worked for too long
  kComeHome,     ///< move traffic back to its home rail
  kSpread,       ///< mode 1: move traffic to a NIC with less load
  kBalance,      ///< mode 2 and up: spread it over several NICs
  kRetired,      ///< destroy paths that are out of use
};
inline constexpr size_t kTurnActs = size_t(TurnAct::kRetired) + 1;

/// f(act) of each act, in their order, as a constant: what is_due() asks for others is not looked at. Stops
/// when f returns true.
template <class F>
constexpr bool until_turn_ends(F&& f) {
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return (f(std::integral_constant<TurnAct, TurnAct(i)>()) || ...);
  }
  (std::make_index_sequence<kTurnActs>());
}

/// What is known of the channel.
struct TurnSight {
  bool closes = false;       ///< its program has closed it, and it waits for no ACK any more
  bool failed = false;       ///< it has failed
  bool setting_up = false;   ///< no path has been in use yet
  bool late = false;         ///< set-up has taken longer than R2CC_CONNECT_MS
  bool peer_ended = false;   ///< the peer's process has ended
  bool outage = false;       ///< the control connection is broken
  bool greeted = false;      ///< both ends have greeted each other
  bool peer_closed = false;  ///< the peer has closed its end
  bool resilient = false;    ///< R2CC_MODE is not 0
  bool balances = false;     ///< … nor 1
  bool active = false;       ///< there is an active path
  bool suspected = false;    ///< a path in use is marked failed
  Phase phase = Phase::kRunning;
  MigrationEnd::Fence own_fence = MigrationEnd::Fence::kPending;
};

namespace turn {

/// Both ends are there, and nothing is over.
constexpr bool goes_on(const TurnSight& seen) { return seen.greeted && !seen.failed && !seen.peer_closed; }
/// … and it has, or had, a path, and may have others.
constexpr bool migrates(const TurnSight& seen) { return goes_on(seen) && seen.resilient && !seen.setting_up; }
constexpr bool carries(const TurnSight& seen) {
  return migrates(seen) && seen.phase == Phase::kRunning && seen.active;
}
/// What happens to a NIC or a queue pair concerns it: also while it is set up.
constexpr bool minds_paths(const TurnSight& seen) { return goes_on(seen) && seen.resilient && !seen.closes; }
/// The device of its active path reports that it has failed as a whole. Without resilience nothing else
/// tells.
constexpr bool ends_by_device(const TurnSight& seen) {
  return !seen.resilient && !seen.peer_closed && !seen.closes && seen.active;
}
/// Its active path, or a lane, may be left for another.
constexpr bool may_leave(const TurnSight& seen) { return goes_on(seen) && seen.active; }
/// Its active path carries, and nothing that carries is marked failed.
constexpr bool is_ready(const TurnSight& seen) {
  return !seen.failed && !seen.closes && !seen.setting_up && seen.phase == Phase::kRunning && seen.active &&
         !seen.suspected;
}
/// It counts among the channels that NICs carry (NicLoad).
constexpr bool is_load(const TurnSight& seen) { return !seen.failed && !seen.closes && !seen.peer_closed; }

}  // namespace turn

[[gnu::always_inline]] constexpr bool is_due(TurnAct act, const TurnSight& seen) {
  switch (act) {
    case TurnAct::kClose:
      return seen.closes;
    case TurnAct::kAfterError:
      return seen.failed;
    case TurnAct::kTooLate:
      return seen.setting_up && seen.late;
    case TurnAct::kPeerEnded:
      return seen.peer_ended && !seen.failed;
    case TurnAct::kSetUp:
      return seen.setting_up && !seen.failed;
    case TurnAct::kOutage:
      return seen.outage && !seen.failed;
    case TurnAct::kClosedEarly:
      return seen.peer_closed && seen.greeted && !seen.failed && seen.setting_up;
    case TurnAct::kPeerClosed:
      return seen.peer_closed && seen.greeted && !seen.failed;
    case TurnAct::kHalves:
    case TurnAct::kPaths:
      return turn::goes_on(seen);
    case TurnAct::kTime:
    case TurnAct::kProbes:
      return turn::migrates(seen);
    case TurnAct::kLeave:
      return turn::carries(seen) && seen.suspected;
    case TurnAct::kWatch:
      return turn::carries(seen) && !seen.suspected;
    case TurnAct::kFence:
      return turn::migrates(seen) && seen.phase == Phase::kFencing;
    case TurnAct::kRemoval:
      return turn::migrates(seen) && seen.phase != Phase::kRunning &&
             seen.own_fence == MigrationEnd::Fence::kCannot;
    case TurnAct::kUnfenced:
    case TurnAct::kChoose:
    case TurnAct::kSearch:
      return turn::migrates(seen) && seen.phase != Phase::kRunning;
    case TurnAct::kComeHome:
      return turn::carries(seen);
    case TurnAct::kSpread:
      return turn::carries(seen) && !seen.balances;
    case TurnAct::kBalance:
      return turn::carries(seen) && seen.balances;
    case TurnAct::kRetired:
      return turn::goes_on(seen) && seen.resilient;
  }
  return false;
}

/// Nothing comes after it: it says itself how soon the next turn is due.
constexpr bool ends_turn(TurnAct act) {
  return act == TurnAct::kClose || act == TurnAct::kAfterError || act == TurnAct::kPeerClosed;
}

/// Has a sender something to do soon, besides its open requests? Of what a Host answers, what takes longer is
/// asked last, and only where it matters: at the end of each turn this is mostly asked in vain.
///   on_probation()   a path over the home rail is
///   opens()          a path is being opened
///   moves()          it moves to a NIC with less to carry
///   away()           its traffic is away from home
///   home_is_near()   the home rail is to be tried soon (Failback::is_near)
///   home_may_work()  … and nothing is known to be the matter with it
///   standby_due()    a standby path is to be opened
template <class Host>
constexpr bool is_near(const Host& host) {
  return host.on_probation() || host.opens() || host.moves() ||
         (host.away() && host.home_is_near() && host.home_may_work()) || host.standby_due();
}

/// What is known when a turn has gone on to its end.
struct UrgencySight {
  TurnSight turn;
  bool settles = false;          ///< its program has closed it, and waits until what was sent has settled
  bool probing = false;          ///< an answer is awaited
  bool asked = false;            ///< the progress thread asks it to look
  bool awaited = false;          ///< the receiver waits for what was sent
  bool keeps = false;            ///< paths out of use
  bool looks_soon = false;       ///< something else is due at the next tick
  uint64_t migrates_for_ns = 0;  ///< since the path was left
};
[[gnu::always_inline]] constexpr Urgency urgency(const UrgencySight& seen) {
  const TurnSight& turn = seen.turn;
  if (!turn::goes_on(turn)) return Urgency::kBusy;
  if (!turn.resilient) return turn.setting_up ? Urgency::kBusy : Urgency::kIdle;
  if (seen.settles) return Urgency::kWatching;
  if (turn.phase == Phase::kRunning && turn.suspected) return Urgency::kHot;
  if (turn.phase == Phase::kFencing || (turn.phase == Phase::kChoosing && seen.probing))
    return seen.migrates_for_ns < Bounds::kHotNs ? Urgency::kHot : Urgency::kWatching;
  if (turn.phase == Phase::kChoosing || seen.probing) return Urgency::kWatching;
  return seen.asked || seen.awaited || turn.phase != Phase::kRunning || turn.outage || seen.keeps ||
                 turn.setting_up || seen.looks_soon
             ? Urgency::kBusy
             : Urgency::kIdle;
}

/// Of an end that is over, or whose peer is closed. `done`: nothing is left to do. `outage`: except that its
/// connection is restored, for the peer's sake.
constexpr Urgency urgency_of_ended(bool done, bool outage) {
  return done && !outage ? Urgency::kIdle : Urgency::kBusy;
}

/// Paths out of use are destroyed while nobody waits for one: a search needs the NICs' workers.
constexpr bool is_calm(Phase phase) { return phase == Phase::kRunning; }

}  // namespace r2ccl
