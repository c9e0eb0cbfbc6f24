// SPDX-License-Identifier: Apache-2.0
// What explores the turns of the service thread: is_due(), ends_turn() and urgency() of turn.h, and a channel
// to which anything happens. Each act may have to be repeated before it is done, and what it does changes
// what is seen, as in channel/turn.cc. Between two turns the service thread sleeps, unless urgency() says
// that the next one is due, or the event is one that wakes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/turn.h"
#include "r2ccl/tests/model/object.h"

namespace r2ccl::model {

/// A decision that is made wrongly, to show that a property fails then.
enum class WrongTurn : uint8_t {
  kNone,
  kErrorEndsNoTurn,
  kWorksAfterError,
  kLeavesTwice,
  kNoRemoval,
  kNoOutage,
  kNoSetUp,
  kNoRetired,
  kClosedEarlyForgotten,
  kPeerEndedForgotten,
  kTooLateForgotten,
  kProbesUnread,
  kSleepsInOutage,
  kSleepsWithRetired,
  kSleepsInSetUp,
  kSleepsWhenAsked,
  kSleepsWhileProbing,
  kSleepsInMigration,
  kSleepsAfterError,
  kSleepsWhileSettling,
  kSleepsThroughNearTry,
  kNeverSleeps,
};

struct TestedTurn {
  static inline WrongTurn wrong = WrongTurn::kNone;
  static bool is_due(TurnAct act, TurnSight seen);
  static bool ends_turn(TurnAct act);
  static Urgency urgency(UrgencySight seen);
};

/// How far the exploration goes: so many events in one run.
struct TurnBounds {
  bool resilient = true;
  int events = 3;
};

struct TurnWorld {
  enum class Event : uint8_t {
    kStart,
    kGreeted,
    kBreaks,
    kPeerEnds,
    kWorkerReturns,
    kFails,
    kPeerCloses,
    kCloses,
    kSuspected,
    kStalls,
    kFailbackNears,
    kPeerFenced,
    kPeerCannotFence,
    kTurn,
  };
  TurnSight seen;
  // What is left to do: so many turns.
  uint8_t silent = 0;    ///< a connection that brings nothing in set-up is replaced
  uint8_t outage = 0;    ///< the control connection is restored
  uint8_t opening = 0;   ///< a path is opened
  uint8_t fence = 0;     ///< the path that is left is fenced
  uint8_t removal = 0;   ///< the kernel stops the device on which that was not possible
  uint8_t choice = 0;    ///< a path answers that can take over
  uint8_t probe = 0;     ///< the path in use answers
  uint8_t retired = 0;   ///< a path out of use is destroyed
  uint8_t settling = 0;  ///< the ACK comes of what was sent before the program closed the channel
  uint8_t lacking = 0;   ///< the peer has closed, and what is missing counts as lost
  uint8_t near = 0;      ///< the home rail is to be tried
  uint8_t asked = 0;     ///< the path in use is probed: the progress thread waits in vain
  bool cannot = false;   ///< fence the path that is left
  bool worker = false;   ///< a driver call on the path that is left has not returned
  bool wants_to_close = false, told = false, torn_down = false;
  uint8_t turns_in_set_up = 0;
  bool asleep = false;  ///< nothing but an event wakes the service thread
  uint8_t events = 0;

  const char* violation = nullptr;
  Event event = Event::kStart;
};

class TurnModel {
 public:
  using State = TurnWorld;
  static constexpr size_t kMaxBytes = 128;
  explicit TurnModel(const TurnBounds& bounds) : bounds_(bounds) {}
  State initial() const;
  size_t expand(const State& state, std::vector<State>& next) const;
  size_t bytes(const State& state, uint8_t* out) const;
  const char* at_end(const State& state) const;
  std::string words(const State& state) const;

 private:
  class Run;
  TurnBounds bounds_;
};

}  // namespace r2ccl::model
