// SPDX-License-Identifier: Apache-2.0
// What may happen next: to NICs, the application, the control connection, and by time-outs.
#include <algorithm>

#include "r2ccl/tests/model/executor.h"

namespace r2ccl::model {
namespace {

// Timeouts that find nothing new in a row: two answers mark a path failed, and one more shows that nothing
// else comes of it.
constexpr int kMostAsked = 3;

}  // namespace

/// The steps that are possible in a state, in the same order every time.
class Model::Expansion {
 public:
  Expansion(const Model& model, const World& state, std::vector<World>& out)
      : bounds_(model.bounds_), without_(model.without_), world(state), next(out), scratch_(state) {}
  size_t all() {
    application();
    nics();
    migration();
    closing();
    control();
    timeouts();
    return own;
  }

 private:
  template <typename Act>
  void step(const Step& what, Act&& act) {
    World& w = next.emplace_back(world);
    w.violation = nullptr;
    w.last = what;
    Executor executor(bounds_, without_, w);
    act(executor, w);
    executor.settle();
  }
  /// One that happens by itself.
  template <typename Act>
  void own_step(const Step& what, Act&& act) {
    ++own;
    step(what, act);
  }
  static uint8_t u8(int number) { return uint8_t(number); }
  void application();
  void nics();
  void migration();
  void choice();
  void closing();
  void control();
  void timeouts();

  const Bounds& bounds_;
  const Rule without_;
  const World& world;
  std::vector<World>& next;
  World scratch_;
  Executor now{bounds_, without_, scratch_};  // for questions only
  size_t own = 0;
  const bool alive[2] = {now.is_open(kSender), now.is_open(kReceiver)};
  const bool goes_on[2] = {now.goes_on(kSender), now.goes_on(kReceiver)};
};

size_t Model::expand(const World& world, std::vector<World>& next) const {
  return Expansion(*this, world, next).all();
}

void Model::Expansion::application() {
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
}

void Model::Expansion::nics() {
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
      if (h.life == Life::kRetired && !h.gone && !(h.frozen && !bounds_.destroy_fences)) {
        here.event = Event::kRetire;
        own_step(here, [=](Executor&, World& w) {
          w.link[size_t(path - 1)].half[end].life = Life::kGone;
          w.link[size_t(path - 1)].half[end].pair = Pair::kDead;
        });
      }
      if (h.life == Life::kStandby && goes_on[end] && (l.broken || world.early < bounds_.early)) {
        here.event = l.broken ? Event::kGiveUp : Event::kGiveUpForNothing;
        const bool fault = !l.broken;
        const auto give_up = [=](Executor& s, World& w) {
          if (fault) ++w.early;
          fault ? s.path_failed(end, path) : s.nic_lost(end, path);
        };
        if (fault)
          step(here, give_up);
        else
          own_step(here, give_up);
      }
    }
  }
}

void Model::Expansion::migration() {
  for (const int end : {kSender, kReceiver}) {
    if (!goes_on[end]) continue;
    const int active = now.running(end) ? now.active(end) : 0;
    for (int path = 1; path <= bounds_.paths && active != 0; ++path) {
      if (!now.carries(end, path)) continue;
      const bool failed = now.half(end, path).failed;
      if (failed)
        own_step({Event::kLeaveFailed, u8(end), u8(path)}, [=](Executor& s, World&) { s.leave(end, path); });
      else if (world.link[size_t(path - 1)].broken && now.open_messages(end) && without_ != Rule::kWatchdog)
        own_step({Event::kNotice, u8(end), u8(path)}, [=](Executor& s, World&) { s.notice(end, path); });
      if (world.early < bounds_.early && !failed)
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
      if (!now.carries(end, path) || now.half(end, path).failed) continue;
      const bool broken = world.link[size_t(path - 1)].broken;
      if (broken || world.early < bounds_.early)
        step({broken ? Event::kMarkFailed : Event::kMarkFailedForNothing, u8(end), u8(path)},
             [=](Executor& s, World& w) {
               if (!broken) ++w.early;
               s.path_failed(end, path);
             });
    }
    if (world.end(end).phase() == Phase::kFencing) {
      const int path = int(world.end(end).leaving());
      if (world.link[size_t(path - 1)].half[end].life == Life::kFencing)
        for (const bool pretends : {false, true})
          if (!pretends || now.half(end, path).gone)
            own_step({Event::kFence, u8(end), u8(path)},
                     [=](Executor& s, World&) { s.look_at_fence(end, pretends); });
    }
  }
  if (goes_on[kSender] && world.end(kSender).phase() == Phase::kUnfenced)
    step({Event::kNeither, kSender}, [](Executor& s, World&) { s.give_fence_up(); });
  if (goes_on[kSender]) {
    if (world.end(kSender).phase() == Phase::kChoosing)
      choice();
    else if (bounds_.standby && now.running(kSender) && now.may_open())
      own_step({Event::kOpen, kSender}, [](Executor& s, World&) { s.open(); });
    for (int path = 1; path <= bounds_.paths; ++path) {
      if (now.may_start_lane(path))
        step({Event::kStartLane, kSender, u8(path)}, [=](Executor& s, World&) { s.start_lane(path); });
      if (now.may_rest(path))
        step({Event::kRestLane, kSender, u8(path)}, [=](Executor& s, World&) { s.rest_lane(path); });
    }
  }
}

// The sender has both fences. Of the probes that may be answered any may be the first; of a path that is
// broken none is.
void Model::Expansion::choice() {
  const auto chosen = [this](int answered, bool& changes) {
    World trial = world;
    Executor executor(bounds_, without_, trial);
    const Choice choice = executor.choose(answered, 0);
    changes = executor.changed();
    return choice;
  };
  const auto offer = [this](int answered) {
    unsigned picks = 1;
    for (unsigned pick = 0; pick < picks; ++pick)
      own_step({Event::kChoose, kSender, u8(answered)}, [&](Executor& s, World& w) {
        if (s.choose(answered, pick) == Choice::kUse) w.last.path = u8(s.active(kSender));
        picks = s.picks();
        w.last.on = s.picked();
      });
  };
  bool changes = false, some = false, ignored = false;
  const Choice unanswered = chosen(0, changes);
  if (unanswered == Choice::kUse) return offer(0);
  for (int path = 1; path <= bounds_.paths; ++path)
    if (!now.link(path).broken && chosen(path, ignored) == Choice::kUse) some = true, offer(path);
  if (some) return;
  if (changes) return offer(0);
  if (unanswered == Choice::kOpen && world.opening == 0 && now.search_fails())
    own_step({Event::kNoPath, kSender}, [this](Executor& s, World&) {
      (void)s.search_fails();
      s.fail(kSender, bounds_.runs_out || s.all_broken());
    });
}

// What the programs do at the end, and what the ends wait for then.
void Model::Expansion::closing() {
  for (const int end : {kSender, kReceiver})
    if (now.may_close(end)) own_step({Event::kClose, u8(end)}, [=](Executor& s, World&) { s.close(end); });
  if (now.may_ask_at_end() && world.asked < kMostAsked)
    own_step({Event::kSettleAsk, kSender}, [](Executor& s, World&) { s.ask_at_end(); });
  if (now.may_leave_for_nic())
    own_step({Event::kLeaveForNic, kSender}, [](Executor& s, World&) { s.leave_for_nic(); });
  if (now.nothing_is_sent())
    own_step({Event::kNothingSent, kSender}, [](Executor&, World& w) { w.sender.nothing_is_sent(); });
}

void Model::Expansion::control() {
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
          message.say != Say::kClose && (message.say != Say::kRest || without_ == Rule::kRestOnce))
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
}

// When nothing else happens; or too early, which counts as a fault.
void Model::Expansion::timeouts() {
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
  if ((quiet || hasty) && goes_on[kSender] && now.may_query_ack() && world.asked < kMostAsked)
    timeout({Event::kAckQuery, kSender}, [](Executor& s, World& w) {
      ++w.asked;
      s.query_ack();
    });
  if ((quiet || hasty) && goes_on[kReceiver] && now.may_request_retransmit() &&
      world.requested < 1 + bounds_.copies + bounds_.lost_writes)
    timeout({Event::kRequestRetransmit, kReceiver, u8(now.active(kReceiver))}, [](Executor& s, World& w) {
      ++w.requested;
      s.request_retransmit();
    });
  for (int path = 1; path <= bounds_.paths; ++path)
    if (quiet && goes_on[kSender] && now.stands_still(path))
      own_step({Event::kStuckQueuePair, kSender, u8(path)},
               [=](Executor& s, World&) { s.leave_standing_still(path); });
  if (own != 0) return;  // the longest of all
  if (now.settles()) own_step({Event::kSettled, kSender}, [](Executor& s, World&) { s.settled(); });
  for (const int end : {kSender, kReceiver})
    if (now.lacks(end))
      own_step({Event::kLacks, u8(end)}, [=](Executor& s, World&) { s.give_up_lacking(end); });
}

}  // namespace r2ccl::model
