// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/turn.h"

#include <cstring>
#include <utility>

namespace r2ccl::model {
namespace {

using World = TurnWorld;
using Event = World::Event;
using Fence = MigrationEnd::Fence;
/// In set-up each turn is a while: after so many R2CC_CONNECT_MS is over.
constexpr uint8_t kMostInSetUp = 5;

}  // namespace

bool TestedTurn::is_due(TurnAct act, TurnSight seen) {
  const bool forgotten = (wrong == WrongTurn::kNoRemoval && act == TurnAct::kRemoval) ||
                         (wrong == WrongTurn::kNoOutage && act == TurnAct::kOutage) ||
                         (wrong == WrongTurn::kNoSetUp && act == TurnAct::kSetUp) ||
                         (wrong == WrongTurn::kNoRetired && act == TurnAct::kRetired) ||
                         (wrong == WrongTurn::kClosedEarlyForgotten && act == TurnAct::kClosedEarly) ||
                         (wrong == WrongTurn::kPeerEndedForgotten && act == TurnAct::kPeerEnded) ||
                         (wrong == WrongTurn::kTooLateForgotten && act == TurnAct::kTooLate) ||
                         (wrong == WrongTurn::kProbesUnread && act == TurnAct::kProbes);
  if (forgotten) return false;
  if (wrong == WrongTurn::kWorksAfterError && act > TurnAct::kPeerClosed) seen.failed = false;
  if (wrong == WrongTurn::kLeavesTwice && act == TurnAct::kLeave) {
    seen.phase = Phase::kRunning;
    seen.active = true;
  }
  return r2ccl::is_due(act, seen);
}

bool TestedTurn::ends_turn(TurnAct act) {
  if (wrong == WrongTurn::kErrorEndsNoTurn && act == TurnAct::kAfterError) return false;
  return r2ccl::ends_turn(act);
}

Urgency TestedTurn::urgency(UrgencySight seen) {
  switch (wrong) {
    case WrongTurn::kSleepsInOutage:
      seen.turn.outage = false;
      break;
    case WrongTurn::kSleepsWithRetired:
      seen.keeps = false;
      break;
    case WrongTurn::kSleepsInSetUp:
      if (seen.turn.setting_up) return Urgency::kIdle;
      break;
    case WrongTurn::kSleepsWhenAsked:
      seen.asked = false;
      break;
    case WrongTurn::kSleepsWhileProbing:
      seen.probing = false;
      break;
    case WrongTurn::kSleepsInMigration:
      seen.turn.phase = Phase::kRunning;
      break;
    case WrongTurn::kSleepsAfterError:
      if (seen.turn.failed) return Urgency::kIdle;
      break;
    case WrongTurn::kSleepsWhileSettling:
      seen.settles = false;
      break;
    case WrongTurn::kSleepsThroughNearTry:
      seen.looks_soon = false;
      break;
    case WrongTurn::kNeverSleeps:
      return std::max(r2ccl::urgency(seen), Urgency::kBusy);
    default:
      break;
  }
  return r2ccl::urgency(seen);
}

/// One event, or one turn, carried out on a state.
class TurnModel::Run {
 public:
  explicit Run(World& world) : w_(world), seen_(world.seen) {}

  // Channel::step
  void turn() {
    const bool settling = settles();
    w_.settling = settling ? w_.settling - 1 : 0;
    if (seen_.setting_up && !seen_.late && ++w_.turns_in_set_up == kMostInSetUp) seen_.late = true;
    const uint8_t silent = w_.silent;
    for (size_t i = 0; i < kTurnActs; ++i) {
      const auto it = TurnAct(i);
      seen_.closes = w_.wants_to_close && !settling;
      if (!TestedTurn::is_due(it, seen_)) continue;
      if (i > size_t(TurnAct::kPeerClosed) && (seen_.closes || seen_.failed || seen_.peer_closed))
        return wrong("a channel that is over is worked on");
      const Urgency urgency = act(it);
      if (!TestedTurn::ends_turn(it)) continue;
      w_.asleep = urgency == Urgency::kIdle;
      return;
    }
    if (silent > 0 && w_.silent == silent && seen_.setting_up && !seen_.failed)
      return wrong("a connection that brings nothing in set-up is not replaced");
    UrgencySight last{seen_};
    last.settles = settling;
    last.probing = w_.probe > 0 || (seen_.phase == Phase::kChoosing && w_.choice > 0);
    last.asked = w_.asked > 0;
    last.keeps = w_.retired > 0;
    last.looks_soon = w_.near > 0 || w_.opening > 0;
    w_.asleep = TestedTurn::urgency(last) == Urgency::kIdle;
  }
  /// Something that only a turn does.
  bool has_to_do() const {
    if (w_.wants_to_close && !settles()) return !w_.torn_down || w_.outage > 0;
    if (seen_.failed) return !w_.told || w_.outage > 0;
    if (seen_.peer_ended && !w_.worker) return true;
    if (seen_.setting_up || w_.outage > 0 || settles()) return true;
    if (seen_.peer_closed) return w_.lacking > 0;
    if (seen_.phase == Phase::kRunning && seen_.active && seen_.suspected && seen_.resilient) return true;
    // While a path is left these wait until another one carries.
    const bool later = seen_.phase == Phase::kRunning && (w_.retired > 0 || w_.near > 0 || w_.asked > 0);
    return later || w_.opening > 0 || w_.fence > 0 || w_.removal > 0 || w_.choice > 0 || w_.probe > 0;
  }
  /// For the peer, whose message wakes it; it is looked at meanwhile.
  bool waits_for_peer() const { return seen_.phase != Phase::kRunning; }

  void leave() {
    seen_.suspected = seen_.active = false;
    seen_.phase = Phase::kFencing;
    seen_.own_fence = Fence::kPending;
    w_.fence = 2;
  }
  void peer_fenced(bool done) {
    seen_.phase = done ? Phase::kChoosing : Phase::kUnfenced;
    w_.choice = done ? 2 : 0;
  }

 private:
  void wrong(const char* what) {
    if (!w_.violation) w_.violation = what;
  }
  // Closing::settle
  bool settles() const { return w_.settling > 0 && !seen_.peer_closed && !seen_.failed; }
  void step_outage() {
    if (w_.outage > 0 && --w_.outage == 0) seen_.outage = false;
  }
  // Channel::act
  Urgency act(TurnAct it) {
    switch (it) {
      case TurnAct::kClose:
        if (!std::exchange(w_.torn_down, true)) return urgency_of_ended(false, w_.outage > 0);
        step_outage();
        return urgency_of_ended(true, w_.outage > 0);
      case TurnAct::kAfterError:
        w_.told = true;
        step_outage();
        return urgency_of_ended(true, w_.outage > 0);
      case TurnAct::kTooLate:
        seen_.failed = true;
        break;
      case TurnAct::kPeerEnded:
        if (!w_.worker) seen_.failed = true;
        break;
      case TurnAct::kSetUp:
        if (w_.silent > 0 && --w_.silent == 0) seen_.outage = true, w_.outage = 1;
        break;
      case TurnAct::kOutage:
        step_outage();
        break;
      case TurnAct::kClosedEarly:
        seen_.failed = true;
        break;
      case TurnAct::kPeerClosed:
        if (w_.lacking == 0) return urgency_of_ended(!seen_.failed, false);
        if (--w_.lacking == 0) seen_.failed = true;
        return urgency_of_ended(false, false);
      case TurnAct::kPaths:
        if (w_.silent > 0) break;
        if (seen_.setting_up && w_.opening == 0) {
          w_.opening = 2;
        } else if (w_.opening > 0 && --w_.opening == 0 && seen_.setting_up) {
          seen_.setting_up = false;
          seen_.active = true;
        }
        break;
      case TurnAct::kLeave:
        if (seen_.phase != Phase::kRunning) wrong("a path is left while another one is");
        leave();
        break;
      case TurnAct::kWatch:
        if (w_.asked > 0 && --w_.asked == 0) w_.probe = 2;
        break;
      case TurnAct::kProbes:
        if (w_.probe > 0) --w_.probe;
        break;
      case TurnAct::kFence:
        if (w_.fence == 0 || --w_.fence > 0) break;
        seen_.phase = Phase::kWaitingForPeer;
        seen_.own_fence = w_.cannot ? Fence::kCannot : Fence::kDone;
        w_.removal = w_.cannot ? 2 : 0;
        break;
      case TurnAct::kRemoval:
        if (w_.removal > 0 && --w_.removal == 0) seen_.own_fence = Fence::kDone;
        break;
      case TurnAct::kChoose:
        if (seen_.phase != Phase::kChoosing || --w_.choice > 0) break;
        seen_.phase = Phase::kRunning;
        seen_.active = true;
        w_.removal = 0;
        w_.retired = 2;
        break;
      case TurnAct::kComeHome:
        if (w_.near > 0 && --w_.near == 0) w_.opening = 2;
        break;
      case TurnAct::kRetired:
        if (w_.retired > 0 && seen_.phase == Phase::kRunning) --w_.retired;
        break;
      default:
        break;
    }
    return Urgency::kBusy;
  }

  World& w_;
  TurnSight& seen_;
};

TurnModel::State TurnModel::initial() const {
  World world;
  world.seen.setting_up = true;
  world.seen.resilient = bounds_.resilient;
  return world;
}

size_t TurnModel::expand(const World& world, std::vector<World>& next) const {
  size_t own = 0;
  // Each wakes the service thread. `fault`: it need not happen.
  const auto add = [&](Event event, bool fault, auto&& change) {
    World after = world;
    after.event = event;
    if (fault) ++after.events;
    change(after);
    after.asleep = false;
    next.push_back(after);
    if (!fault) ++own;
  };
  const TurnSight& seen = world.seen;
  if (!world.asleep) {
    World after = world;
    after.event = Event::kTurn;
    Run run(after);
    run.turn();
    uint8_t before_bytes[kMaxBytes], after_bytes[kMaxBytes];
    const size_t count = bytes(world, before_bytes);
    const bool same =
        count == bytes(after, after_bytes) && std::memcmp(before_bytes, after_bytes, count) == 0;
    if (same && run.has_to_do() && !after.violation)
      after.violation = "something is to be done, and turn after turn does not do it";
    if (same && !run.waits_for_peer() && !after.violation)
      after.violation = "the service thread does not sleep, although there is nothing to do";
    if (!same || after.violation) {
      next.push_back(after);
      ++own;
    }
  }
  if (world.torn_down) return own;
  if (seen.setting_up && !seen.greeted && !seen.failed && world.silent == 0)
    add(Event::kGreeted, false, [](World& after) { after.seen.greeted = true; });
  if (seen.phase == Phase::kWaitingForPeer || seen.phase == Phase::kUnfenced)
    add(Event::kPeerFenced, false, [](World& after) { Run(after).peer_fenced(true); });
  if (world.worker) add(Event::kWorkerReturns, false, [](World& after) { after.worker = false; });
  if (world.events == bounds_.events) return own;

  if (seen.phase == Phase::kWaitingForPeer)
    add(Event::kPeerCannotFence, true, [](World& after) { Run(after).peer_fenced(false); });
  for (const uint8_t turns : {1, 2}) {
    if (seen.resilient && !seen.outage && !seen.peer_closed)  // after_break()
      add(Event::kBreaks, true, [&](World& after) {
        if (seen.setting_up && turns == 2) {  // it brings nothing, and nobody says so
          after.silent = turns;
        } else {
          after.seen.outage = true;
          after.outage = turns;
        }
      });
    if (seen.greeted && !seen.peer_closed)
      add(Event::kPeerCloses, true, [&](World& after) {
        after.seen.peer_closed = true;
        after.seen.outage = false;  // it is over when the peer is heard
        after.outage = 0;
        after.lacking = uint8_t(turns - 1);
      });
    if (!world.wants_to_close && !(seen.failed && turns == 2))
      add(Event::kCloses, true, [&](World& after) {
        after.wants_to_close = true;
        after.settling = seen.resilient && seen.greeted && !seen.setting_up && !seen.peer_closed
                             ? uint8_t(2 * (turns - 1))
                             : 0;
      });
    if (!seen.peer_ended && !seen.failed && (turns == 1 || seen.phase != Phase::kRunning))
      add(Event::kPeerEnds, true, [&](World& after) {
        after.seen.peer_ended = true;
        after.worker = turns == 2;
      });
    if (seen.resilient && !seen.setting_up && !seen.suspected)
      add(Event::kSuspected, true, [&](World& after) {
        after.seen.suspected = true;
        after.cannot = turns == 2;
      });
  }
  if (!seen.failed) add(Event::kFails, true, [](World& after) { after.seen.failed = true; });
  if (seen.resilient && seen.active && world.asked == 0)
    add(Event::kStalls, true, [](World& after) { after.asked = 2; });
  if (seen.resilient && seen.active && world.near == 0 && world.opening == 0)
    add(Event::kFailbackNears, true, [](World& after) { after.near = 2; });
  return own;
}

size_t TurnModel::bytes(const World& world, uint8_t* out) const {
  const TurnSight& seen = world.seen;
  Bytes bytes(out);
  bytes.put(seen.failed | seen.setting_up << 1 | seen.late << 2 | seen.peer_ended << 3 | seen.outage << 4 |
                seen.greeted << 5 | seen.peer_closed << 6 | seen.active << 7,
            seen.suspected | uint8_t(seen.phase) << 1 | uint8_t(seen.own_fence) << 4, world.silent,
            world.outage, world.opening, world.fence, world.removal, world.choice, world.probe, world.retired,
            world.settling, world.lacking, world.near, world.asked,
            world.cannot | world.worker << 2 | world.wants_to_close << 3 | world.told << 4 |
                world.torn_down << 5 | world.asleep << 6,
            world.turns_in_set_up, world.events);
  return bytes.count();
}

const char* TurnModel::at_end(const World& world) const {
  World copy = world;
  return Run(copy).has_to_do() ? "the service thread sleeps, and something is to be done" : nullptr;
}

std::string TurnModel::words(const World& world) const {
  switch (world.event) {
    case Event::kStart:
      return "start";
    case Event::kGreeted:
      return "both ends have greeted each other";
    case Event::kBreaks:
      return "the control connection breaks";
    case Event::kPeerEnds:
      return "the peer's process ends";
    case Event::kWorkerReturns:
      return "a driver call returns";
    case Event::kFails:
      return "the channel fails";
    case Event::kPeerCloses:
      return "the peer closes its end";
    case Event::kCloses:
      return "the program closes this end";
    case Event::kSuspected:
      return "a path is marked failed";
    case Event::kStalls:
      return "the progress thread asks for a look";
    case Event::kFailbackNears:
      return "the home rail is soon to be tried";
    case Event::kPeerFenced:
      return "the peer has fenced";
    case Event::kPeerCannotFence:
      return "the peer cannot fence";
    case Event::kTurn:
      return world.asleep ? "a turn; then the service thread sleeps" : "a turn";
  }
  return "?";
}

}  // namespace r2ccl::model
