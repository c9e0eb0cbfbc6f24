// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/failback.h"

namespace r2ccl::model {
namespace {

using World = FailbackWorld;
using Event = World::Event;
using Traffic = World::Traffic;
constexpr uint32_t kOtherPath = 200;
/// The service thread sleeps for so long when nothing is due.
constexpr uint64_t kSleep = 100'000'000;

}  // namespace

/// One event, carried out on a state.
class FailbackModel::Run {
 public:
  explicit Run(World& world) : w_(world) {}

  FailbackSight sight() const {
    FailbackSight seen;
    seen.away = w_.traffic != Traffic::kHome;
    seen.opens = w_.opens || w_.other_opens;
    seen.has_path = w_.has_path;
    seen.probe = w_.probe;
    seen.probe_age = w_.now - w_.probed_at;
    return seen;
  }
  /// What look() would do. Traffic that moves is looked at when it has moved: turn.h.
  FailbackAct due() const {
    if (w_.traffic == Traffic::kMoves) return FailbackAct::kNone;
    TestedFailback copy = w_.failback;
    return copy.look(sight(), w_.now);
  }
  void look() {
    w_.act = w_.failback.look(sight(), w_.now);
    switch (w_.act) {
      case FailbackAct::kNone:
        return;
      case FailbackAct::kOpen:
        if (w_.opens || w_.has_path) return wrong("two failbacks at once");
        if (w_.now < w_.earliest) return wrong("a rail is tried before its wait is over");
        w_.opens = true;
        return;
      case FailbackAct::kProbe:
        w_.probe = ProbeSight::kAwaited;
        w_.probed_at = w_.now;
        return;
      case FailbackAct::kGiveUp:
        return drop();
      case FailbackAct::kReturn:
        if (w_.now - w_.opened_at < kPolicy.settle_ns)
          return wrong("traffic returns before the rail has settled");
        if (w_.probe != ProbeSight::kAnswered)
          return wrong("traffic returns to a path that has not answered");
        if (w_.now - w_.probed_at > (1u + w_.slow) * kTick)
          return wrong("traffic returns to a path that has not answered of late");
        w_.traffic = Traffic::kMoves;
        w_.probe = ProbeSight::kNone;
        return;
    }
  }
  /// Traffic at home leaves; elsewhere it is found out.
  void fall() {
    w_.works = false;
    if (w_.traffic != Traffic::kHome) return;
    const bool good_for_long = w_.home_at == 0 || w_.now - w_.home_at >= 50 * kPolicy.settle_ns;
    w_.failures = good_for_long ? 1 : w_.failures + 1;
    w_.failback.rail_failed(w_.now);
    w_.traffic = Traffic::kAway;
    waits();
  }
  void hint() {
    w_.failback.rail_active(w_.now);
    if (w_.failures > 0 && wait() <= 8 * kPolicy.first_wait_ns) w_.earliest = std::min(w_.earliest, w_.now);
  }
  void opened(bool ok) {
    w_.opens = false;
    if (!ok) {
      w_.failback.opening_failed(w_.now);
      return failed();
    }
    w_.has_path = true;
    w_.opened_at = w_.now;
    w_.probe = ProbeSight::kNone;
    w_.failback.opened(++w_.path, w_.now);
  }
  void drop() {
    w_.has_path = false;
    w_.probe = ProbeSight::kNone;
    w_.failback.dropped(w_.path, w_.now);
    failed();
  }
  void arrives(bool home) {
    w_.traffic = home ? Traffic::kHome : Traffic::kAway;
    if (!home) drop();
    w_.has_path = false;
    w_.failback.carries(home ? w_.path : kOtherPath, home, w_.now);
    if (home) w_.home_at = w_.now;
  }
  void other_dropped() { w_.failback.dropped(kOtherPath, w_.now); }
  void passes(uint64_t ns) {
    w_.now += ns;
    // Opening it, a probe, and moving there take no time here; two ticks for when looks come.
    const uint64_t most = kPolicy.ceiling_ns + kPolicy.settle_ns + 2 * kTick;
    if (w_.traffic == Traffic::kHome || !w_.works || w_.other_opens) w_.usable_since = w_.now;
    if (w_.now - w_.usable_since > most) wrong("a rail that works is not used");
  }
  /// Holds in every state.
  void look_around() {
    if (w_.violation) return;
    if (w_.failback.path() != (w_.has_path ? w_.path : 0)) return wrong("the path on probation is another");
    if (w_.failback.is_up() != (w_.failures == 0 || w_.traffic == Traffic::kHome))
      return wrong("the home rail is taken for what it is not");
    const bool waits = w_.traffic == Traffic::kAway && !w_.has_path && !w_.opens && !w_.other_opens;
    if (waits && w_.now >= w_.earliest && due() != FailbackAct::kOpen)
      return wrong("a rail is not tried when its wait is over");
    TestedFailback later = w_.failback;
    if (waits && due() == FailbackAct::kNone && later.look(sight(), w_.now + kSleep) == FailbackAct::kOpen &&
        !w_.failback.is_near(w_.now))
      return wrong("a try falls due while the service thread sleeps");
  }

 private:
  void wrong(const char* what) {
    if (!w_.violation) w_.violation = what;
  }
  uint64_t wait() const {
    return std::min(kPolicy.first_wait_ns << std::min<int>(w_.failures - 1, 20), kPolicy.ceiling_ns);
  }
  void failed() {
    ++w_.failures;
    waits();
  }
  void waits() { w_.earliest = w_.now + wait(); }

  World& w_;
};

size_t FailbackModel::expand(const World& world, std::vector<World>& next) const {
  size_t own = 0;
  const auto add = [&](Event event, bool fault, auto&& carry_out) {
    World after = world;
    after.event = event;
    after.act = FailbackAct::kNone;
    Run run(after);
    carry_out(run, after);
    run.look_around();
    next.push_back(after);
    if (!fault) ++own;
  };
  World copy = world;
  const bool due = Run(copy).due() != FailbackAct::kNone;
  const bool over = world.now - kStart >= uint64_t(bounds_.ticks) * kTick + world.longs * kLong;
  if (over) return 0;
  if (due) add(Event::kLook, false, [](Run& run, World&) { run.look(); });
  if (world.works && world.falls < bounds_.falls)
    add(Event::kFall, true, [](Run& run, World& after) {
      ++after.falls;
      run.fall();
    });
  if (!world.works)
    add(Event::kWorksAgain, true, [](Run&, World& after) {
      after.works = true;
      after.usable_since = after.now;
    });
  if (world.hints < bounds_.hints && world.failures > 0)
    add(Event::kHint, true, [](Run& run, World& after) {
      ++after.hints;
      run.hint();
    });
  if (world.opens) {
    if (world.works) add(Event::kOpened, false, [](Run& run, World&) { run.opened(true); });
    if (!world.works) add(Event::kNotOpened, false, [](Run& run, World&) { run.opened(false); });
    if (world.works && world.refusals < bounds_.refusals)
      add(Event::kNotOpened, true, [](Run& run, World& after) {
        ++after.refusals;
        after.usable_since = after.now;
        run.opened(false);
      });
  }
  if (world.has_path && world.probe == ProbeSight::kAwaited)
    add(world.works ? Event::kAnswered : Event::kProbeFailed, false,
        [](Run&, World& after) { after.probe = after.works ? ProbeSight::kAnswered : ProbeSight::kFailed; });
  // By the receiver; or, where the rail has failed, because the NIC has said so.
  if (world.has_path && world.traffic == Traffic::kAway &&
      (!world.works || world.refusals < bounds_.refusals))
    add(Event::kDropped, true, [](Run& run, World& after) {
      if (after.works) ++after.refusals;
      after.usable_since = after.now;
      run.drop();
    });
  if (world.traffic == Traffic::kMoves)
    add(world.works ? Event::kArrives : Event::kArrivesElsewhere, false,
        [](Run& run, World& after) { run.arrives(after.works); });
  if (world.others < bounds_.others && world.traffic == Traffic::kAway) {
    if (!world.opens && !world.other_opens)
      add(Event::kOtherOpens, true, [](Run&, World& after) {
        ++after.others;
        after.other_opens = true;
      });
    add(Event::kOtherDropped, true, [](Run& run, World& after) {
      ++after.others;
      run.other_dropped();
    });
  }
  if (world.other_opens)
    add(Event::kOtherIsOpen, true, [](Run&, World& after) {
      after.other_opens = false;
      after.usable_since = after.now;
    });
  const bool awaited = world.opens || world.probe == ProbeSight::kAwaited || world.traffic == Traffic::kMoves;
  if (!due && (!awaited || world.slow < bounds_.slow))
    add(Event::kTick, false, [&](Run& run, World& after) {
      if (awaited) {
        ++after.slow;
        after.usable_since += kTick;
      }
      run.passes(kTick);
    });
  if (world.traffic == Traffic::kHome && world.longs < bounds_.longs)
    add(Event::kLongTime, true, [&](Run& run, World& after) {
      ++after.longs;
      run.passes(kLong);
    });
  return own;
}

size_t FailbackModel::bytes(const World& world, uint8_t* out) const {
  Bytes bytes(out);
  bytes.put_object(world.failback);
  bytes.put(world.traffic, world.works | world.opens << 1 | world.other_opens << 2 | world.has_path << 3,
            world.path, world.probe, world.failures, world.falls, world.refusals, world.hints, world.slow,
            world.others, world.longs);
  const bool away = world.traffic == Traffic::kAway, waits = away && !world.has_path && !world.opens;
  for (const uint64_t time : {world.now, world.probe == ProbeSight::kNone ? 0 : world.probed_at,
                              world.has_path ? world.opened_at : 0, away ? world.home_at != 0 : world.home_at,
                              waits ? world.earliest : 0, away && world.works ? world.usable_since : 0})
    bytes.put_time(time);
  return bytes.count();
}

std::string FailbackModel::words(const World& world) const {
  const std::string at = std::to_string((world.now - kStart) / kTick) + " ticks: ";
  static constexpr const char* kActs[] = {"nothing", "opens a path over the home rail", "probes it",
                                          "gives it up", "traffic returns"};
  switch (world.event) {
    case Event::kStart:
      return "start";
    case Event::kFall:
      return at + "FAULT: the home rail fails";
    case Event::kWorksAgain:
      return at + "the home rail works again";
    case Event::kHint:
      return at + "its port is said to be active";
    case Event::kLook:
      return at + "looks: " + kActs[size_t(world.act)];
    case Event::kOpened:
      return at + "the path is open";
    case Event::kNotOpened:
      return at + "the path cannot be opened";
    case Event::kAnswered:
      return at + "its probe is answered";
    case Event::kProbeFailed:
      return at + "its probe fails";
    case Event::kDropped:
      return at + "the path on probation is dropped";
    case Event::kArrives:
      return at + "traffic is home";
    case Event::kArrivesElsewhere:
      return at + "the path home has failed, traffic goes on elsewhere";
    case Event::kOtherOpens:
      return at + "another path is being opened";
    case Event::kOtherIsOpen:
      return at + "the other path is open, or is not";
    case Event::kOtherDropped:
      return at + "another path is dropped";
    case Event::kTick:
      return at + "a tick has passed";
    case Event::kLongTime:
      return at + "a long time has passed";
  }
  return "?";
}

}  // namespace r2ccl::model
