// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/executor.h"

#include <algorithm>
#include <utility>

#include "r2ccl/protocol/choice.h"
#include "r2ccl/protocol/hearing.h"
#include "r2ccl/protocol/search.h"
#include "r2ccl/protocol/watchdog.h"

namespace r2ccl::model {
namespace {

constexpr uint64_t kFenceBound = 10, kRemovalBound = 20, kFailBound = 10;  // of the model's clock

PathState state_of(Life life) {
  switch (life) {
    case Life::kOpening:
      return PathState::kOpening;
    case Life::kActive:
      return PathState::kActive;
    case Life::kLane:
      return PathState::kLane;
    case Life::kFencing:
      return PathState::kFencing;
    default:
      return PathState::kStandby;
  }
}

}  // namespace

/// How an end of the model carries out what the protocol decides: the host of channel_end.h, sending.h,
/// receiving.h.
struct Model::Executor::Actions {
  Executor& s;
  int end;

  Half& half(uint32_t path) const { return s.half(end, int(path)); }
  bool holds(Rule rule) const { return s.holds(rule); }
  std::optional<PathState> state(uint32_t path) const {
    const Life life = half(path).life;
    if (life == Life::kNever || life == Life::kRetired || life == Life::kGone) return std::nullopt;
    return state_of(life);
  }
  bool marked_failed(uint32_t path) const { return half(path).failed; }
  bool connected() const { return end == kSender || s.w.connected; }
  std::vector<uint32_t> paths() const {
    std::vector<uint32_t> all;
    for (int path = 1; path <= s.bounds_.paths; ++path)
      if (state(uint32_t(path))) all.push_back(uint32_t(path));
    return all;
  }
  // Each path has NICs of its own, which have its number.
  std::vector<uint32_t> paths_on(int nic) const {
    return state(uint32_t(nic)) ? std::vector{uint32_t(nic)} : std::vector<uint32_t>();
  }
  std::vector<uint32_t> paths_to(int nic) const { return paths_on(nic); }
  bool opening(uint32_t path) const { return end == kSender && s.w.opening == path; }
  uint32_t opening_over(int nic) const { return opening(uint32_t(nic)) ? uint32_t(nic) : 0; }
  bool another_stands_by(uint32_t path) const {
    for (int other = 1; other <= s.bounds_.paths; ++other)
      if (other != int(path) && s.half(end, other).life == Life::kStandby) return true;
    return false;
  }
  uint32_t active() const { return uint32_t(s.active(end)); }
  bool ready() const { return s.running(end) && s.active(end) != 0 && !s.suspected(end); }
  bool acknowledges() const { return holds(Rule::kStrictAck); }
  bool peer_copies() const { return s.bounds_.copies; }
  static constexpr bool room(uint32_t) { return true; }
  static constexpr bool flushing(uint32_t) { return false; }
  static constexpr bool unflushed() { return false; }
  static constexpr uint32_t posted() { return 0; }
  static constexpr uint32_t completed() { return 0; }
  std::vector<uint32_t> lanes() const {
    std::vector<uint32_t> all = paths();
    std::erase_if(all, [this](uint32_t path) { return state(path) != PathState::kLane; });
    return all;
  }
  template <typename F>
  auto owning(F&& f) const {
    return f();
  }

  bool may_leave() const { return s.goes_on(end); }
  void leaving(uint32_t, uint32_t) const {}
  static constexpr void told(uint32_t) {}
  static constexpr bool begin_fence(uint32_t) { return true; }
  static constexpr void take_out(uint32_t) {}
  void stop(uint32_t path) const { s.start_fence(end, int(path)); }
  void fence_given_up(uint32_t path) const { s.fence_given_up(end, int(path)); }
  void prove_anew(uint32_t) const {}
  void mark(uint32_t path) const { half(path).failed = true; }
  void drop(uint32_t path, bool tell) const { s.drop(end, int(path), tell); }
  void forget(uint32_t path) const { half(path).life = Life::kRetired; }
  void opening_refused(uint32_t path) const { s.drop(end, int(path), true); }
  void lane(uint32_t path) const { half(path).life = Life::kLane; }
  static constexpr bool is_over(uint32_t) { return true; }  // the sender's conditions: may_rest()
  void stand_by(uint32_t path) const { half(path).life = Life::kStandby; }
  void activate(uint32_t path, bool, bool) const { s.activate(end, int(path)); }
  void carries_on(bool moved);
  static constexpr void look_for_marked() {}
  bool any_marked() const { return s.suspected(end); }
  bool failed() const { return s.w.failed[end]; }
  static constexpr bool resume() { return true; }
  static constexpr void carried(uint32_t, bool) {}
  void send_migrate(uint32_t path) const { say(Say::kMigrate, path, true); }
  void send_nic_lost(int nic) const { say(Say::kNic, uint32_t(nic), false); }
  void send_drop(uint32_t path) const { say(Say::kDrop, path, false); }
  void send_use(uint32_t path) const { say(Say::kUse, path, true); }
  void send_lane(uint32_t path) const { say(Say::kLane, path, false); }
  void send_rest(uint32_t path) const { say(Say::kRest, path, false); }
  void send_fenced(bool stopped) const { s.send_fenced(end, stopped); }
  void send_ack_query() const { say(Say::kAckQuery, 0, false); }
  void send_wait(uint64_t received) const { s.say(kSender, {Say::kAsk, 0, 0, uint8_t(received)}); }
  void send_received(uint64_t received, uint16_t segments) const {
    s.say(kSender, {Say::kReceived, 0, 0, uint8_t(received), {uint8_t(segments)}});
  }
  void look() const { look(true); }
  void look(bool everywhere) const {  // CTS entries and ACKs are in the ledger when they land
    for (int path = 1; path <= s.bounds_.paths && everywhere; ++path)
      if (s.carries(end, path)) s.poll(end, path);
  }
  void write_cts(uint64_t message) const { s.write(s.link(s.active(end)), line(int(message), 0)); }
  void write_ack(bool) const { s.confirm(); }
  void say(Say what, uint32_t path, bool with_epoch) const {
    s.say(1 - end, {what, uint8_t(with_epoch ? s.w.end(end).epoch() : 0), uint8_t(path)});
  }
};

/// What sent.h asks of the messages.
struct Model::Executor::Messages {
  Executor& s;
  bool holds(Rule rule) const { return s.holds(rule); }
  bool acknowledged() const { return holds(Rule::kStrictAck); }
  bool known(uint64_t message) const { return kept(message); }
  bool kept(uint64_t message) const { return message < s.w.sender.ledger.next() && s.kept(int(message)); }
  uint32_t segments(uint64_t) const { return uint32_t(s.bounds_.segments); }
  uint32_t path_of(uint64_t message, uint32_t segment) const {
    return s.w.carrier[size_t(s.index_of(int(message), int(segment)))];
  }
  bool carries(uint32_t path) const { return path != 0 && s.carries(kSender, int(path)); }
  bool written(uint64_t message, uint32_t segment) const {
    return !(s.w.unwritten >> s.index_of(int(message), int(segment)) & 1);
  }
  /// Over any path that carries, one that is broken may refuse it: `pick_` says which of all ways.
  void send_again(uint64_t message, uint32_t segment) const {
    struct Way {
      int path;
      bool refused;
    };
    std::array<Way, 2 * kMaxPaths> over{};
    unsigned ways = 0;
    const auto add = [&](int to) {
      over[ways++] = {to, false};
      if (s.bounds_.lanes > 0 && s.link(to).broken) over[ways++] = {to, true};
    };
    add(s.active(kSender));
    for (int lane = 1; lane <= s.bounds_.paths; ++lane)
      if (s.half(kSender, lane).life == Life::kLane && !s.half(kSender, lane).failed) add(lane);
    const int index = s.index_of(int(message), int(segment));
    const Way& way = over[s.pick_ % ways];
    s.pick_ /= ways, s.picks_ *= ways;
    s.picked_[size_t(index)] = uint8_t(way.path);
    s.put(index, way.path, way.refused);
  }
  void cannot_send(uint64_t) const {
    s.violate("a message that the receiver lacks was given back, and cannot be sent again");
  }
};

// --- what the protocol is asked

bool Model::Executor::may_rest(int path) {
  const Link& l = link(path);
  if (!running(kSender) || suspected(kSender) || w.rests >= bounds_.rests ||
      half(kSender, path).life != Life::kLane)
    return false;
  return w.sender.is_over(Messages{*this}, uint32_t(path), l.taken[kSender] == l.posted && !l.stands_still);
}

/// Behind both fences: the host of choice.h and search.h, too.
struct Model::Executor::SearchActions : Actions {
  int answered = 0;

  bool usable(uint32_t) const { return true; }
  ProbeSight probe(uint32_t path) const {
    if (int(path) == answered) return ProbeSight::kAnswered;
    return s.link(int(path)).broken ? ProbeSight::kFailed : ProbeSight::kAwaited;
  }
  bool opens() const { return s.w.opening != 0; }
  void prove(uint32_t) const {}
  void unanswered(uint32_t) const { s.changed_ = true; }
  void open() const {
    if (!s.may_open()) return;
    s.changed_ = true;
    s.open();
  }
  bool peer_owes() const { return opens(); }
  bool misses_a_path() {
    return s.w.sender.misses_a_path(*this,
                                    s.open_messages(kSender) || int(s.w.sender.ledger.next()) < s.messages());
  }
  static CallSight fence_call() { return {}; }
  static CallSight opening_call() { return {}; }
};

Choice Model::Executor::choose(int answered, unsigned pick) {
  pick_ = pick;
  changed_ = false;
  SearchActions actions{{*this, kSender}, answered};
  return choose_path(w.end(kSender), actions);
}

bool Model::Executor::may_open() {
  const bool reopens = !holds(Rule::kNewQueuePairs) && in_life(kSender, Life::kGone) != 0;
  return w.opening == 0 && in_life(kSender, Life::kStandby) == 0 && (w.next_path <= bounds_.paths || reopens);
}

bool Model::Executor::search_fails() {
  SearchActions actions{{*this, kSender}};
  PathSearch search(kFailBound, 0);
  search.begin(1, 1);
  for (uint64_t alive = 1; alive <= 1 + kFailBound; ++alive)
    if (search.look(actions, w.end(kSender).phase(), alive) == SearchAct::kFail)
      violate("the search fails early");
  return search.look(actions, w.end(kSender).phase(), 2 + kFailBound) == SearchAct::kFail;
}

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSuspectAfter = 10 * kMs, kStuckAfter = 100 * kMs;

}  // namespace

/// An end that waits, and nothing moves: the host of watchdog.h. Notes what the watchdog wants done.
struct Model::Executor::WatchActions : Actions {
  int silent = 0;           // the path whose probes are not answered; those of all others are
  int still = 0;            // the path whose queue pair stands still
  uint32_t left = 0;        // for its silence
  uint32_t left_still = 0;  // … or because it stands still
  bool asks = false, patient = false;
  std::array<bool, kMaxPaths + 1> probed{};

  static constexpr uint64_t progress() { return 0; }
  static constexpr bool polled_in_vain() { return false; }
  static constexpr bool waits() { return true; }
  static constexpr bool awaited() { return false; }
  ProbeSight probe(uint32_t path) const {
    if (!probed[path]) return ProbeSight::kNone;
    return int(path) == silent ? ProbeSight::kFailed : ProbeSight::kAnswered;
  }
  static constexpr uint64_t probe_age(uint32_t) { return 0; }
  uint32_t stands_still() const { return uint32_t(still); }
  uint64_t work_ns(uint32_t) const { return 0; }
  static constexpr bool whole_packets_pass(uint32_t, uint64_t) { return false; }
  static constexpr bool marked_failed() { return false; }
  using Actions::marked_failed;

  static constexpr void moved() {}
  void rests() { s.violate("the watchdog rests although somebody waits"); }
  using Actions::look;
  bool look() const { return still != 0; }
  void begin_probe(uint32_t path) { probed[path] = true; }
  void begin_full_probe(uint32_t path) { probed[path] = true; }
  void forget_probe(uint32_t path) { probed[path] = false; }
  static constexpr void hear(uint32_t) {}
  static constexpr bool still_carries(uint32_t) { return true; }
  void leave_silent(uint32_t path) { left = path; }
  void leave_standing_still(uint32_t path) { left_still = path; }
  static constexpr void slow_peer(uint64_t) {}
  void request_retransmit(bool is_patient) { asks = true, patient = is_patient; }
};

// From the last progress until the watchdog has said what is `wanted`. False: it never does.
template <typename Wanted>
bool Model::Executor::watch(WatchActions& host, Wanted&& wanted) {
  Watchdog watchdog(kSuspectAfter, kStuckAfter);
  watchdog.carries_on(0);
  for (uint64_t alive = kMs; alive <= 10 * kStuckAfter; alive += kMs) {
    watchdog.tick(alive);
    watchdog.look(host);
    if (wanted(host)) return true;
    if (host.left != 0 || host.left_still != 0) return false;
  }
  return false;
}

void Model::Executor::query_ack() {
  WatchActions host{{*this, kSender}};
  if (!watch(host, [](const WatchActions& seen) { return seen.asks; }))
    return violate("the sender never asks");
  w.sender.waited(host);
}

// Until it has been patient, and repeats what the sender may lack.
void Model::Executor::request_retransmit() {
  WatchActions host{{*this, kReceiver}};
  const bool patient = watch(host, [&](WatchActions& seen) {
    if (!std::exchange(seen.asks, false)) return false;
    w.receiver.waited(static_cast<Actions&>(seen), seen.patient);
    return seen.patient;
  });
  if (!patient) violate("the receiver never repeats");
}

void Model::Executor::notice(int end, int path) {
  WatchActions host{{*this, end}, path};
  if (!watch(host, [](const WatchActions& seen) { return seen.left != 0; }))
    return violate("silence is never suspicious");
  leave(end, int(host.left));
}

void Model::Executor::leave_standing_still(int path) {
  WatchActions host{{*this, kSender}, 0, path};
  if (!watch(host, [](const WatchActions& seen) { return seen.left_still != 0; }))
    return violate("what stands still is never left");
  leave(kSender, int(host.left_still));
}

// --- migration
// ----------------------------------------------------------------------------------------------

void Model::Executor::say(int to, const Control& message) {
  Queue& queue = w.to[to];
  if (queue.count == kMaxControl) return violate("the model's bound: kMaxControl");
  queue.item[queue.count++] = message;
}

void Model::Executor::leave(int end, int path, int target) {
  Actions actions{*this, end};
  ChannelEnd(w.end(end), actions).leave(uint32_t(path), uint32_t(target));
}

void Model::Executor::start_fence(int end, int path) {
  Half& h = half(end, path);
  h.failed = false;
  if (!holds(end == kReceiver ? Rule::kReceiverFence : Rule::kSenderFence)) {
    h.life = Life::kRetired;
    return finish_fence(end);
  }
  if (!h.gone) h.pair = Pair::kError;
  h.life = Life::kFencing;
  FenceClock clock(end == kSender, kFenceBound, kRemovalBound);
  look(clock, end, 0, {});  // the move to ERR has returned, and nothing has come back
}

void Model::Executor::fence_given_up(int end, int path) {
  Half& h = half(end, path);
  if (carries(end, path)) violate("a path that carries is fenced as one that was given up");
  if (h.pair == Pair::kDead && h.life == Life::kFencing) h.life = Life::kGone;  // stopped by the kernel
  FenceClock clock(end == kSender, kFenceBound, kRemovalBound);
  const bool there = h.pair != Pair::kNone && h.pair != Pair::kDead;
  switch (clock.begin_given_up(Actions{*this, end}, 0, there)) {
    case FenceAct::kStop:
      return start_fence(end, path);
    case FenceAct::kDone:
      return finish_fence(end);
    default:
      look(clock, end, 0, {.given_up = true});
  }
}

// True: this end has done what it can.
bool Model::Executor::look(FenceClock& clock, int end, uint64_t alive, const FenceSight& seen) {
  Half& h = half(end, int(w.end(end).leaving()));
  switch (clock.look(Actions{*this, end}, alive, seen).act) {
    case FenceAct::kWait:
    case FenceAct::kStop:
      return false;
    case FenceAct::kDestroy:
      if (bounds_.destroy_fences) h.pair = Pair::kDead;
      return false;
    case FenceAct::kDone:
      if (!seen.given_up) h.life = h.pair == Pair::kDead ? Life::kGone : Life::kRetired;
      finish_fence(end);
      return true;
    case FenceAct::kCannot:
      h.life = Life::kRetired;
      finish_fence(end, true);
      return true;
    case FenceAct::kUnfenceable:  // a sender needs no fence of its own
      fail(end, end == kReceiver);
      return true;
  }
  return false;
}

// The clock looks until it says what to do. What else may happen meanwhile is another order of steps. Each
// sight comes as late, and what it shows lasts as short, as it may.
void Model::Executor::look_at_fence(int end, bool pretends) {
  const int path = int(w.end(end).leaving());
  Half& h = half(end, path);
  FenceClock clock(end == kSender, kFenceBound, kRemovalBound);
  const auto until = [&](uint64_t first, uint64_t last, const FenceSight& seen) {
    for (uint64_t alive = first; alive < last; ++alive)
      if (look(clock, end, alive, seen)) return true;
    return false;
  };
  constexpr uint64_t kShare = kFenceBound / FenceClock::kFlushShare;
  if (look(clock, end, 1, {.worker_busy = true})) return;
  poll(end, path);
  if (look(clock, end, 2, {})) return;
  if (h.gone) {  // the event that says so comes before a share of the bound is over
    if (pretends && until(3, 3 + kShare, {.empty = true, .destroyed = true})) return;
    look(clock, end, 3 + kShare,
         {.empty = true, .destroyed = pretends, .refused = !pretends, .failed = true});
    look_at_removal(end, path, false);
    if (h.pair == Pair::kDead) look_at_removal(end, path, true);
  } else if (h.frozen) {
    if (until(3, 5 + kShare, {.empty = true})) return;
    const bool destroyed = h.pair == Pair::kDead;
    until(5 + kShare, 4 * kFenceBound, {.empty = true, .destroyed = destroyed, .refused = !destroyed});
  } else {
    if (look(clock, end, 3, {.empty = true})) return;
    h.pair = Pair::kDead;
    look(clock, end, 4, {.flushed = true, .empty = true});
  }
}

// What has been said by now is that this end cannot fence; perhaps it can after all.
void Model::Executor::look_at_removal(int end, int path, bool removed) {
  if (running(end) || int(w.end(end).leaving()) != path ||
      w.end(end).own_fence() != MigrationEnd::Fence::kCannot)
    return;
  const FenceClock clock(end == kSender, kFenceBound, kRemovalBound);
  if (clock.look_at_removal(removed, {.refused = true, .failed = true}) == FenceAct::kDone) finish_fence(end);
}

void Model::Executor::stopped_by_kernel(int end, int path) {
  half(end, path).pair = Pair::kDead;
  look_at_removal(end, path, true);
}

// The kernel takes too long. It may have stopped the device since, and the sender not have heard of it.
void Model::Executor::give_fence_up() {
  const FenceClock clock(true, kFenceBound, kRemovalBound);
  const Phase phase = w.end(kSender).phase();
  if (clock.look_at_unfenced(phase, kRemovalBound) != FenceAct::kWait)
    violate("the bound of the removal is not over");
  if (clock.look_at_unfenced(phase, kRemovalBound + 1) == FenceAct::kUnfenceable) fail(kSender, true);
}

void Model::Executor::finish_fence(int end, bool cannot) {
  Actions actions{*this, end};
  ChannelEnd channel_end(w.end(end), actions);
  cannot ? channel_end.cannot_fence() : channel_end.fenced();
}

void Model::Executor::send_fenced(int end, bool stopped) {
  Control fenced{Say::kFenced, uint8_t(w.end(end).epoch()), uint8_t(w.end(end).leaving())};
  fenced.cannot = !stopped;
  if (end == kReceiver) {
    std::array<uint16_t, kWindow> segments{};
    fenced.number = uint8_t(w.receiver.ledger.report(segments));
    std::copy(segments.begin(), segments.end(), fenced.segments.begin());
  }
  say(1 - end, fenced);
}

void Model::Executor::path_failed(int end, int path) {
  Actions actions{*this, end};
  ChannelEnd(w.end(end), actions).path_failed(uint32_t(path));
}

void Model::Executor::nic_lost(int end, int nic) {
  Actions actions{*this, end};
  ChannelEnd(w.end(end), actions).nic_lost(nic);
}

void Model::Executor::activate(int end, int path) {
  if (const int before = active(end); before != 0 && before != path) violate("two active paths at one end");
  half(end, path).life = Life::kActive;
  if (end == kReceiver) w.connected = true;
  moved();
}

void Model::Executor::Actions::carries_on(bool moved) {
  if (end == kReceiver) return s.w.receiver.carries_on(*this, moved);
  Messages messages{s};
  s.w.sender.carries_on(messages);
}

void Model::Executor::start_lane(int path) {
  Actions actions{*this, kSender};
  ChannelEnd(w.end(kSender), actions).start_lane(uint32_t(path));
}

void Model::Executor::rest_lane(int path) {
  ++w.rests;
  Actions actions{*this, kSender};
  (void)ChannelEnd(w.end(kSender), actions).rest_lane(uint32_t(path));
}

void Model::Executor::open() {
  int path = w.next_path;
  if (!holds(Rule::kNewQueuePairs) && in_life(kSender, Life::kGone) != 0) {
    path = in_life(kSender, Life::kGone);
    Link& l = link(path);
    Link fresh;
    for (int n = l.delivered; n < l.posted; ++n) fresh.stale |= uint8_t(1u << nth(l, n));
    fresh.half[kReceiver] = l.half[kReceiver];
    l = fresh;
  } else {
    ++w.next_path;
  }
  half(kSender, path).life = Life::kOpening;
  half(kSender, path).pair = Pair::kReady;
  w.opening = uint8_t(path);
  say(kReceiver, {Say::kOpen, 0, uint8_t(path)});
}

void Model::Executor::drop(int end, int path, bool tell) {
  Half& h = half(end, path);
  if (h.pair == Pair::kReady && !h.gone) h.pair = Pair::kError;
  h.life = Life::kRetired;
  if (end == kSender && w.opening == path) w.opening = 0;
  if (tell) say(1 - end, {Say::kDrop, 0, uint8_t(path)});
}

void Model::Executor::hear(int end, Control m) {
  const Word word = m.say == Say::kFail ? Word::kFailure : m.say == Say::kClose ? Word::kClose : Word::kOther;
  switch (hearing(word, {.closed = w.closed[end], .failed = w.failed[end]})) {
    case Hearing::kNoteClosed:
      w.peer_closed[end] = true;
      return;
    case Hearing::kPeerClosed:
      w.peer_closed[end] = true;
      if (end == kSender) w.sender.peer_closed(m.number);
      return;
    case Hearing::kFail:
      w.failed[end] = !w.closed[end];
      return;
    case Hearing::kGreet:
      return violate("two ends greet each other again");
    case Hearing::kIgnore:
      return;
    case Hearing::kTakeIn:
      break;
  }
  Half* h = m.path != 0 ? &half(end, m.path) : nullptr;
  Actions actions{*this, end};
  ChannelEnd channel_end(w.end(end), actions);
  switch (m.say) {
    case Say::kMigrate:
      return channel_end.on_migrate(m.epoch, m.path);
    case Say::kFenced: {
      std::array<uint16_t, kWindow> segments{};
      std::copy(m.segments.begin(), m.segments.end(), segments.begin());
      if (end == kReceiver)
        channel_end.on_fenced(m.epoch, m.path, !m.cannot);
      else
        w.sender.on_fenced(actions, m.epoch, m.path, !m.cannot, m.number, segments);
      return;
    }
    case Say::kUse:
      return channel_end.on_use(m.epoch, m.path);
    case Say::kDrop:
      return channel_end.on_drop(m.path);
    case Say::kNic:
      return channel_end.peer_nic_lost(m.path);
    case Say::kLane:
      return channel_end.on_lane(m.path);
    case Say::kRest:
      return channel_end.on_rest(m.path);
    case Say::kOpen:
      if (h->life != Life::kNever && holds(Rule::kNewQueuePairs)) return;
      *h = {Life::kStandby, Pair::kReady, false};
      return say(kSender, {Say::kOpened, 0, m.path});
    case Say::kOpened:
      if (w.opening != m.path) return;
      if (link(m.path).broken) return drop(end, m.path, true);
      h->life = Life::kStandby;
      w.opening = 0;
      return;
    case Say::kAckQuery:
      return w.receiver.on_ack_query(actions);
    case Say::kAsk:
      return w.sender.on_wait(actions, m.number);
    case Say::kReceived:
      w.answered = true;
      return w.sender.on_received(actions, Messages{*this}, m.number, m.segments[0]);
    case Say::kFail:
    case Say::kClose:
    case Say::kNothing:
      return;
  }
}

void Model::Executor::fail(int end, bool excused) {
  if (!excused) violate("an error although a path lives");
  w.failed[end] = true;
  say(1 - end, {Say::kFail});
}

// --- the end

void Model::Executor::close(int end) {
  w.closes[end] = true;
  if (end == kSender) w.answered = false;
  w.asked = 0;
}

// The real clock of closing, from its first look.
SettleSight Model::Executor::see_settling() {
  Actions actions{*this, kSender};
  SettleSight seen;
  seen.unconfirmed = w.sender.has_to_settle(actions);
  seen.lacks = w.sender.misses();
  seen.phase = w.end(kSender).phase();
  return seen;
}

void Model::Executor::look_at_closing(int end) {
  Closing closing;
  if (w.peer_closed[end]) closing.peer_has_closed();
  if (end == kReceiver || closing.settle(1, see_settling()) != Closing::Settling::kAsk) begin_closing(end);
}

void Model::Executor::ask_at_end() {
  ++w.asked;
  Actions actions{*this, kSender};
  w.sender.on_wait(actions, 0);
}

// Nothing moves until the time is over.
void Model::Executor::settled() {
  Closing closing;
  uint64_t now = 1;
  const SettleSight seen = see_settling();
  (void)closing.settle(now, seen);
  if (w.answered) closing.heard();
  while (closing.settle(now, seen) == Closing::Settling::kAsk && now < 2 * Closing::kLingerNs)
    now += Closing::kSettleNs / 2;
  if (now >= 2 * Closing::kLingerNs) return violate("a closed end settles for ever");
  begin_closing(kSender);
}

void Model::Executor::begin_closing(int end) {
  w.closed[end] = true;
  Actions actions{*this, end};
  say(1 - end, {Say::kClose, 0, 0, uint8_t(end == kReceiver ? w.receiver.last_ack(actions) : 0)});
  leave_paths(end);
}

void Model::Executor::leave_paths(int end) {
  for (int path = 1; path <= bounds_.paths; ++path) {
    Half& h = half(end, path);
    if (h.life == Life::kNever || h.life == Life::kGone) continue;
    if (h.pair == Pair::kReady && !h.gone) h.pair = Pair::kError;
    h.life = Life::kRetired;
    h.failed = false;
  }
  if (end == kSender) w.opening = 0;
}

void Model::Executor::leave_for_nic() {
  Closing closing;
  if (closing.look(1, true, true) != Closing::Lacking::kWait ||
      closing.look(2 + Closing::kLastAckNs, true, true) != Closing::Lacking::kLeave)
    return violate("the last acknowledgement is not waited for, or for ever");
  w.left_for_good = true;
  leave_paths(kSender);
}

void Model::Executor::give_up_lacking(int end) {
  Closing closing;
  if (closing.look(1, true, false) != Closing::Lacking::kWait ||
      closing.look(2 + Closing::kLingerNs, true, false) != Closing::Lacking::kLost)
    return violate("what is lacking is not waited for, or for ever");
  fail(end, bounds_.runs_out || all_broken());
}

// --- after every step
// ---------------------------------------------------------------------------------------

void Model::Executor::release() {
  for (int message = 0; message < int(w.sender.ledger.next()); ++message) {
    if (w.given_back >> message & 1) continue;
    const bool done = holds(Rule::kNicReport) ? w.sender.ledger.done(uint64_t(message), strict())
                                              : uint64_t(message) < w.sender.ledger.confirmed();
    if (!done) continue;
    w.given_back |= uint8_t(1u << message);
    moved();
    if (strict() && !(w.completed >> message & 1))
      violate("a send was reported before the receiver had the message");
    for (int path = 1; path <= bounds_.paths; ++path) {
      const Link& l = link(path);
      if (!takes_in(l.half[kSender].pair)) continue;
      // Nobody can stop it, and what it still reads nobody takes in: see land_in_memory().
      const Half& h = l.half[kSender];
      if (h.gone || (h.frozen && h.life == Life::kRetired)) continue;
      for (int n = l.acknowledged; n < l.posted; ++n)
        if (message_of(nth(l, n)) == message)
          violate("a send buffer was given back while a NIC may still read it");
    }
  }
}

void Model::Executor::settle() {
  release();
  for (const int end : {kSender, kReceiver})
    if (w.closes[end] && is_open(end)) look_at_closing(end);
  Actions actions{*this, kSender};
  w.sender.look_if_awaited(actions);
  for (int index = 0; index < int(w.sender.ledger.next()) * bounds_.segments; ++index) {
    uint8_t& carrier = w.carrier[size_t(index)];
    const bool over = !kept(message_of(index));
    if (over) w.unwritten &= uint8_t(~(1u << index));
    if (over || (carrier != 0 && half(kSender, carrier).pair != Pair::kReady)) carrier = 0;
  }
  for (int path = 1; path <= bounds_.paths; ++path) {
    Link& l = link(path);
    const bool dead[2] = {l.half[kSender].pair == Pair::kDead, l.half[kReceiver].pair == Pair::kDead};
    if (dead[kSender]) {
      l.writes = 0;
      l.write = {};
      l.acknowledged = l.taken[kSender] = l.delivered;
      l.stands_still = false;
    }
    if (dead[kReceiver]) l.taken[kReceiver] = l.delivered;
    if (dead[kSender] && dead[kReceiver] && holds(Rule::kNewQueuePairs)) {
      const Link gone{{l.half[0], l.half[1]}, l.broken};
      l = gone;
    }
    while (l.taken[kSender] > 0 && l.taken[kReceiver] > 0) {
      const auto first = uint8_t(1u << nth(l, 0));
      l.queue >>= 4;
      l.lost_completions &= uint8_t(~first);
      l.lost_immediates &= uint8_t(~first);
      --l.posted, --l.taken[kSender], --l.taken[kReceiver], --l.delivered, --l.acknowledged;
    }
  }
}

}  // namespace r2ccl::model
