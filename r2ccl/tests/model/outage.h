// SPDX-License-Identifier: Apache-2.0
// What explores outages of the control connection: one end's Outage and PeerEnd, the network, and the peer's
// process, which lives, has given the channel up, or has ended. It carries out what Outage decides as
// channel/outage.cc does. The service thread takes a turn in each tick.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/outage.h"
#include "r2ccl/tests/model/object.h"

namespace r2ccl::model {

/// A decision that is made wrongly, to show that a property fails then.
enum class WrongOutage : uint8_t {
  kNone,
  kNoPatience,
  kPauseCounts,
  kOneRefusalInSetUp,
  kBrokenIsRefused,
  kOneCloseIsEnough,
  kClosingIsGivenUp,
  kKeepsConnection,
  kTriesAtOnce,
  kNeverTries,
  kWaitsForConnection,
  kNeverReached,
  kNeverAsks,
  kNeverOver,
  kRefusalIgnored,
  kDataIgnored,
  kAlwaysInHaste,
  kGoesOn,
  kWrongTime,
  kToldWhileWorkerBusy,
  kWorkerForEver,
};

/// Passes on to a host what is not changed.
template <class Host>
struct ChangedHost {
  Host& host;
  bool tries = false;  ///< there is a connection
  bool setting_up() const;
  bool sender() const;
  bool asks() const { return host.asks(); }
  control::Reach connect();
  control::Reach reach();
  void close();
  bool resumable() const { return host.resumable(); }
  MovedSight moved() const;
  bool in_haste() const;
  void ask();
  void begin_again();
  void gone(const std::string& why);
};

class TestedOutage : public Outage {
 public:
  static inline WrongOutage wrong = WrongOutage::kNone;

  using Outage::Outage;
  template <class Host>
  void broke(Host& host, Tick tick, Break what) {
    if (wrong == WrongOutage::kNoPatience) what.silent = false;
    if (wrong == WrongOutage::kClosingIsGivenUp) what.closing = false;
    if (wrong == WrongOutage::kOneCloseIsEnough && what.turned_away && lasts()) host.gone("is closed");
    ChangedHost<Host> changed{host, tries_};
    Outage::broke(changed, changed_tick(tick), what);
    tries_ = changed.tries;
  }
  template <class Host>
  void step(Host& host, Tick tick) {
    ChangedHost<Host> changed{host, tries_};
    if (wrong == WrongOutage::kTriesAtOnce) tick.now += kRetryNs;
    if (wrong == WrongOutage::kWaitsForConnection && tries_) tick.now = 0;
    Outage::step(changed, changed_tick(tick));
    tries_ = changed.tries;
  }
  uint64_t restored(uint64_t now) {
    if (wrong == WrongOutage::kGoesOn) return now - began();
    return Outage::restored(now) + (wrong == WrongOutage::kWrongTime ? 1 : 0);
  }

 private:
  static Tick changed_tick(Tick tick) {
    if (wrong == WrongOutage::kPauseCounts) tick.alive = tick.now;
    return tick;
  }
  bool tries_ = false;
};

template <class Host>
bool ChangedHost<Host>::setting_up() const {
  if (TestedOutage::wrong == WrongOutage::kOneRefusalInSetUp) return false;
  return host.setting_up();
}
template <class Host>
control::Reach ChangedHost<Host>::connect() {
  if (TestedOutage::wrong == WrongOutage::kNeverTries) return control::Reach::kPending;
  const control::Reach begun = host.connect();
  tries = begun == control::Reach::kPending;
  return TestedOutage::wrong == WrongOutage::kRefusalIgnored && begun == control::Reach::kRefused
             ? control::Reach::kBroken
             : begun;
}
template <class Host>
control::Reach ChangedHost<Host>::reach() {
  const control::Reach reached = host.reach();
  if (TestedOutage::wrong == WrongOutage::kNeverReached) return control::Reach::kPending;
  if (TestedOutage::wrong == WrongOutage::kBrokenIsRefused && reached == control::Reach::kBroken)
    return control::Reach::kRefused;
  return TestedOutage::wrong == WrongOutage::kRefusalIgnored && reached == control::Reach::kRefused
             ? control::Reach::kBroken
             : reached;
}
template <class Host>
void ChangedHost<Host>::close() {
  tries = false;
  if (TestedOutage::wrong != WrongOutage::kKeepsConnection) host.close();
}
template <class Host>
bool ChangedHost<Host>::sender() const {
  return TestedOutage::wrong != WrongOutage::kNeverAsks && host.sender();
}
template <class Host>
MovedSight ChangedHost<Host>::moved() const {
  return TestedOutage::wrong == WrongOutage::kDataIgnored ? MovedSight() : host.moved();
}
template <class Host>
bool ChangedHost<Host>::in_haste() const {
  return TestedOutage::wrong == WrongOutage::kAlwaysInHaste || host.in_haste();
}
template <class Host>
void ChangedHost<Host>::ask() {
  host.ask();
  tries = false;
}
template <class Host>
void ChangedHost<Host>::begin_again() {
  host.begin_again();
  tries = false;
}
template <class Host>
void ChangedHost<Host>::gone(const std::string& why) {
  if (TestedOutage::wrong != WrongOutage::kNeverOver) host.gone(why);
}

/// How far the exploration goes; faults: at most so many of each in one run.
struct OutageBounds {
  bool sender = true;
  bool sets_up = false;
  uint64_t tick_ms = 50;
  int ticks = 30;
  int silences = 0;   ///< the network carries nothing for a while; nothing says so
  int breaks = 0;     ///< a connection is reset: the one that was asked over, or one that stands or is made
  int pauses = 0;     ///< this process is stopped for long
  bool ends = false;  ///< the peer's process may end
  bool gives_up = false;  ///< it has given the channel up: it closes each connection when it is asked
  bool deaf = false;      ///< it can be reached, and may never answer
  bool closing = false;   ///< this end is being closed meanwhile
  bool in_haste = true;   ///< its path has failed, too
  bool firewall = false;  ///< connections may be refused while the peer's process lives and moves data
  bool worker = false;    ///< a driver call may be under way when the peer's process has ended
};

struct OutageWorld {
  enum class Peer : uint8_t { kLives, kDeaf, kGaveUp, kEnded };
  enum class Link : uint8_t { kUp, kAsks, kClosed };
  enum class Connection : uint8_t { kNone, kPending, kStands };
  enum class Event : uint8_t {
    kStart,
    kSilence,
    kCarriesAgain,
    kPeerEnds,
    kReset,
    kTurn,
    kAnswered,
    kTurnedAway,
    kGivenUp,
    kWorkerReturns,
    kTick,
    kPause,
  };
  Held<TestedOutage> outage;
  Held<PeerEnd> peer_end;
  Tick tick{kStart, kStart};
  Peer peer = Peer::kLives;
  Link link = Link::kClosed;
  Connection connection = Connection::kNone;
  bool carries = true;  ///< the network does
  bool turned = false;  ///< the service thread has had its turn in this tick
  bool worker = false;
  bool failed = false;
  bool silent_outage = false;  ///< it began with a connection that brought nothing
  // What is known from the outside, to judge by. Times of tick.now, or of tick.alive.
  uint64_t broke_at = 0, tried_at = 0, ended_at = 0;  ///< now; the connection, the last try, and its end
  uint64_t idle_since = 0;  ///< now; neither a connection nor a question is under way since then
  uint64_t same_since = 0;  ///< alive; the peer's process has been reached, or not, since then
  bool reached = false;
  uint8_t closed = 0;         ///< times that it closed the connection when asked, in this outage
  uint64_t closed_since = 0;  ///< alive
  uint8_t refused = 0;        ///< tries that were refused, running, and no data has moved in between
  uint64_t refused_at = 0;    ///< alive; the last of them
  uint64_t moved_at = 0;      ///< alive; data has moved
  uint64_t gone_at = 0;       ///< now; it was said to have ended
  uint8_t silences = 0, breaks = 0, pauses = 0, ticks = 0;

  const char* violation = nullptr;
  Event event = Event::kStart;
  control::Reach reach = control::Reach::kPending;

  static constexpr uint64_t kStart = 1'000'000'000'000;
};

class OutageModel {
 public:
  using State = OutageWorld;
  static constexpr size_t kMaxBytes = 512;
  /// R2CC_CONTROL_MS, and R2CC_FENCE_MS.
  static constexpr uint64_t kBound = 200'000'000, kWorkerBound = 100'000'000;

  explicit OutageModel(const OutageBounds& bounds) : bounds_(bounds) {}
  State initial() const;
  size_t expand(const State& state, std::vector<State>& next) const;
  size_t bytes(const State& state, uint8_t* out) const;
  /// The time is over.
  const char* at_end(const State&) const { return nullptr; }
  std::string words(const State& state) const;

 private:
  class Run;
  OutageBounds bounds_;
};

}  // namespace r2ccl::model
