// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/history.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "r2ccl/base/log.h"
#include "r2ccl/protocol/wire.h"
#include "r2ccl/service/net.h"
#include "r2ccl/tests/simulation/nic.h"
#include "r2ccl/tests/simulation/system.h"

namespace r2ccl::simulation {
namespace {

using Kind = Fault::Kind;

constexpr uint32_t kSlotBytes = 16 << 10;
constexpr int kSlots = 8;
constexpr int kAsked = 3;                      // times, for a channel that is then abandoned
constexpr Time kConnectBound = 10 * kSecond;   // R2CC_CONNECT_MS of those histories
constexpr Time kBusyCall = 50 * kMillisecond;  // of a driver that is merely slow
constexpr Time kHistoryBound = 90 * kSecond;
constexpr Time kFailBound = 2 * kSecond;  // R2CC_FAIL_BOUND_MS
// What a channel may stand still for, and for each fault, whose own time comes on top.
constexpr Time kRecoveryBound = 3 * kSecond, kOneFault = kSecond / 2;
// … and more where it takes a control connection away: an end that says nothing learns after 2 s that nothing
// gets through (control::Silence), and one second is what it gives the next connection before it tries again.
constexpr Time kControlBound = 3 * kSecond;

bool is_of_nic(Kind kind) { return kind < Kind::kTcpCut; }
// These take a NIC, or what it has, away; the others any NIC may show.
bool spares(Kind kind) {
  return kind == Kind::kPairError || kind == Kind::kPairErrorSilent || kind == Kind::kLoseCompletion ||
         kind == Kind::kLoseImmediate || kind == Kind::kLoseLine || kind == Kind::kLate ||
         kind == Kind::kSlow;
}

struct Seeded {
  static inline Random* random = nullptr;
  static const char* name() { return "simulation"; }
  static uint32_t word() { return uint32_t(random->next()); }
  static void fill(void* out, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(out)[i] = uint8_t(random->next());
  }
};

}  // namespace

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {
      "port_down",      "port_silent", "deaf",        "cut_rail", "pair_error", "pair_error_silent",
      "freeze",         "driver_slow", "driver_hang", "remove",   "pretend",    "lose_completion",
      "lose_immediate", "lose_line",   "late",        "slow",     "tcp_cut",    "tcp_half_open",
      "tcp_drop",       "tcp_hold",    "tcp_swallow", "stop"};
  return kNames[size_t(kind)];
}

int Plan::messages() const {
  int sum = 0;
  for (const Line& line : channels) sum += line.messages;
  return sum;
}

std::string Plan::words() const {
  std::string text = "seed " + std::to_string(seed) + ": mode " + std::to_string(mode) + ", " +
                     std::to_string(nics) + " NICs each, spared " + std::to_string(spared[0]) + " and " +
                     std::to_string(spared[1]) + (hopeless ? ", hopeless" : "") +
                     (scarce >= 0 ? ", epoll of process " + std::to_string(scarce) + " is full" : "") +
                     (pair_dies ? ", a pair of NICs dies" : "") +
                     (aim ? ", aim " + std::to_string(aim) : "") + (abandons ? ", abandons a connect" : "") +
                     (stops_late ? ", NICs stop late" : "") + "\n";
  for (const Line& line : channels)
    text += "  channel " + std::to_string(line.sender) + " -> " + std::to_string(1 - line.sender) +
            ", NICs " + std::to_string(line.sender_nic) + " -> " + std::to_string(line.receiver_nic) + ", " +
            std::to_string(line.messages) + " messages of up to " + std::to_string(line.most_bytes) +
            " bytes, pause " + std::to_string(line.pause / kMicrosecond) + " us\n";
  for (const Fault& fault : faults)
    text += std::string("  ") + name(fault.kind) + " of " + std::to_string(fault.nic) + "/" +
            std::to_string(fault.other) + " after " + std::to_string(fault.after_messages) +
            " messages and " + std::to_string(fault.delay / kMicrosecond) + " us, for " +
            std::to_string(fault.lasts / kMicrosecond) + " us\n";
  return text;
}

// Mode 1: channels 0 and 1 of process 0 lose their NICs within a millisecond, and their programs go on for
// long enough that they are spread over those that are left. The other channels go the other way.
static void let_a_pair_die(Plan& plan, Random& random) {
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

// Faults that go together, at the rail of channel 0, which runs from process 0 to 1; the spared NICs are
// others.
static void aim(Plan& plan, Random& random) {
  enum { kLateAndRemoved = 1, kDroppedWhileChosen, kLastAcknowledgement, kBusyDriver };
  plan.aim = int(random.between(kLateAndRemoved, kBusyDriver));
  Plan::Line& line = plan.channels[0];
  line.pause = 0;
  line.most_bytes = 4096;
  plan.spared[0] = (line.sender_nic + 1) % plan.nics;
  plan.spared[1] = (line.receiver_nic + 1) % plan.nics;
  plan.hopeless = plan.abandons = false;
  const int from = line.sender_nic, to = plan.nics + line.receiver_nic;
  const int some = int(random.between(20, uint64_t(plan.messages() / 2)));
  plan.faults.clear();
  switch (plan.aim) {
    case kLateAndRemoved:  // what is under way meets a device that refuses everything and still takes it in
      plan.faults = {
          {Kind::kLate, some / 2, 0, 400 * kMillisecond, from},
          {Kind::kRemove, some, random.below(2 * kMillisecond), random.between(50, 400) * kMillisecond, to},
          {Kind::kLoseLine, some, 0, 0, to, 1}};
      break;
    case kDroppedWhileChosen:  // the receiver gives up what the sender begins to use
      plan.faults.push_back({Kind::kLate, some / 2, 0, 200 * kMillisecond, plan.spared[0]});
      for (int nic = 0; nic < plan.nics; ++nic)
        if (nic != plan.spared[1])
          plan.faults.push_back({Kind::kPortDown, some, random.skewed(kMicrosecond, 5 * kMillisecond),
                                 300 * kMillisecond, plan.nics + nic});
      plan.faults.push_back({Kind::kTcpHold, some, 0, random.skewed(kMicrosecond, 5 * kMillisecond)});
      break;
    case kLastAcknowledgement: {  // channel 0 sends when all others are done; what comes back is lost
      line.messages = 160;
      line.most_bytes = kSlotBytes;
      line.pause = kMillisecond;
      const int last = plan.messages() - int(random.between(2, 7));
      plan.faults = {{Kind::kCutRail, last, random.below(4 * kMicrosecond), 100 * kMillisecond, to, from},
                     // Taking the registrations away takes long, and the queue pair is there all the time.
                     {Kind::kDriverHang, last, 0, 4 * kSecond, (from + 2) % plan.nics},
                     {Kind::kLoseLine, some, 0, 0, to, 1}};
      break;
    }
    case kBusyDriver: {  // many channels need paths over one NIC, and each call takes its time
      const Plan::Line first = line;
      plan.channels.resize(6, first);
      for (Plan::Line& each : plan.channels) {
        each.sender = 0;
        each.sender_nic = first.sender_nic;
        each.receiver_nic = first.receiver_nic;
      }
      for (int nic = 0; nic < plan.nics; ++nic)
        if (nic != plan.spared[0])
          plan.faults.push_back({Kind::kPortDown, some, random.below(kMillisecond), kHistoryBound, nic});
      plan.faults.push_back({Kind::kLate, some / 2, 0, random.between(5, 60) * kMillisecond, to});
      break;
    }
  }
}

// The ACKs of channel 0's last messages are lost, and nobody waits at the receiver, which stays open.
static void lose_the_last_ack(Plan& plan, Random& random) {
  plan.hopeless = plan.abandons = false;
  Plan::Line& line = plan.channels[0];
  line.messages = 160;
  line.most_bytes = kSlotBytes;
  line.pause = kMillisecond;
  plan.stays_open = 12 * kSecond;
  const int nic = line.sender * plan.nics + line.sender_nic, some = plan.messages() / 4;
  plan.faults = {{Kind::kLoseLine, plan.messages() - int(random.between(1, 2)), 0, 0, nic, 4},
                 {Kind::kLate, some, 0, random.between(5, 60) * kMillisecond, nic},
                 {Kind::kPairErrorSilent, 2 * some, random.below(2 * kMillisecond), 0, nic}};
}

// Balance: channels of process 0 lose a home, so that lanes carry; and while packets are late, some of what
// carries fails.
static void break_among_lanes(Plan& plan, Random& random) {
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
static void lose_what_was_given_back(Plan& plan, Random& random) {
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
static void disagree_about_lanes(Plan& plan, Random& random) {
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

Plan plan_of(uint64_t seed) {
  Random random(Random(seed).next());
  Plan plan;
  plan.seed = seed;
  plan.stops_late =
      seed * 0x9e3779b97f4a7c15 >> 29 & 1;  // not from `random`: seeds that were wrong stay what they are
  plan.mode = random.chance(25) ? 2 : 1;
  plan.nics = int(random.between(3, 4));
  for (int& nic : plan.spared) nic = int(random.below(uint64_t(plan.nics)));
  const int channels = int(random.between(4, 6));
  for (int i = 0; i < channels; ++i) {
    Plan::Line line;
    line.sender = i < 2 ? i : int(random.below(2));
    line.sender_nic = int(random.below(uint64_t(plan.nics)));
    line.receiver_nic = random.chance(80) ? line.sender_nic : int(random.below(uint64_t(plan.nics)));
    line.messages = int(random.between(50, 70));
    constexpr uint32_t kMost[] = {8, 256, 4096, kSlotBytes};
    line.most_bytes = kMost[random.below(std::size(kMost))];
    line.pause = random.chance(30) ? random.skewed(100 * kMicrosecond, 50 * kMillisecond) : 0;
    plan.channels.push_back(line);
  }
  plan.hopeless = random.chance(5);
  const int faults = int(random.between(3, 6));
  for (int i = 0; i < faults; ++i) {
    Fault fault{};
    fault.kind = Kind(random.below(uint64_t(Kind::kCount)));
    fault.after_messages = int(random.below(uint64_t(plan.messages() - 20)));
    fault.delay = random.skewed(kMicrosecond, 20 * kMillisecond);
    fault.lasts = random.skewed(kMillisecond, kSecond);
    const int process = int(random.below(2));
    int nic = int(random.below(uint64_t(plan.nics)));
    if (!spares(fault.kind) && nic == plan.spared[process]) nic = (nic + 1) % plan.nics;
    fault.nic = process * plan.nics + nic;
    switch (fault.kind) {
      case Kind::kCutRail:
        fault.other = (1 - process) * plan.nics + int(random.below(uint64_t(plan.nics)));
        break;
      case Kind::kDriverSlow:
        fault.lasts = std::min<Time>(fault.lasts, 400 * kMillisecond);
        break;
      case Kind::kDriverHang:
        fault.lasts = random.between(600, 8000) * kMillisecond;
        break;
      case Kind::kRemove:
      case Kind::kPretend:
        fault.lasts = std::min<Time>(fault.lasts, 400 * kMillisecond);
        break;
      case Kind::kLoseCompletion:
      case Kind::kLoseImmediate:
      case Kind::kLoseLine:
        fault.other = int(random.between(1, 2));
        break;
      case Kind::kTcpHalfOpen:
        fault.other = int(random.between(1, 2));
        fault.lasts = 0;
        break;
      case Kind::kTcpCut:
      case Kind::kTcpSwallow:
      case Kind::kPairError:
      case Kind::kPairErrorSilent:
        fault.lasts = 0;
        break;
      case Kind::kTcpDrop:
      case Kind::kTcpHold:
        fault.lasts = random.skewed(kMillisecond, 2500 * kMillisecond);
        break;
      case Kind::kStop:
        fault.nic = process;
        fault.lasts = random.skewed(kMillisecond, 3 * kSecond);
        break;
      default:
        break;
    }
    plan.faults.push_back(fault);
  }
  Random more(random.next());
  if (more.chance(10)) plan.scarce = int(more.below(2));
  plan.abandons = !plan.hopeless && more.chance(5);
  if (more.chance(4))
    let_a_pair_die(plan, more);
  else if (more.chance(8))
    aim(plan, more);
  else if (seed % 64 == 33)
    lose_the_last_ack(plan, more);
  else if (seed % 64 == 17)
    lose_what_was_given_back(plan, more);
  else if (seed % 64 == 49)
    disagree_about_lanes(plan, more);
  else if (seed % 16 == 0)
    break_among_lanes(plan, more);
  return plan;
}

namespace {

/// One history while it runs.
class History final : public MemoryWatch {
 public:
  History(const Plan& plan, bool tell) : plan_(plan), tell_(tell), random_(~plan.seed), fabric_(random_) {
    Seeded::random = &random_;
    g_fabric = &fabric_;
    fabric_.watch = this;
    fabric_.stops_late = plan.stops_late;
    memory_.resize(plan.channels.size() * 2 * kSlots * kSlotBytes + 64);
    open_.resize(plan.channels.size() * 2 * kSlots);
    for (int process = 0; process < 2; ++process)
      for (int nic = 0; nic < plan.nics; ++nic) fabric_.add(process, nic, 12.5);
    if (plan.busy_driver()) fabric_.nics[size_t(plan.spared[0])]->command_time = kBusyCall;
    for (size_t i = 0; i < plan.channels.size(); ++i) {
      const Plan::Line& line = plan.channels[i];
      ends_.push_back({i, true, line.sender});
      ends_.push_back({i, false, 1 - line.sender});
    }
    handles_.resize(plan.channels.size());
  }

  Verdict run();

  // --- MemoryWatch
  void written(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void read(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void broken(const std::string& what) override { violate(what); }

 private:
  enum class Stage { kSetUp, kTraffic, kClosing, kOver };
  struct End {
    size_t channel;
    bool sender;
    int process;
    Stage stage = Stage::kSetUp;
    Listener* listener = nullptr;
    Channel* comm = nullptr;
    Registration* registration = nullptr;
    std::array<std::byte, kHandleBytes> handle{};
    bool handle_taken = false;
    int filled = 0, posted = 0, done = 0;
    std::array<Request*, kSlots> requests{};
    Time rests_until = 0, progress = 0;
    bool stayed = false;
    std::string error;
  };
  void violate(const std::string& what) {
    if (verdict_.violation.empty()) verdict_.violation = what;
    if (tell_) std::printf("%12.6f VIOLATION %s\n", double(scheduler().now()) / 1e9, what.c_str());
  }
  uint8_t* slot(const End& end, int message) {
    return memory_.data() + (end.channel * 2 + !end.sender) * kSlots * kSlotBytes +
           size_t(message % kSlots) * kSlotBytes;
  }
  size_t index(const End& end, int message) const {
    return (end.channel * 2 + !end.sender) * kSlots + size_t(message % kSlots);
  }
  uint32_t size_of(size_t channel, int message) const {
    Random random(plan_.seed ^ (channel << 32) ^ uint64_t(message) << 8);
    const uint32_t most = plan_.channels[channel].most_bytes;
    return random.chance(10) ? 0 : random.chance(30) ? most : uint32_t(random.below(most + 1));
  }
  void fill(size_t channel, int message, uint8_t* out, uint32_t bytes) const {
    uint64_t word = (plan_.seed + channel * 1000003 + uint64_t(message)) * 0x9e3779b97f4a7c15;
    uint32_t i = 0;
    for (; i + 8 <= bytes; i += 8, word += 0xd1342543de82ef95) std::memcpy(out + i, &word, 8);
    std::memcpy(out + i, &word, bytes - i);
  }
  bool holds(size_t channel, int message, const uint8_t* at, uint32_t bytes) const {
    uint64_t word = (plan_.seed + channel * 1000003 + uint64_t(message)) * 0x9e3779b97f4a7c15;
    uint32_t i = 0;
    uint64_t differs = 0;
    for (uint64_t there; i + 8 <= bytes; i += 8, word += 0xd1342543de82ef95) {
      std::memcpy(&there, at + i, 8);
      differs |= there ^ word;
    }
    return differs == 0 && std::memcmp(at + i, &word, bytes - i) == 0;
  }
  /// Until when the program of `process` has nothing to look at: all that it has open rests. 0: something may
  /// move at any time.
  Time rests_until(int process) const {
    Time until = 0;
    for (const End& end : ends_) {
      if (end.process != process || end.stage == Stage::kOver) continue;
      if (end.stage != Stage::kTraffic || end.rests_until <= scheduler().now()) return 0;
      until = until == 0 ? end.rests_until : std::min(until, end.rests_until);
    }
    return until;
  }
  void program(int process);
  bool step(Net& net, End& end);
  bool set_up(Net& net, End& end);
  bool traffic(Net& net, End& end);
  void close(Net& net, End& end);
  bool step_abandoned(Net& net, int process);
  void end_abandoned(Net& net, int process);
  void failed(End& end, const Error& error);
  void received();
  void apply(const Fault& fault);
  void hopeless();
  void check_log(const std::string& text);
  Time allowed_gap() const;

  const Plan& plan_;
  const bool tell_;
  Random random_;
  Fabric fabric_;
  std::vector<uint8_t> memory_;
  std::vector<int> open_;  // per slot: 0: the program's; else the bytes that NICs may touch, and one
  std::vector<End> ends_;
  struct Handle {
    bool ready = false;
    std::array<std::byte, kHandleBytes> bytes{};
  };
  std::vector<Handle> handles_;
  struct Abandoned {  // a connect that nobody goes on with
    Handle handle;
    Listener* listener = nullptr;
    int asked = 0;
    Time at = 0;
    bool looked_at = false;
  } abandoned_;
  int last_nic_[2] = {-1, -1};  // that has read a buffer of channels 0 and 1
  int received_ = 0;
  int programs_done_ = 0, programs_over_ = 0;
  Verdict verdict_;
  Time hopeless_since_ = 0;
  bool dead_error_seen_ = false;
  std::set<std::pair<int, Kind>> applied_;  // NIC, over all processes
  static History* current_;
  static void log(LogLevel level, const char* file, int line, const char* text);
};
History* History::current_ = nullptr;

void History::log(LogLevel, const char*, int, const char* text) {
  if (std::strstr(text, "moving its traffic")) ++current_->verdict_.migrations;
  if (current_->tell_)
    std::printf("%12.6f %d: %s\n", double(scheduler().now()) / 1e9, scheduler().process(), text);
  if (scheduler().process() >= 0) current_->check_log(text);
}

// What the log says of a NIC must have happened to that NIC.
void History::check_log(const std::string& text) {
  struct Claim {
    const char* says;
    std::vector<Kind> is_true_after;
  };
  static const Claim kClaims[] = {{" went down", {Kind::kPortDown, Kind::kRemove, Kind::kPretend}},
                                  {" is gone", {Kind::kRemove, Kind::kPretend}},
                                  {" has not returned from", {Kind::kDriverSlow, Kind::kDriverHang}}};
  constexpr std::string_view kNic = "NIC sim", kOf = " of node", kToldBy = "told by node",
                             kPeers = "the peer's ";
  for (const Claim& claim : kClaims)
    for (size_t at = text.find(claim.says); at != std::string::npos; at = text.find(claim.says, at + 1)) {
      const size_t nic = text.rfind(kNic, at);
      if (nic == std::string::npos) continue;
      const size_t behind = nic + kNic.size() + 1;  // one digit
      const size_t told = text.rfind(kToldBy, nic);
      int process = scheduler().process();
      if (text.compare(behind, kOf.size(), kOf) == 0 && behind + kOf.size() + 1 == at)
        process = text[behind + kOf.size()] - '0';
      else if (behind != at)
        continue;  // it is said of something else
      else if (told != std::string::npos)
        process = text[told + kToldBy.size()] - '0';
      if (nic >= kPeers.size() && text.compare(nic - kPeers.size(), kPeers.size(), kPeers) == 0)
        process = 1 - process;
      const int number = process * plan_.nics + (text[behind - 1] - '0');
      if (std::none_of(claim.is_true_after.begin(), claim.is_true_after.end(), [&](Kind kind) {
            return applied_.contains({number, kind});
          }))
        violate("the log says what did not happen to NIC " + std::to_string(number) + ": " + text);
    }
}

void History::written(const Nic& nic, const uint8_t* at, size_t bytes) {
  if (at < memory_.data() || at >= memory_.data() + memory_.size() || bytes == 0) return;
  const size_t offset = size_t(at - memory_.data()), which = offset / kSlotBytes;
  const size_t behind = offset % kSlotBytes + bytes;
  if (which / kSlots % 2 == 0)
    violate("a send buffer was written by a NIC");
  else if (open_[which] == 0 && nic.unstoppable && !ends_[which / kSlots / 2 * 2 + 1].error.empty())
    return;  // its channel has failed, because nobody can stop this NIC, and has said so
  else if (open_[which] == 0)
    violate("a receive buffer of channel " + std::to_string(which / kSlots / 2) +
            " was written after its receive had been reported, by NIC " + std::to_string(nic.number));
  else if (behind > kSlotBytes)
    violate("a NIC wrote beyond a receive buffer");
}

void History::read(const Nic& nic, const uint8_t* at, size_t bytes) {
  if (at < memory_.data() || at >= memory_.data() + memory_.size() || bytes == 0) return;
  const size_t which = size_t(at - memory_.data()) / kSlotBytes;
  if (const size_t channel = which / kSlots / 2; channel < 2) last_nic_[channel] = nic.number;
  if (open_[which] == 0 && !nic.unstoppable)
    violate("a send buffer of channel " + std::to_string(which / kSlots / 2) + " was given back while NIC " +
            std::to_string(nic.number) + " still reads it");
}

// A known limit: the buffers of small messages are given back before the receiver has them, and a sender that
// is closed waits for its word for 0.1 s only where the control connection carries nothing, or the receiver's
// process is stopped.
void History::failed(End& end, const Error& error) {
  const auto copies_are_lost = [&] {
    return !end.sender &&
           size_of(end.channel, end.done) <= r2ccl::wire::kCopiedBytes &&  // the oldest that it lacks
           ends_[2 * end.channel].stage != Stage::kTraffic &&
           std::any_of(plan_.faults.begin(), plan_.faults.end(), [&](const Fault& fault) {
             return fault.kind == Kind::kTcpDrop || fault.kind == Kind::kTcpHold ||
                    fault.kind == Kind::kTcpHalfOpen || fault.kind == Kind::kTcpSwallow ||
                    (fault.kind == Kind::kStop && fault.nic == end.process);
           });
  };
  end.error = error.message;
  if (tell_)
    std::printf("%12.6f error at process %d, channel %zu: %s\n", double(scheduler().now()) / 1e9, end.process,
                end.channel, error.message.c_str());
  const auto has = [&](Kind kind) {
    return std::any_of(plan_.faults.begin(), plan_.faults.end(),
                       [kind](const Fault& fault) { return fault.kind == kind; });
  };
  ++verdict_.errors;
  const bool unfenceable = error.message.find("cannot be sent again") != std::string::npos ||
                           error.code == ErrorCode::kUnfenceable;
  const bool excused = (unfenceable && (has(Kind::kDriverHang) || has(Kind::kFreeze))) ||
                       (plan_.hopeless && hopeless_since_ != 0) ||
                       (error.code == ErrorCode::kPeerGone && (dead_error_seen_ || copies_are_lost()));
  if (!excused) return violate("an error although a path works: " + error.message);
  dead_error_seen_ = true;
  if (hopeless_since_ != 0 && scheduler().now() - hopeless_since_ > kHistoryBound / 2)
    violate("no path is left, and the error comes late: " + error.message);
}

void History::received() {
  ++received_;
  if (tell_ && received_ % 20 == 0)
    std::printf("%12.6f %d messages have been received\n", double(scheduler().now()) / 1e9, received_);
  for (const Fault& fault : plan_.faults)
    if (fault.after_messages + 1 == received_)
      scheduler().after(fault.delay, [this, &fault] { apply(fault); });
  if (plan_.hopeless && received_ == (plan_.hopeless_at > 0 ? plan_.hopeless_at : plan_.messages() / 2))
    scheduler().after(plan_.hopeless_after, [this] { hopeless(); });
}

void History::hopeless() {
  hopeless_since_ = scheduler().now();
  if (tell_)
    std::printf("%12.6f fault: every NIC of process 0 is deaf from here on\n", double(hopeless_since_) / 1e9);
  for (auto& nic : fabric_.nics)
    if (nic->process == 0) nic->deaf = nic->ever_faulty = true;
}

void History::apply(const Fault& fault) {
  if (tell_)
    std::printf("%12.6f fault: %s of %d/%d for %llu us\n", double(scheduler().now()) / 1e9, name(fault.kind),
                fault.nic, fault.other, static_cast<unsigned long long>(fault.lasts / kMicrosecond));
  const Time now = scheduler().now();
  Nic& nic = *fabric_.nics[size_t(fault.nic)];
  if (is_of_nic(fault.kind) && !spares(fault.kind)) nic.ever_faulty = true;
  if (is_of_nic(fault.kind)) applied_.emplace(fault.nic, fault.kind);
  const auto later = [&](auto what) { scheduler().after(fault.lasts, what); };
  System& system = kernel();
  switch (fault.kind) {
    case Kind::kPortDown:
    case Kind::kPortSilent: {
      const bool told = fault.kind == Kind::kPortDown;
      fabric_.port(nic, false, told);
      later([this, &nic, told] { fabric_.port(nic, true, told); });
      break;
    }
    case Kind::kDeaf:
      nic.deaf = true;
      later([this, &nic] { nic.deaf = plan_.hopeless && hopeless_since_ != 0 && nic.process == 0; });
      break;
    case Kind::kCutRail: {
      const std::pair rail{fault.nic, fault.other};
      const bool spared = (fault.nic % plan_.nics == plan_.spared[fault.nic / plan_.nics]) &&
                          (fault.other % plan_.nics == plan_.spared[fault.other / plan_.nics]);
      if (spared) break;
      fabric_.cut.insert(rail);
      later([this, rail] { fabric_.cut.erase(rail); });
      break;
    }
    case Kind::kPairError:
    case Kind::kPairErrorSilent:
      fabric_.pair_error(nic, fault.kind == Kind::kPairError);
      break;
    case Kind::kFreeze:
      nic.frozen_until = std::max(nic.frozen_until, now + fault.lasts);
      break;
    case Kind::kDriverSlow:
    case Kind::kDriverHang:
      nic.driver_returns = std::max(nic.driver_returns, now + fault.lasts);
      nic.unstoppable = nic.unstoppable || fault.kind == Kind::kDriverHang;
      break;
    case Kind::kRemove:
      if (nic.refuses) break;
      nic.unstoppable = true;
      fabric_.remove(nic, fault.lasts);
      break;
    case Kind::kPretend:
      if (nic.refuses) break;
      nic.unstoppable = nic.pretends = true;
      fabric_.say(nic, IBV_EVENT_DEVICE_FATAL);
      later([this, &nic] { fabric_.remove(nic, 10 * kMillisecond); });
      break;
    case Kind::kLoseCompletion:
      nic.lose_completions += fault.other;
      break;
    case Kind::kLoseImmediate:
      nic.lose_immediates += fault.other;
      break;
    case Kind::kLoseLine:
      nic.lose_lines += fault.other;
      break;
    case Kind::kLate:
      nic.late = fabric_.lifetime;
      later([&nic] { nic.late = 0; });
      break;
    case Kind::kSlow:
      nic.bytes_per_ns = 1.25;
      later([&nic] { nic.bytes_per_ns = 12.5; });
      break;
    case Kind::kTcpCut:
      system.cut_connections(random_, 3);
      break;
    case Kind::kTcpHalfOpen:
      system.cut_connections(random_, fault.other);
      break;
    case Kind::kTcpDrop:
      system.weather.drops = true;
      later([&system] { system.weather.drops = false; });
      break;
    case Kind::kTcpHold:
      system.weather.held_until = now + fault.lasts;
      break;
    case Kind::kTcpSwallow:
      system.swallow_connections(random_);
      break;
    case Kind::kStop:
      scheduler().stop_process(fault.nic, now + fault.lasts);
      break;
    case Kind::kCount:
      break;
  }
}

bool History::set_up(Net& net, End& end) {
  const Plan::Line& line = plan_.channels[end.channel];
  Handle& handle = handles_[end.channel];
  Result<Channel*> made(static_cast<Channel*>(nullptr));
  if (end.sender) {
    if (!handle.ready) return false;
    if (!std::exchange(end.handle_taken, true)) end.handle = handle.bytes;
    made = net.connect(line.sender_nic, end.handle.data());
  } else {
    if (!end.listener) {
      auto listener = net.listen(line.receiver_nic, handle.bytes.data());
      if (!listener) return failed(end, listener.error()), end.stage = Stage::kOver, true;
      end.listener = *listener;
      handle.ready = true;
    }
    made = net.accept(end.listener);
  }
  if (!made) {
    failed(end, made.error());
    end.stage = Stage::kClosing;
    return true;
  }
  if (!*made) return false;
  end.comm = *made;
  auto registered = net.reg(end.comm, slot(end, 0), size_t(kSlots) * kSlotBytes);
  if (!registered) {
    failed(end, registered.error());
    end.stage = Stage::kClosing;
    return true;
  }
  end.registration = *registered;
  end.stage = Stage::kTraffic;
  if (tell_)
    std::printf("%12.6f channel %zu is ready at process %d\n", double(scheduler().now()) / 1e9, end.channel,
                end.process);
  end.progress = scheduler().now();
  return true;
}

bool History::traffic(Net& net, End& end) {
  const Plan::Line& line = plan_.channels[end.channel];
  const Time now = scheduler().now();
  if (now < end.rests_until) return false;
  bool some = false;
  while (end.posted < line.messages && end.posted < end.done + kSlots) {
    uint8_t* const data = slot(end, end.posted);
    const uint32_t bytes = size_of(end.channel, end.posted);
    int& open = open_[index(end, end.posted)];
    if (end.sender && end.filled == end.posted) fill(end.channel, end.filled++, data, bytes);
    open = end.sender ? int(bytes) + 1 : int(kSlotBytes);
    auto request = end.sender ? net.isend(end.comm, data, bytes, end.registration)
                              : net.irecv(end.comm, data, kSlotBytes, end.registration);
    if (!request) {
      failed(end, request.error());
      end.stage = Stage::kClosing;
      return true;
    }
    if (!*request) {
      open = 0;
      break;
    }
    end.requests[size_t(end.posted++ % kSlots)] = *request;
    some = true;
  }
  while (end.done < end.posted) {
    auto outcome = net.test(end.requests[size_t(end.done % kSlots)]);
    if (!outcome) {
      failed(end, outcome.error());
      end.stage = Stage::kClosing;
      return true;
    }
    if (!outcome->done) break;
    uint8_t* const data = slot(end, end.done);
    open_[index(end, end.done)] = 0;
    if (end.sender) {
      std::memset(data, 0x5a, 64);
    } else {
      const uint32_t bytes = size_of(end.channel, end.done);
      if (outcome->bytes != bytes || !holds(end.channel, end.done, data, bytes))
        violate("message " + std::to_string(end.done) + " of channel " + std::to_string(end.channel) +
                " arrived with other bytes than were sent");
      received();
    }
    ++end.done;
    verdict_.longest_gap = std::max(verdict_.longest_gap, now - end.progress);
    end.progress = now;
    some = true;
    if (line.pause > 0 && end.done % 8 == 0) {
      end.rests_until = now + line.pause;
      end.progress = end.rests_until;
      break;
    }
  }
  if (end.done == line.messages && end.sender == plan_.sender_stays && end.channel == 0 &&
      plan_.stays_open > 0 && !end.stayed) {
    end.stayed = true;
    end.rests_until = now + plan_.stays_open;
  } else if (end.done == line.messages) {
    end.stage = Stage::kClosing;
  }
  return some;
}

void History::close(Net& net, End& end) {
  if (end.comm) {
    if (end.registration) (void)net.dereg(end.comm, end.registration);
    (void)net.close(end.comm);
  }
  if (end.listener) (void)net.close(end.listener);
  for (int i = 0; i < kSlots; ++i) open_[index(end, i)] = 0;
  end.stage = Stage::kOver;
}

bool History::step(Net& net, End& end) {
  switch (end.stage) {
    case Stage::kSetUp:
      return set_up(net, end);
    case Stage::kTraffic:
      return traffic(net, end);
    case Stage::kClosing:
      close(net, end);
      return true;
    case Stage::kOver:
      return false;
  }
  return false;
}

// True: it is over, as far as it goes.
bool History::step_abandoned(Net& net, int process) {
  if (!plan_.abandons) return true;
  Abandoned& one = abandoned_;
  if (process == 1 && !one.listener) {
    auto listener = net.listen(plan_.spared[1], one.handle.bytes.data());
    if (!listener) return violate("no listener: " + listener.error().message), true;
    one.listener = *listener;
    one.handle.ready = true;
  }
  if (process == 1 || !one.handle.ready) return one.handle.ready;
  if (one.asked == kAsked) return true;
  ++one.asked;
  one.at = scheduler().now();
  auto made = net.connect(plan_.spared[0], one.handle.bytes.data());
  if (!made) violate("a connect that is abandoned fails: " + made.error().message);
  if (made && *made) (void)net.close(*made), one.asked = kAsked;  // it was quick
  return one.asked == kAsked;
}

void History::end_abandoned(Net& net, int process) {
  if (!plan_.abandons) return;
  Abandoned& one = abandoned_;
  if (process == 0) {
    Time until = one.at + kConnectBound + 2 * kSecond;
    for (const Fault& fault : plan_.faults)  // a process's own pauses do not count
      if (fault.kind == Kind::kStop) until += fault.lasts;
    if (scheduler().now() < until) scheduler().sleep(until - scheduler().now());
    if (fabric_.left(0) > 0) violate("queue pairs are left of a connect that nobody asks for any more");
    one.looked_at = true;
    return;
  }
  while (!one.looked_at) scheduler().sleep(kMillisecond);
  if (one.listener) (void)net.close(one.listener);
}

void History::program(int process) {
  setenv("R2CC_NODE_NAME", process == 0 ? "node0" : "node1", 1);
  auto net = Net::make();
  if (!net) {
    violate("no Net: " + net.error().message);
    ++programs_over_;
    return;
  }
  Time pause = kMicrosecond, moved = 0;
  for (;;) {
    bool some = false, all_over = step_abandoned(**net, process);
    for (End& end : ends_) {
      if (end.process != process) continue;
      some |= step(**net, end);
      all_over &= end.stage == Stage::kOver;
    }
    if (all_over) break;
    if (some) moved = scheduler().now();
    // One that has waited for long looks less often, so that histories cost less.
    const Time longest =
        scheduler().now() - moved > 20 * kMillisecond ? 500 * kMicrosecond : 100 * kMicrosecond;
    pause = some ? kMicrosecond : std::min(2 * pause, longest);
    const Time until = plan_.abandons ? 0 : rests_until(process);
    scheduler().sleep(until > scheduler().now() ? until - scheduler().now() : pause);
  }
  ++programs_done_;
  while (programs_done_ < 2) scheduler().sleep(kMillisecond);
  end_abandoned(**net, process);
  // A process that exits leaves its Net as it is: a thread that its driver keeps still uses it, and so does a
  // NIC that nobody could stop. This one waits for both.
  while (std::any_of(fabric_.nics.begin(), fabric_.nics.end(), [process](const auto& nic) {
    return nic->process == process &&
           (nic->driver_returns > scheduler().now() || ((nic->refuses || nic->pretends) && !nic->gone));
  }))
    scheduler().sleep(kMillisecond);
  net->reset();
  ++programs_over_;
}

// A silence that ended makes the watchdog wait longer before it takes a queue pair for one that stands still:
// four times R2CC_STUCK_MS, where 3 s are allowed for.
constexpr Time kPatience = kSecond;

Time History::allowed_gap() const {
  Time sum = kRecoveryBound + (plan_.busy_driver() ? 400 * kBusyCall : 0);
  for (const Fault& fault : plan_.faults) {
    sum += kOneFault + (fault.lasts < kHistoryBound ? fault.lasts : 0);  // one that is for good is left
    if (fault.kind == Kind::kLoseCompletion) sum += kPatience;
    if (fault.kind >= Kind::kTcpCut && fault.kind <= Kind::kTcpSwallow) sum += kControlBound;
  }
  return sum;
}

Verdict History::run() {
  current_ = this;
  set_log_sink(&History::log);
  for (int process = 0; process < 2; ++process)
    scheduler().spawn(process, [this, process] { program(process); });
  const bool over = scheduler().run(
      kHistoryBound, [this] { return programs_over_ == 2 || (!tell_ && !verdict_.violation.empty()); });
  verdict_.events = scheduler().events();
  verdict_.simulated = scheduler().now();
  if (!verdict_.violation.empty()) return verdict_;
  if (plan_.pair_dies && verdict_.errors == 0 && last_nic_[0] == last_nic_[1])
    violate("two channels that have lost their NICs share NIC " + std::to_string(last_nic_[0]) +
            ", and another carries nothing");
  if (!over) {
    std::string what = "it does not end:";
    for (const End& end : ends_)
      if (end.stage != Stage::kOver)
        what += " channel " + std::to_string(end.channel) + (end.sender ? " sender" : " receiver") +
                " stage " + std::to_string(int(end.stage)) + " " + std::to_string(end.done) + "/" +
                std::to_string(end.posted);
    violate(what);
  }
  if (verdict_.longest_gap > allowed_gap())
    violate("a channel stood still for " + std::to_string(verdict_.longest_gap / kMillisecond) +
            " ms, more than " + std::to_string(allowed_gap() / kMillisecond));
  for (int process = 0; process < 2; ++process) {
    if (fabric_.left(process) > 0) violate("queue pairs or registrations are left");
    if (kernel().open_files(process) > 0) violate("descriptors are left");
  }
  return verdict_;
}

}  // namespace

Verdict run(const Plan& plan, bool tell) {
  static randombytes_implementation seeded{};
  seeded.implementation_name = &Seeded::name;
  seeded.random = &Seeded::word;
  seeded.buf = &Seeded::fill;
  randombytes_set_implementation(&seeded);
  setenv("R2CC_MODE", std::to_string(plan.mode).c_str(), 1);
  setenv("NCCL_IB_TIMEOUT", "14", 1);
  if (plan.abandons) setenv("R2CC_CONNECT_MS", std::to_string(kConnectBound / kMillisecond).c_str(), 1);
  kernel().scarce = plan.scarce;
  static History* const history = new History(plan, tell);  // its memory is NICs': it stays
  return history->run();
}

}  // namespace r2ccl::simulation
