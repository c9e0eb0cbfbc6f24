// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/outage.h"

#include <algorithm>
#include <utility>

namespace r2ccl::model {
namespace {

using World = OutageWorld;
using Event = World::Event;
using Peer = World::Peer;
using Link = World::Link;
using Connection = World::Connection;
using control::Reach;
constexpr uint64_t kMs = 1'000'000;

}  // namespace

/// One event, carried out on a state. The Host of Outage.
class OutageModel::Run {
 public:
  Run(World& world, const OutageBounds& bounds) : w_(world), bounds_(bounds) {}

  // --- the Host
  bool setting_up() const { return bounds_.sets_up; }
  bool asks() const { return w_.link != Link::kClosed; }
  Reach connect() {
    if (w_.connection != Connection::kNone) wrong("two connections are made at once");
    if (w_.ended_at != 0 && w_.tick.now < w_.ended_at + Outage::kRetryNs)
      wrong("a connection is tried again without a pause");
    w_.tried_at = w_.tick.now;
    // A kernel that is far away refuses it later.
    if (w_.carries && w_.reach == Reach::kRefused) {
      over();
      return seen(Reach::kRefused);
    }
    w_.connection = Connection::kPending;
    return Reach::kPending;
  }
  Reach reach() { return seen(w_.reach); }
  void close() {
    w_.connection = Connection::kNone;
    over();
    if (!closing_one_that_stood_) now_reached(false);
  }
  bool sender() const { return bounds_.sender; }
  bool resumable() const { return !bounds_.sets_up; }
  MovedSight moved() const { return {0, w_.moved_at, w_.moved_at}; }
  bool in_haste() const { return bounds_.in_haste; }
  void ask() {
    if (!resumable()) wrong("it asks to go on with a conversation that has not begun");
    take_connection();
  }
  void begin_again() {
    if (resumable()) wrong("a conversation that can go on is begun again");
    take_connection();
  }
  void gone(const std::string& why) {
    judge();
    if (w_.gone_at == 0) w_.gone_at = w_.tick.now;
    if (why.empty()) wrong("the peer's process has ended, and no reason is given");
    learn(why);
  }

  // --- what happens
  void broke(bool silent, bool turned_away) {
    const bool first = !outage().lasts();
    w_.link = Link::kClosed;
    if (first) {
      w_.broke_at = w_.tick.now;
      w_.silent_outage = silent;
      w_.same_since = w_.tick.alive;
      w_.reached = false;
      w_.closed = 0;
      w_.refused = 0;
      w_.refused_at = w_.tick.alive;
      w_.ended_at = 0;
    } else {
      over();
    }
    if (turned_away && w_.closed++ == 0) w_.closed_since = w_.tick.alive;
    if (!turned_away) w_.closed = 0;
    outage().broke(*this, w_.tick, {silent, turned_away, bounds_.closing});
    if (!first && !w_.failed) now_reached(false);
  }
  void turn() {
    w_.turned = true;
    if (w_.peer_end.object.known()) return learn(w_.peer_end.object.why());
    if (!outage().lasts()) return;
    outage().step(*this, w_.tick);
    const bool ended = w_.refused >= most_refused();
    if (ended && !w_.failed && !w_.peer_end.object.known())
      return wrong("a process that has ended does not count as that");
    look_at_age();
  }
  void answered() {
    w_.link = Link::kUp;
    w_.connection = Connection::kNone;
    const bool lasted = outage().lasts();
    if (outage().restored(w_.tick.now) != (lasted ? w_.tick.now - w_.broke_at : 0))
      wrong("the outage is said to have lasted for another time");
    if (outage().lasts()) wrong("an outage that is over lasts");
  }

 private:
  void take_connection() {
    if (asks()) wrong("it asks again before it is answered");
    w_.connection = Connection::kNone;
    w_.link = Link::kAsks;
  }
  TestedOutage& outage() { return w_.outage.object; }
  void wrong(const char* what) {
    if (!w_.violation) w_.violation = what;
  }
  // A try, or a question, is over.
  void over() { w_.ended_at = w_.idle_since = w_.tick.now; }
  void now_reached(bool reached) {
    if (w_.reached == reached) return;
    w_.reached = reached;
    w_.same_since = w_.tick.alive;
  }
  Reach seen(Reach what) {
    closing_one_that_stood_ = what == Reach::kBroken && w_.connection == Connection::kStands;
    if (what == Reach::kReached) {
      w_.connection = Connection::kStands;
      now_reached(true);
    }
    if (what == Reach::kRefused)
      w_.refused = w_.moved_at > std::exchange(w_.refused_at, w_.tick.alive) ? 0 : w_.refused + 1;
    else if (what != Reach::kPending || w_.tick.now > w_.tried_at + Outage::kConnectNs)
      w_.refused = 0;
    if (what == Reach::kRefused) w_.connection = Connection::kNone;
    return what;
  }
  bool is_too_old() const {
    return !bounds_.sets_up && w_.tick.alive - std::max(w_.same_since, w_.moved_at) > longest();
  }
  uint32_t most_refused() const { return bounds_.sets_up || !bounds_.in_haste ? Outage::kMostRefused : 1; }
  uint64_t longest() const {
    return w_.reached ? Outage::kReachedFactor * kBound
                      : kBound + (w_.silent_outage ? Outage::kSilencePatienceNs : 0);
  }
  // Was there a reason to say that the peer's process has ended?
  void judge() {
    if (w_.peer == Peer::kLives && w_.moved_at == w_.tick.alive)
      return wrong("a process counts as ended that moves data");
    if (is_too_old()) return;
    if (w_.refused > 0) {
      if (w_.refused < most_refused())
        wrong(bounds_.sets_up ? "in set-up a process counts as ended before it has refused for long"
                              : "a process counts as ended before it has refused for long");
      return;
    }
    if (w_.closed < Outage::kMostTurnedAway || w_.tick.alive - w_.closed_since < Outage::kTurnedAwayNs)
      wrong("a process counts as ended too early");
    else if (bounds_.closing || bounds_.sets_up)
      wrong("a peer that closes connections counts as ended when nobody minds");
  }
  // After a turn.
  void look_at_age() {
    if (w_.failed || w_.peer_end.object.known() || !outage().lasts()) return;
    if (is_too_old()) return wrong("the peer's process is waited for without a bound");
    const bool idle = w_.link == Link::kClosed && w_.connection == Connection::kNone;
    const uint64_t slack = bounds_.tick_ms * kMs;
    if (idle && w_.tick.now - w_.idle_since > Outage::kRetryNs + slack)
      return wrong("nobody tries to connect");
    if (w_.connection == Connection::kPending && w_.tick.now - w_.tried_at > Outage::kConnectNs + slack)
      return wrong("a connection that is not made is waited for without a bound");
    if (w_.connection == Connection::kStands && bounds_.sender) return wrong("nobody asks over a connection");
  }
  // Channel::peer_gone
  void learn(const std::string& why) {
    const bool known = w_.peer_end.object.known();
    if (!w_.peer_end.object.learn(why, false, told_busy(), w_.tick.now)) {
      if (known && w_.tick.now - w_.gone_at >= kWorkerBound)
        wrong("a driver call is waited for without a bound");
      return;
    }
    if (w_.worker && w_.tick.now - w_.gone_at < kWorkerBound)
      wrong("a channel fails before what its path has brought is taken in");
    w_.failed = true;
  }
  bool told_busy() const {
    if (TestedOutage::wrong == WrongOutage::kToldWhileWorkerBusy) return false;
    return w_.worker;
  }

  World& w_;
  const OutageBounds& bounds_;
  bool closing_one_that_stood_ = false;
};

OutageModel::State OutageModel::initial() const {
  State world{
      Held(TestedOutage(kBound)),
      Held(PeerEnd(TestedOutage::wrong == WrongOutage::kWorkerForEver ? ~uint64_t{0} : kWorkerBound))};
  world.peer = bounds_.gives_up ? Peer::kGaveUp : Peer::kLives;
  world.link = bounds_.sets_up ? Link::kClosed : Link::kUp;
  if (bounds_.sets_up) {
    Run(world, bounds_).broke(false, false);
    world.turned = true;
  }
  return world;
}

size_t OutageModel::expand(const World& world, std::vector<World>& next) const {
  if (world.failed || world.ticks >= bounds_.ticks) return 0;
  size_t own = 0;
  const auto add = [&](Event event, bool fault, auto&& carry_out) {
    World after = world;
    after.event = event;
    Run run(after, bounds_);
    carry_out(run, after);
    next.push_back(std::move(after));
    if (!fault) ++own;
  };
  const bool lasts = world.outage.object.lasts();

  // --- the peer and the network
  if (!world.carries) add(Event::kCarriesAgain, true, [](Run&, World& after) { after.carries = true; });
  if (world.carries && world.silences < bounds_.silences)
    add(Event::kSilence, true, [](Run&, World& after) {
      ++after.silences;
      after.carries = false;
    });
  if (bounds_.ends && world.peer != Peer::kEnded)
    add(Event::kPeerEnds, true, [&](Run&, World& after) {
      after.peer = Peer::kEnded;
      after.worker = bounds_.worker;
    });
  if (bounds_.deaf && world.peer == Peer::kLives)
    add(Event::kReset, true, [](Run&, World& after) { after.peer = Peer::kDeaf; });
  // The connection that stands, or was asked over.
  if (world.link != Link::kClosed) {
    if (world.breaks < bounds_.breaks && world.carries)
      add(Event::kReset, true, [](Run& run, World& after) {
        ++after.breaks;
        run.broke(false, after.link == Link::kAsks);
      });
    if (world.peer == Peer::kEnded && world.carries)
      add(Event::kReset, true, [](Run& run, World& after) { run.broke(false, after.link == Link::kAsks); });
    if (!world.carries) add(Event::kGivenUp, true, [](Run& run, World&) { run.broke(true, false); });
  }
  if (world.link == Link::kAsks && world.carries && world.peer == Peer::kLives)
    add(Event::kAnswered, true, [](Run& run, World&) { run.answered(); });
  if (world.link == Link::kAsks && world.carries && world.peer == Peer::kGaveUp)
    add(Event::kTurnedAway, false, [](Run& run, World&) { run.broke(false, true); });
  // The sender has connected anew: also when this end has noticed nothing.
  if (!bounds_.sender && world.carries && world.peer == Peer::kLives && lasts)
    add(Event::kAnswered, true, [](Run& run, World&) { run.answered(); });
  if (world.worker && world.peer_end.object.known())
    add(Event::kWorkerReturns, true, [](Run&, World& after) { after.worker = false; });

  // --- this end: a turn in each tick
  if (!world.turned) {
    const auto look = [&](Reach reach, bool fault) {
      add(Event::kTurn, fault, [&](Run& run, World& after) {
        if (fault) ++after.breaks;
        after.reach = reach;
        run.turn();
      });
    };
    const bool broken = world.breaks < bounds_.breaks;
    if (world.connection == Connection::kPending && world.carries) {
      look(world.peer == Peer::kEnded ? Reach::kRefused : Reach::kReached, false);
      if (bounds_.firewall && world.peer == Peer::kLives) look(Reach::kRefused, false);
      if (broken) look(Reach::kBroken, true);
    } else if (world.connection == Connection::kStands) {
      look(world.peer == Peer::kEnded && world.carries ? Reach::kBroken : Reach::kReached, false);
      if (broken) look(Reach::kBroken, true);
    } else {
      look(Reach::kPending, false);
      const bool tries = lasts && world.link == Link::kClosed;
      if (tries && world.carries && (world.peer == Peer::kEnded || bounds_.firewall))
        look(Reach::kRefused, false);
    }
    return own;
  }
  const auto passes = [&](uint64_t ns, uint64_t alive_ns) {
    return [=, moves = bounds_.firewall](Run&, World& after) {
      ++after.ticks;
      after.tick.now += ns;
      after.tick.alive += alive_ns;
      after.turned = false;
      if (moves && after.peer == Peer::kLives) after.moved_at = after.tick.alive;
    };
  };
  const uint64_t tick = bounds_.tick_ms * kMs;
  add(Event::kTick, false, passes(tick, tick));
  if (world.pauses < bounds_.pauses)
    add(Event::kPause, true, [&](Run& run, World& after) {
      ++after.pauses;
      passes(20 * kBound, kMs)(run, after);
    });
  return own;
}

size_t OutageModel::bytes(const World& world, uint8_t* out) const {
  Bytes bytes(out);
  bytes.put_object(world.outage.object);
  bytes.put(world.peer, world.link, world.connection, world.silences, world.breaks, world.pauses, world.ticks,
            world.closed, world.refused,
            world.carries | world.turned << 1 | world.worker << 2 | world.failed << 3 |
                world.silent_outage << 4 | world.reached << 5 | world.peer_end.object.known() << 6);
  const bool lasts = world.outage.object.lasts();
  const bool tries = world.connection != Connection::kNone, asks = world.link != Link::kClosed;
  for (const uint64_t time : {world.tick.now, world.tick.alive, world.broke_at, tries ? world.tried_at : 0,
                              tries || asks ? 0 : world.ended_at, tries || asks ? 0 : world.idle_since,
                              world.same_since, world.closed > 0 ? world.closed_since : 0, world.gone_at,
                              lasts ? world.refused_at : 0, world.moved_at})
    bytes.put_time(time);
  return bytes.count();
}

std::string OutageModel::words(const World& world) const {
  const std::string at = std::to_string((world.tick.now - World::kStart) / kMs) + " ms: ";
  static constexpr const char* kReach[] = {"is being made", "is made", "is refused", "is broken"};
  switch (world.event) {
    case Event::kStart:
      return "start";
    case Event::kSilence:
      return at + "FAULT: the network carries nothing";
    case Event::kCarriesAgain:
      return at + "the network carries again";
    case Event::kPeerEnds:
      return at + "FAULT: the peer's process ends";
    case Event::kReset:
      return at + (world.peer == Peer::kDeaf ? "FAULT: the peer answers no more"
                                             : "FAULT: the connection is reset");
    case Event::kTurn:
      return at + "a turn; a connection that there was " + kReach[size_t(world.reach)] +
             (world.failed ? "; the channel fails" : "");
    case Event::kAnswered:
      return at + "the conversation goes on";
    case Event::kTurnedAway:
      return at + "the peer closes the connection, asked to go on";
    case Event::kGivenUp:
      return at + "the kernel gives up a connection that brings nothing";
    case Event::kWorkerReturns:
      return at + "a driver call returns";
    case Event::kTick:
      return at + "a tick has passed";
    case Event::kPause:
      return at + "this process was stopped";
  }
  return "?";
}

}  // namespace r2ccl::model
