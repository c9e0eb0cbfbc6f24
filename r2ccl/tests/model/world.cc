#include "r2ccl/tests/model/world.h"

#include <algorithm>

#include "r2ccl/tests/model/executor.h"

namespace r2ccl::model {
namespace {

// Timeouts that find nothing new in a row: two answers condemn a path, and one more shows that nothing else
// comes of it.
constexpr int kMostAsked = 3;

}  // namespace

// The sender has just begun to use its first path and its lanes, and the receiver is to hear of it.
World Model::initial() const {
  World world;
  Link& first = world.link[0];
  first.half[kSender] = {Life::kActive, Pair::kReady};
  first.half[kReceiver] = {Life::kStandby, Pair::kReady};
  Queue& words = world.to[kReceiver];
  words.item[words.count++] = {Say::kUse, 0, 1};
  for (int i = 0; i < bounds_.lanes; ++i) {
    Link& lane = world.link[size_t(1 + i)];
    lane.half[kSender] = {Life::kLane, Pair::kReady};
    lane.half[kReceiver] = {Life::kStandby, Pair::kReady};
    words.item[words.count++] = {Say::kLane, 0, world.next_path++};
  }
  return world;
}

size_t Model::expand(const World& world, std::vector<World>& next) const {
  World scratch = world;
  Executor now(bounds_, without_, scratch);  // for questions only
  size_t own = 0;
  const auto step = [&](const Step& what, auto&& act) {
    World& w = next.emplace_back(world);
    w.violation = nullptr;
    w.last = what;
    Executor executor(bounds_, without_, w);
    act(executor, w);
    executor.settle();
  };
  const auto own_step = [&](const Step& what, auto&& act) {
    ++own;
    step(what, act);
  };
  const auto u8 = [](int number) { return uint8_t(number); };
  const bool alive[2] = {!world.failed[kSender], !world.failed[kReceiver]};

  // --- the application and the data path
  if (alive[kSender] && now.may_post()) {  // every segment over any path that carries
    std::array<uint8_t, kMaxPaths> over{u8(now.active(kSender))};
    size_t ways = 1, all = 1;
    bool broken = now.link(over[0]).broken;
    for (int path = 1; path <= bounds_.paths; ++path)
      if (now.half(kSender, path).life == Life::kLane) {
        over[ways++] = u8(path);
        broken |= now.link(path).broken;
      }
    for (int segment = 0; segment < bounds_.segments; ++segment) all *= ways;
    for (const bool refused : {false, true})
      for (size_t pick = 0; pick < all && (!refused || (broken && bounds_.lanes > 0)); ++pick) {
        Step what{Event::kPost, kSender, over[0], u8(int(world.sender.ledger.next()))};
        what.refused = refused;
        bool some = !refused;
        size_t rest = pick;
        for (int segment = 0; segment < bounds_.segments; ++segment, rest /= ways) {
          what.on[size_t(segment)] = over[rest % ways];
          some |= now.link(over[rest % ways]).broken;
        }
        if (some) own_step(what, [=](Executor& s, World&) { s.post(what.on, what.refused); });
      }
  }
  if (alive[kReceiver] && now.may_receive())
    own_step({Event::kReceive, kReceiver, u8(now.active(kReceiver)), u8(int(world.receiver.ledger.next()))},
             [](Executor& s, World&) { s.receive(); });
  if (alive[kReceiver] && now.may_confirm())
    own_step(
        {Event::kConfirm, kReceiver, u8(now.active(kReceiver)), u8(int(world.receiver.ledger.received()))},
        [](Executor& s, World&) { s.confirm(); });
  for (const int end : {kSender, kReceiver})
    for (int path = 1; path <= bounds_.paths; ++path)
      if (alive[end] && now.carries(end, path) && now.may_poll(end, path))
        own_step({Event::kPoll, u8(end), u8(path)}, [=](Executor& s, World&) { s.poll(end, path); });

  // --- the NIC
  for (int path = 1; path <= bounds_.paths; ++path) {
    const Link& l = world.link[size_t(path - 1)];
    const Step at{Event::kNone, 0, u8(path)};
    const auto event = [&](Event e) {
      Step s = at;
      s.event = e;
      return s;
    };
    if (now.may_deliver(path)) {
      own_step(event(Event::kDeliver), [=](Executor& s, World&) { s.deliver(path, false); });
      if (world.lost_immediates < bounds_.lost_immediates)
        step(event(Event::kDeliverMute), [=](Executor& s, World& w) {
          ++w.lost_immediates;
          s.deliver(path, true);
        });
    }
    if (l.stale != 0 && l.half[kReceiver].pair == Pair::kReady)
      own_step(event(Event::kDeliverStale), [=](Executor& s, World&) { s.deliver_stale(path); });
    if (now.may_acknowledge(path)) {
      own_step(event(Event::kAcknowledge), [=](Executor& s, World&) { s.acknowledge(path, false); });
      if (world.lost_completions < bounds_.lost_completions)
        step(event(Event::kAcknowledgeMute), [=](Executor& s, World& w) {
          ++w.lost_completions;
          s.acknowledge(path, true);
        });
    }
    if (now.may_land(path)) {
      own_step(event(Event::kLand), [=](Executor& s, World&) { s.land(path, false); });
      if (world.lost_writes < bounds_.lost_writes)
        step(event(Event::kVanish), [=](Executor& s, World& w) {
          ++w.lost_writes;
          s.land(path, true);
        });
    }
    const Life life = l.half[kSender].life;
    if (!l.broken && world.breaks < bounds_.breaks &&
        (life == Life::kOpening || life == Life::kStandby || now.carries(kSender, path)))
      step(event(Event::kBreak), [=](Executor&, World& w) {
        ++w.breaks;
        w.link[size_t(path - 1)].broken = true;
      });
    for (const int end : {kSender, kReceiver}) {
      const Half& h = l.half[end];
      Step here = at;
      here.end = u8(end);
      if (now.carries(end, path) && !h.frozen && world.frozen < bounds_.frozen) {
        here.event = Event::kFreeze;
        step(here, [=](Executor&, World& w) {
          ++w.frozen;
          w.link[size_t(path - 1)].half[end].frozen = true;
        });
      }
      if (now.carries(end, path) && !h.frozen && !h.gone && world.gone < bounds_.gone) {
        here.event = Event::kRemove;
        step(here, [=](Executor&, World& w) {
          ++w.gone;
          w.link[size_t(path - 1)].half[end].gone = true;
          w.link[size_t(path - 1)].broken = true;
        });
      }
      if (h.gone && h.pair != Pair::kDead && !now.carries(end, path)) {
        here.event = Event::kStopped;
        own_step(here, [=](Executor& s, World&) { s.stopped_by_kernel(end, path); });
      }
      if (h.life == Life::kBuried && !h.gone) {
        here.event = Event::kBury;
        own_step(here, [=](Executor&, World& w) {
          w.link[size_t(path - 1)].half[end].life = Life::kGone;
          w.link[size_t(path - 1)].half[end].pair = Pair::kDead;
        });
      }
      if (h.life == Life::kStandby && alive[end] && (l.broken || world.early < bounds_.early)) {
        here.event = l.broken ? Event::kGiveUp : Event::kGiveUpForNothing;
        const bool fault = !l.broken;
        const auto give_up = [=](Executor& s, World& w) {
          if (fault) ++w.early;
          s.drop(end, path, true);
        };
        if (fault)
          step(here, give_up);
        else
          own_step(here, give_up);
      }
    }
  }

  // --- migration
  for (const int end : {kSender, kReceiver}) {
    if (!alive[end]) continue;
    const int active = now.running(end) ? now.active(end) : 0;
    for (int path = 1; path <= bounds_.paths && active != 0; ++path) {
      if (!now.carries(end, path)) continue;
      const bool condemned = now.half(end, path).condemned;
      if (condemned)
        own_step({Event::kLeaveCondemned, u8(end), u8(path)},
                 [=](Executor& s, World&) { s.leave(end, path); });
      else if (world.link[size_t(path - 1)].broken && now.open_messages(end) && without_ != Rule::kWatchdog)
        own_step({Event::kNotice, u8(end), u8(path)}, [=](Executor& s, World&) { s.leave(end, path); });
      if (world.early < bounds_.early && !condemned)
        step({Event::kNoReason, u8(end), u8(path)}, [=](Executor& s, World& w) {
          ++w.early;
          s.leave(end, path);
        });
      if (const int target = now.in_life(kSender, Life::kStandby);
          end == kSender && path == active && target != 0 && world.planned < bounds_.planned)
        step({Event::kPlan, u8(end), u8(path), u8(target)}, [=](Executor& s, World& w) {
          ++w.planned;
          s.leave(end, path, target);
        });
    }
    for (int path = 1; path <= bounds_.paths && !now.running(end); ++path) {  // what asynchronous events say
      if (!now.carries(end, path) || now.half(end, path).condemned) continue;
      const bool broken = world.link[size_t(path - 1)].broken;
      if (broken || world.early < bounds_.early)
        step({broken ? Event::kCondemn : Event::kCondemnForNothing, u8(end), u8(path)},
             [=](Executor& s, World& w) {
               if (!broken) ++w.early;
               s.condemn(end, path);
             });
    }
    if (world.end(end).phase() == Phase::kFencing) {
      const int path = int(world.end(end).leaving());
      const Half& h = world.link[size_t(path - 1)].half[end];
      const Step at{Event::kFenced, u8(end), u8(path)};
      if (h.life == Life::kFencing && h.gone) {
        own_step({Event::kCannotFence, u8(end), u8(path)}, [=](Executor& s, World&) { s.cannot_fence(end); });
      } else if (h.life == Life::kFencing && !h.frozen) {
        own_step(at, [=](Executor& s, World&) { s.fence_done(end); });
      } else if (h.life == Life::kFencing && bounds_.destroy_fences) {
        own_step({Event::kDestroyed, u8(end), u8(path)},
                 [=](Executor& s, World&) { s.fence_destroyed(end); });
      } else if (h.life == Life::kFencing) {
        own_step({Event::kUnfenceable, u8(end), u8(path)}, [=](Executor& s, World&) { s.fail(end, true); });
      }
    }
  }
  if (alive[kSender] && world.end(kSender).phase() == Phase::kSettling) {
    if (without_ == Rule::kOneFence)
      own_step({Event::kNeither, kSender}, [](Executor& s, World&) { s.fail(kSender, false); });
    else
      own_step({Event::kSettle, kSender, u8(int(world.end(kSender).leaving()))},
               [](Executor& s, World&) { s.settle_fence(); });
  }
  if (alive[kSender] && world.end(kSender).phase() == Phase::kUnfenced)
    step({Event::kNeither, kSender}, [](Executor& s, World&) { s.fail(kSender, true); });
  if (alive[kSender]) {
    const bool choosing = world.end(kSender).phase() == Phase::kChoosing;
    const int standby = now.in_life(kSender, Life::kStandby);
    const bool reopens = without_ == Rule::kNewQueuePairs && now.in_life(kSender, Life::kGone) != 0;
    const bool can_open = world.opening == 0 && standby == 0 && (world.next_path <= bounds_.paths || reopens);
    std::array<uint8_t, kMaxPaths> choice{};
    size_t choices = 0;
    if (const int path = now.destination()) {
      choice[choices++] = u8(path);
    } else {
      for (int path = 1; path <= bounds_.paths; ++path)
        if (const Life life = now.half(kSender, path).life; (life == Life::kStandby || life == Life::kLane) &&
                                                            !now.link(path).broken &&
                                                            !now.half(kSender, path).condemned)
          choice[choices++] = u8(path);
    }
    if (choosing && choices == 0 && standby != 0) choice[choices++] = 0;
    if (choosing && choices > 0) {
      for (size_t i = 0; i < choices; ++i) {
        Step what{Event::kChoose, kSender, choice[i]};
        unsigned picks = 1;
        for (unsigned pick = 0; pick < picks; ++pick)
          own_step(what, [&](Executor& s, World& w) {
            s.choose(what.path, pick);
            picks = s.picks();
            w.last.on = s.picked();
          });
      }
    } else if (choosing && can_open)
      own_step({Event::kOpen, kSender}, [](Executor& s, World&) { s.open(); });
    else if (choosing && world.opening == 0 && now.misses_a_path())
      own_step({Event::kNoPath, kSender},
               [this](Executor& s, World&) { s.fail(kSender, bounds_.runs_out || s.all_broken()); });
    else if (bounds_.standby && can_open && now.running(kSender))
      own_step({Event::kOpen, kSender}, [](Executor& s, World&) { s.open(); });
    for (int path = 1; path <= bounds_.paths; ++path) {
      if (now.may_start_lane(path))
        step({Event::kStartLane, kSender, u8(path)}, [=](Executor& s, World&) { s.start_lane(path); });
      if (now.may_rest(path))
        step({Event::kRestLane, kSender, u8(path)}, [=](Executor& s, World&) { s.rest_lane(path); });
    }
  }

  // --- the control connection
  for (const int end : {kSender, kReceiver}) {
    const Queue& queue = world.to[end];
    const int reach = without_ == Rule::kOrder ? queue.count : (queue.count > 0 ? 1 : 0);
    for (int at = 0; at < reach; ++at) {
      const Control message = queue.item[size_t(at)];
      const auto take = [=](World& w) {
        Queue& q = w.to[end];
        for (int i = at; i + 1 < q.count; ++i) q.item[size_t(i)] = q.item[size_t(i + 1)];
        q.item[--q.count] = {};
      };
      own_step({Event::kHear, u8(end), message.path, 0, message}, [=](Executor& s, World& w) {
        take(w);
        s.hear(end, message);
      });
      if (world.duplicates < bounds_.duplicates && world.again.say == Say::kNothing &&
          message.say != Say::kOpen && message.say != Say::kOpened && message.say != Say::kFail &&
          (message.say != Say::kRest || without_ == Rule::kRestOnce))
        step({Event::kHear, u8(end), message.path, 1, message}, [=](Executor& s, World& w) {
          ++w.duplicates;
          w.again = message;
          w.again_to = u8(end);
          take(w);
          s.hear(end, message);
        });
    }
  }
  if (world.again.say != Say::kNothing)
    own_step({Event::kHearAgain, world.again_to, world.again.path, 0, world.again},
             [](Executor& s, World& w) {
               const Control message = w.again;
               w.again = {};
               s.hear(w.again_to, message);
             });

  // --- timeouts: when nothing else happens; or too early, which counts as a fault
  const bool quiet = own == 0, hasty = world.early < bounds_.early;
  const auto timeout = [&](const Step& what, auto&& act) {
    if (quiet)
      own_step(what, act);
    else
      step(what, [&](Executor& s, World& w) {
        ++w.early;
        act(s, w);
      });
  };
  if ((quiet || hasty) && alive[kSender] && now.may_remind() && world.asked < kMostAsked)
    timeout({Event::kRemind, kSender}, [](Executor& s, World& w) {
      ++w.asked;
      s.remind();
    });
  if ((quiet || hasty) && alive[kReceiver] && now.may_poke() &&
      world.poked < 1 + bounds_.copies + bounds_.lost_writes)
    timeout({Event::kPoke, kReceiver, u8(now.active(kReceiver))}, [](Executor& s, World& w) {
      ++w.poked;
      s.poke();
    });
  for (int path = 1; path <= bounds_.paths; ++path)
    if (quiet && alive[kSender] && now.stands_still(path))
      own_step({Event::kStandstill, kSender, u8(path)}, [=](Executor& s, World&) { s.leave(kSender, path); });
  return own;
}

const char* Model::at_end(const World& world) const {
  if (world.failed[kSender] || world.failed[kReceiver])
    return world.failed[kSender] && world.failed[kReceiver]
               ? nullptr
               : "one end has failed, and the other waits for ever";
  const auto all = uint8_t((1u << bounds_.messages) - 1);
  if (world.completed != all || world.given_back != all)
    return "messages are open, and nothing happens any more";
  const bool dead = bounds_.runs_out || std::all_of(world.link.begin(), world.link.begin() + bounds_.paths,
                                                    [](const Link& link) { return link.broken; });
  for (const int e : {kSender, kReceiver})
    if (const Phase phase = world.end(e).phase();
        phase != Phase::kRunning && (!dead || phase == Phase::kFencing))
      return "a migration does not end";
  for (int path = 1; path <= bounds_.paths && bounds_.lanes > 0; ++path) {
    const Half(&half)[2] = world.link[size_t(path - 1)].half;
    const auto carries = [&](int end) {
      return half[end].life == Life::kActive || half[end].life == Life::kLane;
    };
    if (carries(kSender) && !carries(kReceiver))
      return "the sender uses a path that the receiver does not look at";
    if (half[kSender].life == Life::kFencing || half[kReceiver].life == Life::kFencing)
      return "half of a path is left behind";
  }
  return nullptr;
}

size_t Model::bytes(const World& world, uint8_t* out) const {
  uint8_t* at = out;
  const auto kept = [&](uint64_t message) { return model::kept(bounds_, without_, world, message); };
  const auto put = [&at](auto value) { *at++ = uint8_t(value); };
  for (const int e : {kSender, kReceiver}) {
    const MigrationEnd& end = world.end(e);
    const bool running = end.phase() == Phase::kRunning;
    put(uint8_t(end.phase()) | world.failed[e] << 3);
    put(running ? 0 : unsigned(end.own_fence()) | unsigned(end.peer_fence()) << 2);
    put(end.epoch());
    put(running ? 0 : end.leaving());
    put(running ? 0 : end.target());
    const Queue& queue = world.to[e];
    put(queue.count);
    for (int i = 0; i < queue.count; ++i) {
      const Control& m = queue.item[size_t(i)];
      for (const auto value : {uint8_t(m.say), m.epoch, m.path, m.number}) put(value);
      for (const uint8_t value : m.segments) put(value);
      if (bounds_.gone > 0) put(m.cannot);
    }
  }
  put(world.sender.ledger.next());
  put(world.sender.ledger.confirmed());
  if (bounds_.lanes > 0) {
    put(world.unwritten);
    put(world.rests);
    const auto segments = uint64_t(bounds_.segments);
    for (uint64_t message = 0; message < world.sender.ledger.next(); ++message) {
      uint8_t completed = 0;  // asked of the ledger itself: would the message be done without this one?
      for (uint64_t segment = 0; segment < segments && kept(message); ++segment) {
        auto rest = world.sender.ledger;
        for (uint64_t other = 0; other < segments; ++other)
          if (other != segment) rest.completed(message, uint32_t(other));
        completed |= uint8_t(rest.done(message, false) << segment);
      }
      put(completed);
      for (uint64_t segment = 0; segment < segments; ++segment)
        put(world.carrier[size_t(message * segments + segment)]);
    }
  }
  for (uint64_t message = 0; message < world.sender.ledger.next(); ++message)
    put(kept(message) ? 0x80 | world.sender.ledger.missing(message) : 0);
  put(world.receiver.ledger.next());
  put(world.receiver.ledger.received());
  for (uint64_t message = world.receiver.ledger.received(); message < world.receiver.ledger.next(); ++message)
    put(world.receiver.ledger.segments(message));
  put(world.sender.reminder().asked() | world.sender.reminder().lacked() << 1);
  put(world.sender.reminder().reported());
  put(world.sender.reminder().lacked() ? world.sender.reminder().received() : 0);
  put(world.connected);
  put(world.given_back);
  put(world.completed);
  put(world.in_memory);
  put(world.receiver.told);
  for (const uint8_t value : world.ring) put(value);
  put(world.sender.report_first());
  for (const uint16_t value : world.sender.report()) put(value);
  put(world.opening);
  put(world.next_path);
  put(world.sender.awaited() | world.receiver.has_asked() << 1);
  put(world.asked);
  put(world.poked);
  put(world.again.say);
  if (world.again.say != Say::kNothing) {
    for (const auto value : {world.again.epoch, world.again.path, world.again.number, world.again_to})
      put(value);
    for (const uint8_t value : world.again.segments) put(value);
    put(world.again.cannot);
  }
  for (const auto value : {world.breaks, world.lost_completions, world.lost_immediates, world.lost_writes,
                           world.early, world.planned, world.duplicates, world.frozen, world.gone})
    put(value);
  for (int path = 1; path <= bounds_.paths; ++path) {
    const Link& l = world.link[size_t(path - 1)];
    for (const Half& h : l.half)
      put(uint8_t(h.life) | uint8_t(h.pair) << 3 | h.frozen << 6 | h.condemned << 7);
    put(l.broken | l.stands_still << 1 | l.expired << 2 | l.half[kSender].gone << 3 |
        l.half[kReceiver].gone << 4);
    for (const auto value : {l.posted, l.delivered, l.acknowledged, l.taken[0], l.taken[1],
                             l.lost_completions, l.lost_immediates, l.stale, l.writes})
      put(value);
    for (int i = 0; i < l.posted; ++i) put(l.queue >> 4 * i & 0xf);
    for (int i = 0; i < l.writes; ++i) put(l.write[size_t(i)]);
  }
  return size_t(at - out);
}

}  // namespace r2ccl::model
