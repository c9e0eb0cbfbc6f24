// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/aims.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace r2ccl::simulation {
namespace {

using Kind = Fault::Kind;
using Event = trace::EventType;
using Target = Fault::Target;

Fault at_event(Event event, int number, Kind kind, Time delay, Time lasts, Target target, int side = 0) {
  return {kind, number, delay, lasts, side, 0, event, 0, target, -1};
}
Fault at_path(int after_messages, int channel, Kind kind, Time delay, Time lasts, Target target, int side) {
  return {kind, after_messages, delay, lasts, side, 0, Event::kNone, 0, target, channel};
}

// Mode 1: channels 0 and 1 of process 0 lose their NICs within a millisecond, and their programs go on for
// long enough that they are spread over those that are left. The other channels go the other way.
void let_a_pair_die(Plan& plan, Random& random) {
  plan.pair_dies = true;
  plan.mode = 1;
  plan.nics = 4;
  plan.hopeless = plan.abandons = false;
  const int first = int(random.below(4)), second = (first + int(random.between(1, 3))) % 4;
  plan.channels.resize(4);
  for (int i = 0; i < 4; ++i) {
    const int nic = i == 0 ? first : i == 1 ? second : int(random.below(4));
    plan.channels[size_t(i)] = {i < 2 ? 0 : 1,    nic,  nic,
                                i < 2 ? 160 : 50, 4096, i < 2 ? 60 * kMillisecond : 0};
  }
  plan.faults.clear();
  for (const int nic : {first, second})
    plan.faults.push_back({Kind::kPortDown, 20, random.below(kMillisecond), kHistoryBound, nic});
  plan.faults.push_back({Kind::kLoseLine, 30, 0, 0, 4 + int(random.below(4)), 1});
  for (int nic = 0; nic < 4; ++nic)
    if (nic != first && nic != second) plan.spared[0] = nic;
}

// --- Faults that go together, at the rail of channel 0, which runs from process 0 to 1; the spared NICs are
// others.

struct Rail {
  int from, to;  ///< NICs, over all processes
  int some;      ///< messages
};

Rail aim_at_first_rail(Plan& plan, Random& random) {
  Plan::Line& line = plan.channels[0];
  line.pause = 0;
  line.most_bytes = 4096;
  plan.spared[0] = (line.sender_nic + 1) % plan.nics;
  plan.spared[1] = (line.receiver_nic + 1) % plan.nics;
  plan.hopeless = plan.abandons = false;
  plan.faults.clear();
  return {line.sender_nic, plan.nics + line.receiver_nic,
          int(random.between(20, uint64_t(plan.messages() / 2)))};
}

// What is under way meets a device that refuses everything and still takes it in.
void remove_what_is_late(Plan& plan, Random& random) {
  const Rail rail = aim_at_first_rail(plan, random);
  plan.faults = {{Kind::kLate, rail.some / 2, 0, 400 * kMillisecond, rail.from},
                 {Kind::kRemove, rail.some, random.below(2 * kMillisecond),
                  random.between(50, 400) * kMillisecond, rail.to},
                 {Kind::kLoseLine, rail.some, 0, 0, rail.to, 1}};
}

// The receiver's port goes down behind what the sender has just begun to use, before it hears of that.
void drop_what_is_chosen(Plan& plan, Random& random) {
  const Rail rail = aim_at_first_rail(plan, random);
  plan.faults = {{Kind::kLate, rail.some / 2, 0, 200 * kMillisecond, plan.spared[0]},
                 {Kind::kPortDown, rail.some, random.skewed(kMicrosecond, 5 * kMillisecond),
                  300 * kMillisecond, rail.to},
                 {Kind::kTcpHold, rail.some, 0, random.skewed(kMicrosecond, 5 * kMillisecond)}};
  for (int n = 0; n < 2; ++n)
    plan.faults.push_back(at_event(Event::kReplayed, n, Kind::kPortDown, random.below(28 * kMicrosecond),
                                   random.between(20, 100) * kMillisecond, Target::kEventPeer));
}

// Channel 0 sends when all others are done; what comes back is lost.
void cut_before_the_last_ack(Plan& plan, Random& random) {
  const Rail rail = aim_at_first_rail(plan, random);
  Plan::Line& line = plan.channels[0];
  line.messages = 160;
  line.most_bytes = kSlotBytes;
  line.pause = kMillisecond;
  const int last = plan.messages() - int(random.between(2, 7));
  plan.faults = {
      {Kind::kCutRail, last, random.below(4 * kMicrosecond), 100 * kMillisecond, rail.to, rail.from},
      // Taking the registrations away takes long, and the queue pair is there all the time.
      {Kind::kDriverHang, last, 0, 4 * kSecond, (rail.from + 2) % plan.nics},
      {Kind::kLoseLine, rail.some, 0, 0, rail.to, 1}};
}

// Many channels need paths over one NIC, and each call of its driver takes its time.
void keep_a_driver_busy(Plan& plan, Random& random) {
  const Rail rail = aim_at_first_rail(plan, random);
  plan.busy_driver = true;
  const Plan::Line first = plan.channels[0];
  plan.channels.resize(6, first);
  for (Plan::Line& each : plan.channels) {
    each.sender = 0;
    each.sender_nic = first.sender_nic;
    each.receiver_nic = first.receiver_nic;
  }
  for (int nic = 0; nic < plan.nics; ++nic)
    if (nic != plan.spared[0])
      plan.faults.push_back({Kind::kPortDown, rail.some, random.below(kMillisecond), kHistoryBound, nic});
  plan.faults.push_back({Kind::kLate, rail.some / 2, 0, random.between(5, 60) * kMillisecond, rail.to});
}

// The ACKs of channel 0's last messages are lost, and nobody waits at the receiver, which stays open.
void lose_the_last_ack(Plan& plan, Random& random) {
  plan.hopeless = plan.abandons = false;
  Plan::Line& line = plan.channels[0];
  line.messages = 160;
  line.most_bytes = kSlotBytes;
  line.pause = kMillisecond;
  plan.stays_open = 12 * kSecond;
  const int nic = line.sender * plan.nics + line.sender_nic, some = plan.messages() / 4;
  Fault lost =
      at_path(plan.messages() - int(random.between(1, 2)), 0, Kind::kLoseLine, 0, 0, Target::kActive, 0);
  lost.other = 4;
  plan.faults = {lost,
                 {Kind::kLate, some, 0, random.between(5, 60) * kMillisecond, nic},
                 {Kind::kPairErrorSilent, 2 * some, random.below(2 * kMillisecond), 0, nic}};
}

// Balance: channels of process 0 lose a home, so that lanes carry; and while packets are late, some of what
// carries fails.
void break_among_lanes(Plan& plan, Random& random) {
  plan.mode = 2;
  plan.nics = 4;
  plan.hopeless = plan.abandons = false;
  for (Plan::Line& line : plan.channels) {
    line.sender = 0;
    line.sender_nic = line.receiver_nic = 0;
    line.messages = 120;
    line.pause = 30 * kMillisecond;
  }
  plan.spared[0] = plan.spared[1] = 3;
  const int all = plan.messages();
  plan.faults = {{Kind::kPortDown, 20, 0, kHistoryBound, 0}};
  for (int n = 0; n < 5; ++n) {
    const int when = all / 4 + int(random.below(uint64_t(all / 2)));
    const int nic = int(random.between(1, 3));
    plan.faults.push_back({Kind::kLate, when, 0, random.between(5, 60) * kMillisecond, nic % 3 + 1});
    plan.faults.push_back({Kind::kPairErrorSilent, when, random.below(2 * kMillisecond), 0, nic});
  }
}

// The last small messages of channel 0, of which its sending program has its buffers back and waits for
// nothing: an immediate is lost, then what is sent again, or every path.
void lose_what_was_given_back(Plan& plan, Random& random) {
  plan.mode = 1;
  plan.abandons = false;
  plan.hopeless = random.chance(50);
  for (Plan::Line& line : plan.channels) line.pause = 0;
  Plan::Line& line = plan.channels[0];
  line.messages = 160;
  line.most_bytes = 8;
  line.pause = kMillisecond;
  plan.sender_stays = true;
  plan.stays_open = (plan.hopeless ? 60 : 12) * kSecond;
  const int last = plan.messages() - 9;  // the last eight are sent together, after a pause
  plan.hopeless_at = last + 1;
  plan.hopeless_after = kMillisecond + random.skewed(20 * kMicrosecond, 200 * kMillisecond);
  plan.spared[0] = (line.sender_nic + 1) % plan.nics;
  plan.spared[1] = (line.receiver_nic + 1) % plan.nics;
  plan.faults = {{Kind::kLoseImmediate, last, 0, 0, plan.nics + line.receiver_nic, 1},
                 // So that no failback leaves the path that stands still.
                 {Kind::kPortDown, last, 100 * kMillisecond, kHistoryBound, line.sender_nic}};
  for (int nic = 0; nic < plan.nics; ++nic) {
    if (nic != line.sender_nic) plan.faults.push_back({Kind::kLoseCompletion, last, 0, 0, nic, 1});
    if (nic != line.receiver_nic)
      plan.faults.push_back({Kind::kLoseImmediate, last, 0, 0, plan.nics + nic, 1});
  }
}

// Balance: each end finds other lanes at fault, while what they tell each other is late.
void disagree_about_lanes(Plan& plan, Random& random) {
  break_among_lanes(plan, random);
  const int all = plan.messages();
  plan.faults.resize(1);
  for (int n = 0; n < 4; ++n) {
    const int when = all / 4 + int(random.below(uint64_t(all / 2)));
    plan.faults.push_back({Kind::kTcpHold, when, 0, random.skewed(20 * kMicrosecond, 20 * kMillisecond)});
    for (const int process : {0, 1}) {
      const int nic = process * plan.nics + int(random.between(1, 3));
      if (random.chance(70))
        plan.faults.push_back({Kind::kLate, when, 0, random.between(5, 60) * kMillisecond, nic});
      const Time delay = random.skewed(kMicrosecond, 5 * kMillisecond);
      if (random.chance(50) && nic % plan.nics != 3)
        plan.faults.push_back(
            {Kind::kPortDown, when, delay, random.skewed(kMillisecond, 300 * kMillisecond), nic});
      else
        plan.faults.push_back(
            {random.chance(50) ? Kind::kPairError : Kind::kPairErrorSilent, when, delay, 0, nic});
    }
  }
}

// --- Each of these aims at a rule of the protocol. What happens there lasts microseconds, so the faults
// follow what the core reports of itself.

// All channels go from process 0 to 1, over NICs of the same place.
void go_one_way(Plan& plan, int mode, int messages, Time pause) {
  plan.mode = mode;
  plan.nics = 4;
  plan.hopeless = plan.abandons = false;
  plan.scarce = -1;
  plan.faults.clear();
  plan.spared[0] = plan.spared[1] = 3;
  for (Plan::Line& line : plan.channels) {
    line.sender = 0;
    line.receiver_nic = line.sender_nic;
    line.messages = messages;
    line.most_bytes = kSlotBytes;
    line.pause = pause;
  }
}

void let_some_be_late(Plan& plan, Random& random) {
  for (int n = 0; n < 2; ++n)
    plan.faults.push_back({Kind::kLate, int(random.below(uint64_t(plan.messages() / 2))), 0,
                           random.between(5, 60) * kMillisecond, int(random.below(8))});
}

// given_up_fence. The receiver gives up the path that the sender begins to use, whose NIC holds what has
// arrived.
void give_up_what_is_chosen(Plan& plan, Random& random) {
  go_one_way(plan, 1, 120, 2 * kMillisecond);
  for (int n = 0; n < 3; ++n) {
    const int when = plan.messages() / 4 + int(random.below(uint64_t(plan.messages() / 2)));
    plan.faults.push_back(at_path(when, int(random.below(plan.channels.size())), Kind::kPairErrorSilent, 0, 0,
                                  Target::kActive, 0));
    plan.faults.push_back(at_event(Event::kReplayed, n, Kind::kFreeze, random.below(6 * kMicrosecond),
                                   random.skewed(300 * kMicrosecond, 20 * kMillisecond), Target::kEventPeer));
    plan.faults.push_back(at_event(Event::kReplayed, n, Kind::kPortDown,
                                   random.between(4 * kMicrosecond, 28 * kMicrosecond),
                                   random.between(20, 100) * kMillisecond, Target::kEventPeer));
  }
}

// fenced_path, sender_first, segments_of_the_path. The ends leave different paths at once, and the NIC of the
// sender's, at the receiver, holds what has arrived.
void leave_different_paths(Plan& plan, Random& random) {
  go_one_way(plan, 2, 120, 30 * kMillisecond);
  for (Plan::Line& line : plan.channels) line.sender_nic = line.receiver_nic = 0;
  plan.faults.push_back({Kind::kPortDown, 20, 0, kHistoryBound, 0});
  for (int n = 0; n < 3; ++n) {
    const int when = plan.messages() / 4 + int(random.below(uint64_t(plan.messages() / 2)));
    const int channel = int(random.below(plan.channels.size()));
    const Time begin = random.below(50 * kMicrosecond);
    if (random.chance(30)) {
      plan.faults.push_back(at_path(when, channel, Kind::kRefusePosts, begin, 0,
                                    random.chance(50) ? Target::kActive : Target::kLane, 0));
      plan.faults.back().other = int(random.between(1, 3));
      continue;
    }
    const auto soon = [&] { return begin + random.below(40 * kMicrosecond); };
    plan.faults.push_back({Kind::kTcpHold, when, begin, random.skewed(20 * kMicrosecond, 3 * kMillisecond)});
    plan.faults.push_back(at_path(when, channel, Kind::kFreeze, soon(),
                                  random.skewed(500 * kMicrosecond, 30 * kMillisecond), Target::kActive, 1));
    plan.faults.push_back(at_path(when, channel,
                                  random.chance(50) ? Kind::kPairError : Kind::kPairErrorSilent, soon(), 0,
                                  Target::kActive, 0));
    plan.faults.push_back(at_path(when, channel, Kind::kPairError, soon(), 0, Target::kLane, 1));
  }
}

// drop_receivers_path, rest_confirmed. Lanes rest a second after the home NIC has come back: the receiver
// leaves one at that moment; or its program has not looked since traffic came home, so that it has not seen
// what the lanes have brought, and the home fails once more.
void rest_lanes(Plan& plan, Random& random) {
  const bool unseen = random.chance(60);
  go_one_way(plan, 2, 2500, unseen ? 5 * kMicrosecond : 50 * kMicrosecond);
  plan.failback_settle = kMillisecond;
  for (Plan::Line& line : plan.channels) {
    line.sender_nic = line.receiver_nic = 0;
    if (unseen) line.most_bytes = 256;  // copied: no sending program waits for them, and so no sender asks
    line.later_pause = 250 * kMillisecond;
    line.later_messages = 48;
  }
  plan.faults.push_back({Kind::kPortDown, 20, 0, random.between(1, 5) * kMillisecond, 0});
  const int number = int(random.below(4));
  if (unseen) {
    // What is on its way over a lane when traffic goes home arrives while nobody looks: the service thread
    // would soon, so it stands still as soon as it has done its part.
    for (int nic = 1; nic < plan.nics; ++nic)
      plan.faults.push_back({Kind::kLate, 40, 0, 15 * kMillisecond, nic});
    const int home = int(plan.channels.size()) + number;
    plan.faults.push_back(at_event(Event::kFenceStarted, home, Kind::kPause, random.below(3 * kMicrosecond),
                                   1350 * kMillisecond, Target::kNic, 1));
    plan.faults.push_back(at_event(Event::kFenceStarted, home, Kind::kStop,
                                   random.between(105, 170) * kMicrosecond,
                                   random.between(1020, 1300) * kMillisecond, Target::kNic, 1));
    for (int n = 0; n < 4; ++n)
      plan.faults.push_back(at_event(Event::kLaneRests, 2 * n + int(random.below(2)), Kind::kPairErrorSilent,
                                     random.below(20 * kMillisecond), 0, Target::kActive));
    return;
  }
  plan.all_stay = true;
  plan.stays_open = 9 * kSecond;
  for (const auto& [target, side] : {std::pair(Target::kEventPath, 1), {Target::kActive, 0}})
    plan.faults.push_back(at_event(Event::kLaneRests, number, Kind::kPairError,
                                   random.below(28 * kMicrosecond), 0, target, side));
}

// lane_given_up. The receiver gives up what the sender makes a lane, at the end of all traffic.
void give_up_what_becomes_a_lane(Plan& plan, Random& random) {
  go_one_way(plan, 2, 50, 0);
  for (Plan::Line& line : plan.channels) line.sender_nic = line.receiver_nic = 0;
  plan.all_stay = true;
  plan.stays_open = 9 * kSecond;
  plan.faults.push_back({Kind::kPortDown, plan.messages() - int(random.between(1, 8)), 0, kHistoryBound, 0});
  for (int n = 0; n < 3; ++n)
    plan.faults.push_back(at_event(Event::kLaneUp, int(random.below(6)), Kind::kPairError,
                                   random.below(28 * kMicrosecond), 0, Target::kEventPath, 1));
}

// rest_once. Two channels have lost their home, and four others fill one of the NICs that are left for more
// than a second, then do nothing for longer: a lane rests, and carries again.
void carry_again(Plan& plan, Random& random) {
  plan.channels.resize(6, plan.channels[0]);
  go_one_way(plan, 2, 32, 0);
  const int busy = int(random.between(1, 3));
  const Time longer = random.between(1300, 2500) * kMillisecond;
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    Plan::Line& line = plan.channels[i];
    line.sender_nic = line.receiver_nic = i < 2 ? 0 : busy;
    line.messages = i < 2 ? 400 : 72;
    line.pause = (i < 2 ? 150 : 400) * kMillisecond;
    if (i >= 2) line.longer_pause = longer;
  }
  plan.faults.push_back({Kind::kPortDown, 20, 0, kHistoryBound, 0});
  let_some_be_late(plan, random);
}

// Whoever connects is heard, and then nobody is.
void carry_nothing_but_connects(Plan& plan, Random& random) {
  go_one_way(plan, 1, 120, kSecond);
  plan.faults.push_back({Kind::kTcpMute, 20, 0, random.between(11, 13) * kSecond});
  let_some_be_late(plan, random);
}

constexpr Sign kMigrates{Event::kMigrationStarted, Event::kMigrationDone};
constexpr Sign kReplays{Event::kFenceStarted, Event::kReplayed};
// It fences what the peer had begun to use when this end had given it up: nothing started that fence here.
constexpr Sign kFencesGivenUp{Event::kFenceDone, Event::kFenceDone, Event::kMigrationStarted};
// The ends leave different paths, and the receiver follows the sender before it has left its own.
constexpr Sign kLeavesTwo{Event::kMigrationStarted, Event::kMigrationStarted, Event::kMigrationDone};
// None stands by, until one has been opened.
constexpr Sign kWaitsForPath{Event::kMigrationStarted, Event::kPathOpened, Event::kMigrationDone};
constexpr Sign kLeavesAmongLanes{Event::kLaneUp, Event::kMigrationStarted};
constexpr Sign kLeavesAfterRest{Event::kLaneRests, Event::kMigrationStarted};
constexpr Sign kCarriesAgain{Event::kLaneRests, Event::kLaneUp};
constexpr Sign kIsHeardAgain{Event::kChannelUp, Event::kControlRestored};

constexpr Aim kPairDies{"a pair of NICs dies", let_a_pair_die, kMigrates};
constexpr Aim kFirstRail[] = {{"remove what is late", remove_what_is_late, kReplays},
                              {"drop what is chosen", drop_what_is_chosen, kFencesGivenUp},
                              {"cut before the last ACK", cut_before_the_last_ack, {}},
                              {"keep a driver busy", keep_a_driver_busy, kWaitsForPath}};
constexpr Aim kLanesBreak{"break among lanes", break_among_lanes, kLeavesAmongLanes};
/// The seeds with that remainder modulo 64 have that aim, unless they have one of the above.
constexpr std::pair<uint64_t, Aim> kOf64[] = {
    {0, kLanesBreak},
    {1, {"give up what is chosen", give_up_what_is_chosen, kFencesGivenUp}},
    {7, {"leave different paths", leave_different_paths, kLeavesTwo}},
    {16, kLanesBreak},
    {17, {"lose what was given back", lose_what_was_given_back, kReplays}},
    {23, {"rest lanes", rest_lanes, kLeavesAfterRest}},
    {32, kLanesBreak},
    {33, {"lose the last ACK", lose_the_last_ack, {}}},
    {39, {"give up what becomes a lane", give_up_what_becomes_a_lane, kLeavesAmongLanes}},
    {47, {"carry again", carry_again, kCarriesAgain}},
    {48, kLanesBreak},
    {49, {"disagree about lanes", disagree_about_lanes, kLeavesTwo}},
    {55, {"carry nothing but connects", carry_nothing_but_connects, kIsHeardAgain}},
};

}  // namespace

SignWatch::SignWatch(const Plan& plan) : sign_(plan.aim ? plan.aim->sign : Sign{}) {}

void SignWatch::event(const trace::Event& event, int process) {
  if (seen_ || sign_.first == Event::kNone) return;
  const std::pair end(process, event.channel);
  if (event.type == sign_.then && first_seen_.contains(end)) seen_ = true;
  if (event.type == sign_.unless) first_seen_.erase(end);
  if (event.type == sign_.first) first_seen_.insert(end);
}

const Aim* aim_of(uint64_t seed, Random& random) {
  if (random.chance(4)) return &kPairDies;
  if (random.chance(8)) return &kFirstRail[random.below(std::size(kFirstRail))];
  const auto* found = std::find_if(std::begin(kOf64), std::end(kOf64),
                                   [seed](const auto& it) { return it.first == seed % 64; });
  return found == std::end(kOf64) ? nullptr : &found->second;
}

}  // namespace r2ccl::simulation
