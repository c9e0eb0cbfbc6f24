// SPDX-License-Identifier: Apache-2.0
// A control connection that breaks while both processes live: when it is tried again, and when the peer's
// process counts as ended. Data continues to flow meanwhile; control messages of a migration wait. The sender
// connects again. Each end tries to connect, because the kernel of a process that has ended refuses the
// connection at once.
//
// During set-up the same holds from the first byte on: a sender without a welcome repeats its hello over the
// next connection. As long as the peer's process lives, only R2CC_CONNECT_MS limits this. A connection that
// brings nothing is replaced by another one, and a single refusal does not prove that the process has ended.
// Nor does it later: a firewall may refuse connections for a moment. Data that moves proves that the process
// lives; a path that has failed as well, that it has ended.
//
// Pure. A Host answers:
//   setting_up()   no path has carried anything yet
//   sender()       it is the sender
//   asks()         sender: a connection stands, and its question has not been answered
//   resumable()    the conversation has begun, and can go on over another connection
//   moved()        when data last moved, on this channel and on any to the peer's process, which lived then
//   in_haste()     see the function of that name
// and carries out:
//   connect()      begins a connection to the peer's process: kPending, kRefused at once, or kBroken
//   reach()        what has become of it
//   close()        … it is given up
//   ask()          the peer's process has been reached. Sender: asks to go on over the connection that was
//                  made, which is the conversation's from here on
//   begin_again()  … where the conversation has not begun, it says over it what it has said so far
//   gone(why)      the peer's process has ended, or counts as ended
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "r2ccl/control/endpoint.h"
#include "r2ccl/protocol/data_moved.h"
#include "r2ccl/protocol/tick.h"

namespace r2ccl {

/// What follows when a connection has broken.
enum class AfterBreak : uint8_t {
  kNothing,    ///< no connection is needed any more
  kPeerEnded,  ///< the peer's process has ended
  kOutage,     ///< another connection is to be made
};
struct BreakSight {
  bool sender = false, resilient = false, setting_up = false;
  bool resumable = false;    ///< the conversation has begun, and can go on over another connection
  bool peer_closed = false;  ///< the other end
  bool closing = false;      ///< this one
};
/// A connection could not be begun, or what came over it is not the peer's: the network has broken it, and
/// another one is tried.
/// False: this end fails. A receiver that has not been greeted does not know whom to wait for.
constexpr bool is_break(bool resilient, bool sender, bool greeted) {
  return resilient && (sender || greeted);
}
/// A connection by which the peer goes on may be taken. The sender makes them.
constexpr bool may_go_on(bool resilient, bool sender, bool greeted) {
  return resilient && !sender && greeted;
}
constexpr AfterBreak after_break(const BreakSight& seen) {
  if (seen.peer_closed || (seen.closing && !seen.resumable)) return AfterBreak::kNothing;
  if (!seen.resumable && !seen.setting_up) return AfterBreak::kNothing;  // it has failed
  if (!seen.resilient || (!seen.resumable && !seen.sender)) return AfterBreak::kPeerEnded;
  return AfterBreak::kOutage;
}

/// Is a refusal the end? The active path has failed as well; or this end is closed, or has failed, and is
/// only to be over soon. The path that a planned migration leaves works, and so does the active path while
/// only a lane is left: then a refusal alone shows nothing.
struct HasteSight {
  Phase phase = Phase::kRunning;
  bool planned = false;    ///< what is left has not failed
  bool active = false;     ///< there is an active path
  bool suspected = false;  ///< … or a lane, and one of those is marked failed
  bool closing = false, failed = false;
};
constexpr bool in_haste(const HasteSight& seen) {
  const bool path_failed = (!seen.planned && !seen.active) || seen.suspected;
  return (seen.phase != Phase::kRunning && path_failed) || seen.closing || seen.failed;
}

/// The peer's process has ended. What it brought before is not lost: a path that is in the hands of its NIC's
/// worker is waited for.
class PeerEnd {
 public:
  /// `bound`: no worker is waited for longer, in nanoseconds.
  explicit PeerEnd(uint64_t bound) : bound_(bound) {}
  bool known() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  /// `closing`: this end is, and does not mind. True: what there is can be taken in, and the channel fails.
  bool learn(const std::string& why, bool closing, bool worker_busy, uint64_t now) {
    if (closing) return false;
    if (!known()) since_ = now;
    why_ = why;
    return !worker_busy || now - since_ >= bound_;
  }

 private:
  const uint64_t bound_;
  std::string why_;
  uint64_t since_ = 0;
};

class Outage {
 public:
  static constexpr uint64_t kRetryNs = 50'000'000;
  static constexpr uint64_t kConnectNs = 1'000'000'000;  ///< takes it longer, the connection is tried again
  /// Closed so often running, and for so long: that is no network that keeps breaking connections.
  static constexpr uint32_t kMostTurnedAway = 8;
  static constexpr uint64_t kTurnedAwayNs = 2'000'000'000;
  /// How many times the bound a process may be silent that can be reached: it may be stopped.
  static constexpr uint64_t kReachedFactor = 6;
  /// A connection that carries nothing is given up soon, for another one. That shows that the network carries
  /// nothing for a second, which is no reason to take the peer for dead: its process has this much longer.
  static constexpr uint64_t kSilencePatienceNs = 9'000'000'000;
  /// So many refusals running, while no data moves, mean that nobody is there.
  static constexpr uint32_t kMostRefused = 40;

  /// `bound`: R2CC_CONTROL_MS. `unreached`: for how long the peer's process may not be reached, if that is
  /// longer. Both in nanoseconds.
  explicit Outage(uint64_t bound, uint64_t unreached = 0) : bound_(bound), unreached_(unreached) {}

  bool lasts() const { return state_.lasts; }
  /// The peer's process answers, or its kernel does for it.
  bool reached() const { return state_.reached; }
  /// … as it follows what an error says; nothing where there is no outage.
  const char* words() const {
    if (!lasts()) return "";
    return reached() ? ", its process can be reached" : ", its process cannot be reached";
  }
  /// When it began, `now`.
  uint64_t began() const { return state_.began; }
  /// It has lasted for so long that a peer that is to learn of an error of this end is not waited for any
  /// more.
  bool is_in_vain(uint64_t now) const { return state_.lasts && now - state_.began > bound_; }

  /// What is known of a connection that has broken.
  struct Break {
    bool silent = false;       ///< nothing got through, and nobody said so
    bool turned_away = false;  ///< the peer closed it when asked to go on
    bool closing = false;      ///< this end is closed, and only waits to be heard
  };
  template <class Host>
  void broke(Host& host, const Tick& tick, const Break& what) {
    if (state_.lasts) {
      if (!what.turned_away) state_.turned_away = 0;
      if (what.turned_away && !host.setting_up() && state_.turned_away++ == 0)
        state_.turned_away_since = tick.alive;
      if (state_.turned_away >= kMostTurnedAway && tick.alive - state_.turned_away_since >= kTurnedAwayNs &&
          !what.closing)
        host.gone("is closed each time: that process has abandoned the channel");
      return not_reached(host, tick);
    }
    state_ = {};
    state_.lasts = true;
    state_.since = state_.refused_at = tick.alive;
    state_.patience = what.silent ? kSilencePatienceNs : 0;
    state_.began = state_.next_try = tick.now;
    step(host, tick);
  }
  /// The conversation goes on. What it took, in nanoseconds.
  uint64_t restored(uint64_t now) {
    // The peer noticed first: nothing was broken here.
    const uint64_t took = state_.lasts ? now - state_.began : 0;
    state_.lasts = false;
    return took;
  }
  /// Nobody tries any more.
  void end() { state_ = {}; }
  /// A path is about to be left, because it has failed or is silent. With the last connection refused it is
  /// its peer's process that has ended.
  template <class Host>
  void path_fails(Host& host) {
    if (!state_.lasts || state_.refused == 0 || host.setting_up()) return;
    state_.lasts = false;
    host.gone("closed: that process ended");
  }

  /// The conversation can go on. `connected`: over the connection that stands.
  bool is_over(bool greeted, bool connected) const { return state_.lasts && greeted && connected; }

  /// While it lasts.
  template <class Host>
  void step(Host& host, const Tick& tick) {
    if (!state_.lasts) return;
    if (host.asks()) return reached(host, tick);
    if (state_.tries) {
      switch (host.reach()) {
        case control::Reach::kReached:
          state_.stands = true;
          return reached(host, tick);
        case control::Reach::kRefused:
          return refused(host, tick);
        case control::Reach::kBroken:
          state_.refused = 0;
          if (!state_.stands) {
            not_reached(host, tick);
            break;
          }
          close(host, tick);  // a peer that hears nothing closes it: it was reached all the same
          break;
        case control::Reach::kPending:
          if (tick.now <= state_.next_try + kConnectNs) break;
          state_.refused = 0;
          not_reached(host, tick);
          break;
      }
    } else if (tick.now >= state_.next_try) {
      const control::Reach begun = host.connect();
      if (begun == control::Reach::kRefused) return refused(host, tick);
      state_.tries = begun != control::Reach::kBroken;
      state_.next_try = tick.now + (state_.tries ? 0 : kRetryNs);
    }
    look_at_age(host, tick);
  }

 private:
  // Alive; when data last moved. While a path is left, `anywhere` stands still, and this channel's own data
  // may move over other paths.
  template <class Host>
  static uint64_t moved_at(Host& host) {
    const MovedSight moved = host.moved();
    return std::max(moved.here, moved.anywhere);
  }
  template <class Host>
  void close(Host& host, const Tick& tick) {
    host.close();
    state_.tries = state_.stands = false;
    state_.next_try = tick.now + kRetryNs;
  }
  template <class Host>
  void not_reached(Host& host, const Tick& tick) {
    close(host, tick);
    if (state_.reached) state_.since = tick.alive;
    state_.reached = false;
  }
  template <class Host>
  void refused(Host& host, const Tick& tick) {
    const bool sets_up = host.setting_up();
    const bool lives = !sets_up && moved_at(host) > std::exchange(state_.refused_at, tick.alive);
    state_.refused = lives ? 0 : state_.refused + 1;
    const uint32_t most = !sets_up && host.in_haste() ? 1 : kMostRefused;
    if (state_.refused < most) {
      not_reached(host, tick);
      return look_at_age(host, tick);
    }
    state_.lasts = false;
    host.gone(sets_up ? "is refused each time: that process ended" : "closed: that process ended");
  }
  // The sender asks to go on; the receiver waits for it to, and keeps the connection to learn of the
  // process's end.
  template <class Host>
  void reached(Host& host, const Tick& tick) {
    if (!state_.reached) {
      state_.reached = true;
      state_.since = tick.alive;
      state_.refused = 0;
    }
    if (host.sender() && !host.asks()) {
      if (host.resumable())
        host.ask();
      else
        host.begin_again();
      state_.tries = state_.stands = false;
    }
    look_at_age(host, tick);
  }
  template <class Host>
  void look_at_age(Host& host, const Tick& tick) {
    const bool is_patient = state_.patience > 0 && bound_ + state_.patience > unreached_;
    const uint64_t most =
        state_.reached ? kReachedFactor * bound_ : std::max(unreached_, bound_ + state_.patience);
    // A process that is reached lives in any case. Whether it restores this channel others do not show.
    const uint64_t since = std::max(state_.since, state_.reached ? host.moved().here : moved_at(host));
    if (host.setting_up() || tick.alive - since <= most) return;
    if (state_.reached)
      return host.gone("closed, and its process, which can be reached, has not restored it");
    const std::string in_ms = std::to_string(most / 1'000'000) + " ms (R2CC_CONTROL_MS";
    const std::string patience =
        " plus " + std::to_string(state_.patience / 1'000'000) + " ms, since no reset arrived";
    host.gone("closed, and its process could not be reached for " + in_ms + (is_patient ? patience : "") +
              ")");
  }

  struct State {
    bool lasts = false;
    uint64_t since = 0;     // alive; of what lasts now: the peer's process reached, or not
    uint64_t patience = 0;  // … which may last so much longer than the bound
    uint64_t began = 0;     // now
    uint64_t next_try = 0;  // now
    bool reached = false;
    bool tries = false;              // there is a connection
    bool stands = false;             // … which is made
    uint32_t turned_away = 0;        // connections that stood and were closed, running
    uint32_t refused = 0;            // connections that were refused, running
    uint64_t refused_at = 0;         // alive; the last of them, or the beginning
    uint64_t turned_away_since = 0;  // alive
  };
  const uint64_t bound_, unreached_;
  State state_;
};

/// What is known of the control connection of a channel that is set up.
struct SetUpSight {
  bool sender = true, resilient = true;
  bool open = true;     ///< it stands, or is being made
  bool outage = false;  ///< … it is being made anew
  bool greeted = true;  ///< both ends know each other
  bool asks = false;    ///< the peer has not said whether it goes on over this connection
  bool opens = false;   ///< this end waits for the peer's half of a path, or for its proof
  /// The peer owes something.
  constexpr bool owed() const { return !greeted || asks || opens; }
};
enum class SetUpAct : uint8_t {
  kNone,
  kBegin,    ///< there has been no connection yet: one is made
  kReplace,  ///< it delivers nothing: another one is made
};

/// While a channel is set up nothing else notices that its connection carries nothing.
class SetUpPatience {
 public:
  SetUpAct look(const SetUpSight& seen, uint64_t alive) {
    if (!seen.sender || !seen.resilient) return SetUpAct::kNone;
    if (!seen.open) return seen.outage ? SetUpAct::kNone : SetUpAct::kBegin;
    return is_over(alive, seen.owed()) ? SetUpAct::kReplace : SetUpAct::kNone;
  }
  void broke() {
    ++breaks_;
    heard_at_ = 0;
  }
  void heard(uint64_t alive) { heard_at_ = alive; }
  /// How many connections broke.
  uint32_t breaks() const { return breaks_; }
  /// One that breaks is worth a warning: of those in set-up the first.
  bool is_news(bool greeted) const { return greeted || breaks_ == 0; }
  /// `waiting`: the peer owes something. True: the connection is to be made anew; the next one has longer.
  bool is_over(uint64_t alive, bool waiting) {
    if (heard_at_ == 0 || !waiting) heard_at_ = alive;
    if (alive - heard_at_ <= patience_) return false;
    patience_ = std::min(2 * patience_, kMostNs);
    return true;
  }

 private:
  static constexpr uint64_t kFirstNs = 2'000'000'000, kMostNs = 8'000'000'000;
  uint32_t breaks_ = 0;
  uint64_t heard_at_ = 0;  // alive; when the connection last began or brought something
  uint64_t patience_ = kFirstNs;
};

}  // namespace r2ccl
