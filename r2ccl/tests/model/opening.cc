// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/model/opening.h"

#include <algorithm>
#include <utility>

namespace r2ccl::model {
namespace {

using World = OpeningWorld;
using Event = World::Event;
using Say = World::Say;
using Call = World::Call;
constexpr int kSends = 0, kReceives = 1;

// The path of number n is opened for that, over NIC n here and NIC n + 1 there.
Purpose purpose_of(uint32_t path) { return path == 1 ? Purpose::kStandby : Purpose::kRescue; }

}  // namespace

/// One event, carried out on a state.
class OpeningModel::Run {
 public:
  explicit Run(World& world) : w_(world) {}

  void begin() {
    const uint32_t n = w_.begun + 1u;
    const uint32_t path = w_.opening.begin(purpose_of(n), int(n), int(n) + 1, w_.alive);
    if (path != n) return wrong("a number is used twice");
    ++w_.begun;
    half(kSends, path).call = Call::kMake;
  }
  void made(int end, uint32_t path, bool ok) {
    World::Half& it = half(end, path);
    const bool wanted = !std::exchange(it.unwanted, false);
    it.call = Call::kNone;
    it.late = false;
    if (!wanted) return;
    if (!ok) return end == kSends ? failed() : say(kSends, Say::kCannot, path);
    if (it.exists) return wrong("an end has two halves of one path");
    it.exists = true;
    if (end == kReceives) {
      it.state = PeerOpening::of_new(true);
      return say(kSends, Say::kOpened, path);
    }
    w_.opening.half_made(w_.alive);
    w_.asked_at = w_.alive;
    say(kReceives, Say::kOpen, path);
  }
  void connected(uint32_t path, bool ok) {
    World::Half& it = half(kSends, path);
    it.call = Call::kNone;
    it.late = false;
    it.connected = ok;
    it.error = !ok;
  }
  void late(int end, uint32_t path) {
    World::Half& it = half(end, path);
    it.late = true;
    if (end == kSends) return;
    it.unwanted = true;  // PathHalves::unwant_stuck
    say(kSends, Say::kCannot, path);
  }
  OpeningAct due() const {
    if (!w_.opening.under_way()) return OpeningAct::kWait;
    const World::Half& it = half(kSends, w_.opening.path());
    OpeningSight seen;
    seen.exists = it.exists;
    seen.makes = it.call == Call::kMake && !it.unwanted;
    seen.worker_busy = it.call == Call::kConnect;
    seen.driver_late = it.late;
    if (it.exists && w_.opening.proves()) seen.probe = it.probe;
    return w_.opening.look(seen);
  }
  void look() {
    const uint32_t path = w_.opening.path();
    World::Half& it = half(kSends, path);
    switch (due()) {
      case OpeningAct::kWait:
        return;
      case OpeningAct::kDropped:
      case OpeningAct::kDriverLate:
      case OpeningAct::kUnproved:
        return failed();
      case OpeningAct::kConnect:
        if (it.error) return failed();
        if (!it.connected) return wrong("a half is used before it is connected");
        w_.opening.connected(w_.alive);
        it.state = PathState::kProving;
        it.since = w_.alive;
        it.probe = ProbeSight::kAwaited;
        return;
      case OpeningAct::kProved:
        w_.opening.proved(it.since);
        w_.asked_at = it.since;
        return say(kReceives, Say::kProve, path);
    }
  }
  void look_at_proof(uint32_t path) {
    World::Half& it = half(kReceives, path);
    switch (TestedPeerOpening::look(it.probe)) {
      case ProofAct::kWait:
        return;
      case ProofAct::kOpen:
        it.state = PathState::kStandby;
        it.probe = ProbeSight::kNone;
        return say(kSends, Say::kProved, path);
      case ProofAct::kDrop:
        return drop(kReceives, path, true);
    }
  }
  bool proof_is_due(uint32_t path) const {
    const World::Half& it = half(kReceives, path);
    return it.exists && PeerOpening::proves(it.state) && TestedPeerOpening::look(it.probe) != ProofAct::kWait;
  }
  // ChannelEnd::nic_lost, of the NIC of this path at that end.
  void lost(int end, uint32_t path) {
    if (end == kSends && w_.opening.path() == path) return failed();
    if (half(end, path).exists) drop(end, path, true);
  }
  void hear(int end, const World::Word& word) {
    const uint32_t path = word.path;
    World::Half& it = half(end, path);
    switch (word.say) {
      case Say::kOpen:
        switch (TestedPeerOpening::on_open({.known = it.exists || makes(it)})) {
          case OpenAct::kMake:
            if (makes(it)) return wrong("an end has two halves of one path");
            it.call = Call::kMake;
            return;
          default:
            return;
        }
      case Say::kOpened:
      case Say::kCannot:
        if (!it.exists || !w_.opening.peer_answers(path)) return;
        w_.asked_at = 0;
        if (word.say == Say::kCannot) return failed();
        if (it.call != Call::kNone || it.connected || it.error) return wrong("a half is connected twice");
        w_.opening.connecting(w_.alive);
        it.call = Call::kConnect;
        return;
      case Say::kProve:
        if (!it.exists || !PeerOpening::proves(it.state)) return;
        if (it.probe == ProbeSight::kNone) it.probe = ProbeSight::kAwaited;
        return;
      case Say::kProved:
        if (w_.opening.peer_proves(path) && it.exists) succeeded();
        return;
      case Say::kDrop:  // ChannelEnd::on_drop
        if (end == kReceives && makes(it)) it.unwanted = true;
        if (!it.exists) return;
        if (end == kSends && w_.opening.is(path)) return failed();
        return drop(end, path, false);
      case Say::kNothing:
        return;
    }
  }
  /// Holds in every state.
  void look_around() {
    if (w_.violation) return;
    for (uint64_t span = 0; span < 3; ++span)
      if (w_.opening.peer_owes(w_.alive, span) !=
          (w_.asked_at != 0 && uint64_t(w_.alive - w_.asked_at) > span))
        return wrong("the time for which the peer owes an answer is another");
  }

 private:
  World::Half& half(int end, uint32_t path) { return w_.path[path - 1].half[end]; }
  const World::Half& half(int end, uint32_t path) const { return w_.path[path - 1].half[end]; }
  static bool makes(const World::Half& half) { return half.call == Call::kMake && !half.unwanted; }
  void wrong(const char* what) {
    if (!w_.violation) w_.violation = what;
  }
  void say(int to, Say what, uint32_t path) {
    World::Line& line = w_.to[to];
    if (line.count == kMostWords) return wrong("the model has no room for a message");
    line.item[line.count++] = {what, uint8_t(path)};
  }
  void drop(int end, uint32_t path, bool tell) {
    half(end, path).exists = false;
    if (tell) say(1 - end, Say::kDrop, path);
  }
  void ends(uint32_t path) {
    w_.opening.end();
    w_.asked_at = 0;
    if (path == 0 || ++w_.path[path - 1].ends > 1) return wrong("an opening ends twice");
    if (w_.opening.under_way()) return wrong("an opening that has ended goes on");
    if (w_.opening.purpose() != purpose_of(path) || w_.opening.local() != int(path) ||
        w_.opening.remote() != int(path) + 1)
      return wrong("what has ended was opened for something else");
  }
  void failed() {
    const uint32_t path = w_.opening.path();
    ends(path);
    if (w_.violation) return;
    World::Half& it = half(kSends, path);
    if (it.call == Call::kMake) it.unwanted = true;
    if (it.exists) drop(kSends, path, true);
  }
  void succeeded() {
    const uint32_t path = w_.opening.path();
    ends(path);
    if (w_.violation) return;
    World::Half& it = half(kSends, path);
    const World::Half& other = half(kReceives, path);
    if (!it.proved || !other.proved) return wrong("a path counts as open that was not proved at both ends");
    it.state = PathState::kStandby;
    it.probe = ProbeSight::kNone;
  }

  World& w_;
};

size_t OpeningModel::expand(const World& world, std::vector<World>& next) const {
  size_t own = 0;
  // `fault`: it need not happen.
  const auto add = [&](Event event, int end, uint32_t path, bool fault, auto&& carry_out) {
    World after = world;
    after.event = event;
    after.end = uint8_t(end);
    after.number = uint8_t(path);
    Run run(after);
    carry_out(run, after);
    run.look_around();
    next.push_back(after);
    if (!fault) ++own;
  };
  World probe = world;
  const Run seen(probe);
  if (!world.opening.under_way() && world.begun < bounds_.openings)
    add(Event::kBegin, kSends, world.begun + 1u, false, [](Run& run, World&) { run.begin(); });
  if (seen.due() != OpeningAct::kWait)
    add(Event::kLook, kSends, world.opening.path(), false, [](Run& run, World&) { run.look(); });
  for (uint32_t path = 1; path <= world.begun; ++path) {
    const World::Path& at = world.path[path - 1];
    for (const int end : {kSends, kReceives}) {
      const World::Half& half = at.half[end];
      // One that is late may never return.
      if (half.call == Call::kMake) {
        add(Event::kMade, end, path, half.late, [&](Run& run, World&) { run.made(end, path, true); });
        if (world.errors < bounds_.errors)
          add(Event::kNotMade, end, path, true, [&](Run& run, World& after) {
            ++after.errors;
            run.made(end, path, false);
          });
      }
      if (half.call == Call::kConnect) {
        add(Event::kConnected, end, path, half.late, [&](Run& run, World&) { run.connected(path, true); });
        if (world.errors < bounds_.errors)
          add(Event::kNotConnected, end, path, true, [&](Run& run, World& after) {
            ++after.errors;
            run.connected(path, false);
          });
      }
      if (half.call != Call::kNone && !half.late && !half.unwanted && world.lates < bounds_.lates)
        add(Event::kLate, end, path, true, [&](Run& run, World& after) {
          ++after.lates;
          run.late(end, path);
        });
      if (half.exists && half.probe == ProbeSight::kAwaited) {
        const bool dead = at.broken || !at.half[1 - end].exists;
        add(dead ? Event::kFailed : Event::kAnswered, end, path, false, [&](Run&, World& after) {
          World::Half& it = after.path[path - 1].half[end];
          it.probe = dead ? ProbeSight::kFailed : ProbeSight::kAnswered;
          it.proved |= !dead;
        });
        if (!dead && world.breaks < bounds_.breaks)
          add(Event::kFailed, end, path, true, [&](Run&, World& after) {
            ++after.breaks;
            after.path[path - 1].half[end].probe = ProbeSight::kFailed;
          });
      }
      if ((half.exists || half.call == Call::kMake) && world.losses < bounds_.losses)
        add(Event::kLost, end, path, true, [&](Run& run, World& after) {
          ++after.losses;
          run.lost(end, path);
        });
    }
    if (seen.proof_is_due(path))
      add(Event::kLook, kReceives, path, false, [&](Run& run, World&) { run.look_at_proof(path); });
    if (at.half[kSends].exists && !at.broken && world.breaks < bounds_.breaks)
      add(Event::kBreak, kSends, path, true, [&](Run&, World& after) {
        ++after.breaks;
        after.path[path - 1].broken = true;
      });
  }
  // It was dropped, and nobody has told the opening.
  if (const uint32_t path = world.opening.path();
      path != 0 && world.path[path - 1].half[kSends].exists && world.losses < bounds_.losses)
    add(Event::kLost, kReceives, 0, true, [&](Run&, World& after) {
      ++after.losses;
      after.path[path - 1].half[kSends].exists = false;
      World::Line& line = after.to[kReceives];
      line.item[line.count++] = {Say::kDrop, uint8_t(path)};
    });
  for (const int end : {kSends, kReceives}) {
    if (world.to[end].count == 0) continue;
    const World::Word first = world.to[end].item[0];
    const auto hear = [&](Run& run, World& after) {
      World::Line& line = after.to[end];
      std::move(line.item.begin() + 1, line.item.begin() + line.count, line.item.begin());
      line.item[--line.count] = {};
      after.word = first;
      run.hear(end, first);
    };
    add(Event::kHear, end, first.path, false, hear);
    if (world.repeats < bounds_.repeats && world.again.say == Say::kNothing)
      add(Event::kHear, end, 0, true, [&](Run& run, World& after) {
        ++after.repeats;
        after.again = first;
        after.again_to = uint8_t(end);
        hear(run, after);
      });
  }
  // A repeated kOpen of a path that the receiver has given up would make another half of it: the control
  // connection brings none.
  const World::Word again = world.again;
  if (again.say != Say::kNothing) {
    const World::Half& it = world.path[again.path - 1u].half[world.again_to];
    if (again.say != Say::kOpen || it.exists || (it.call == Call::kMake && !it.unwanted))
      add(Event::kHearAgain, world.again_to, again.path, true, [&](Run& run, World& after) {
        after.again = {};
        after.word = again;
        run.hear(world.again_to, again);
      });
  }
  if (world.alive <= bounds_.ticks)
    add(Event::kTick, kSends, 0, true, [](Run&, World& after) { ++after.alive; });
  return own;
}

size_t OpeningModel::bytes(const World& world, uint8_t* out) const {
  Bytes bytes(out);
  bytes.put_object(world.opening);
  for (size_t i = 0; i < world.begun; ++i) {
    const World::Path& path = world.path[i];
    for (const World::Half& half : path.half)
      bytes.put(uint8_t(half.call) | half.late << 2 | half.unwanted << 3 | half.exists << 4 |
                    half.error << 5 | half.connected << 6 | half.proved << 7,
                uint8_t(half.state) | uint8_t(half.probe) << 4, half.since);
    bytes.put(path.broken | path.ends << 1);
  }
  bytes.put(world.begun, world.alive, world.asked_at, world.again.say, world.again.path, world.again_to,
            world.breaks, world.lates, world.errors, world.losses, world.repeats);
  for (const World::Line& line : world.to) {
    bytes.put(line.count);
    for (size_t i = 0; i < line.count; ++i) bytes.put(line.item[i].say, line.item[i].path);
  }
  return bytes.count();
}

const char* OpeningModel::at_end(const World& world) const {
  if (world.opening.under_way()) return "an opening is under way, and nothing happens any more";
  for (size_t i = 0; i < world.begun; ++i) {
    const World::Path& path = world.path[i];
    const World::Half &sender = path.half[kSends], &receiver = path.half[kReceives];
    if (path.ends != 1) return "an opening was begun and never ended";
    if (sender.exists != receiver.exists) return "one end has a path that the other has not";
    if (sender.exists && (sender.state != PathState::kStandby || receiver.state != PathState::kStandby))
      return "a path of which an opening has ended does not stand by";
  }
  return nullptr;
}

std::string OpeningModel::words(const World& world) const {
  static constexpr const char* kSaid[] = {
      "nothing",    "'make your half'", "'here is my half'",  "'I cannot make my half'",
      "'prove it'", "'it is proved'",   "'I have dropped it'"};
  const std::string who = world.end == kSends ? "sender: " : "receiver: ",
                    path = "path " + std::to_string(world.number);
  const std::string said = kSaid[size_t(world.word.say)];
  switch (world.event) {
    case Event::kStart:
      return "start";
    case Event::kBegin:
      return "sender: begins to open " + path;
    case Event::kMade:
      return who + "its half of " + path + " is made";
    case Event::kNotMade:
      return "FAULT: " + who + "its half of " + path + " cannot be made";
    case Event::kConnected:
      return who + path + " is connected";
    case Event::kNotConnected:
      return "FAULT: " + who + path + " cannot be connected";
    case Event::kLate:
      return "FAULT: " + who + "the driver does not answer, " + path;
    case Event::kLook:
      return who + "looks at " + path;
    case Event::kAnswered:
      return who + "its transfer over " + path + " comes back";
    case Event::kFailed:
      return who + "its transfer over " + path + " fails";
    case Event::kBreak:
      return "FAULT: " + path + " breaks";
    case Event::kLost:
      return world.number == 0 ? "FAULT: sender: the path that is being opened is dropped"
                               : "FAULT: " + who + "the NIC of " + path + " is lost";
    case Event::kHear:
      return who + "hears " + said + " of path " + std::to_string(world.word.path) +
             (world.number == 0 ? " (FAULT: it will come once more)" : "");
    case Event::kHearAgain:
      return who + "hears once more " + said + " of " + path;
    case Event::kTick:
      return "time passes";
  }
  return "?";
}

}  // namespace r2ccl::model
