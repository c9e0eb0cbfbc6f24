// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/history.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/wire.h"
#include "r2ccl/service/net.h"
#include "r2ccl/tests/simulation/nic.h"
#include "r2ccl/tests/simulation/system.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl::simulation {
namespace {

using Kind = Fault::Kind;

constexpr int kSlots = 8;
constexpr int kAsked = 3;                      // times, for a channel that is then abandoned
constexpr Time kConnectBound = 10 * kSecond;   // R2CC_CONNECT_MS of those histories
constexpr Time kBusyCall = 50 * kMillisecond;  // of a driver that is merely slow
constexpr Time kConnectMost = 30 * kSecond;    // … and usually
constexpr Time kFailBound = 2 * kSecond;       // R2CC_FAIL_BOUND_MS
constexpr Time kSeenLate = 50 * kMillisecond;  // a segment, by a program that rests or waits
// What a channel may stand still for, and for each fault, whose own time comes on top.
constexpr Time kRecoveryBound = 3 * kSecond, kOneFault = kSecond / 2;
// … and more where it takes a control connection away: an end that says nothing learns after 2 s that nothing
// gets through (control::Silence), and one second is what it gives the next connection before it tries again.
constexpr Time kControlBound = 3 * kSecond;

bool is_of_control(Kind kind) {
  return (kind >= Kind::kTcpCut && kind <= Kind::kTcpSwallow) || kind == Kind::kTcpMute;
}
constexpr Time kMigrationBound = 200 * kMillisecond;

struct Seeded {
  static inline Random* random = nullptr;
  static const char* name() { return "simulation"; }
  static uint32_t word() { return uint32_t(random->next()); }
  static void fill(void* out, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) static_cast<uint8_t*>(out)[i] = uint8_t(random->next());
  }
};

// When nothing has gone wrong for so long, both ends agree on their paths, and none is half fenced.
constexpr Time kCalm = 7 * kSecond, kLookEvery = 100 * kMillisecond;

/// One history while it runs.
class History final : public MemoryWatch {
 public:
  History(const Plan& plan, bool tell) : plan_(plan), tell_(tell), random_(~plan.seed), fabric_(random_) {
    Seeded::random = &random_;
    g_fabric = &fabric_;
    fabric_.watch = this;
    fabric_.stops_late = plan.stops_late;
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
    seen_.resize(plan.faults.size());
    slow_.resize(plan.channels.size());
    for (const Plan::Line& line : plan.channels) messages_.push_back(line.messages);
  }

  Verdict run();

  // --- MemoryWatch
  void written(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void read(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void broken(const std::string& what) override { violate(what); }

  static History* current() { return current_; }
  /// What the core reports of itself.
  void event(const trace::Event& event);

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
    Time arrived = 0;  // when the receiver saw the last segment
    bool stayed = false;
    std::string error;
  };
  void digest(uint64_t value) { verdict_.digest = (verdict_.digest ^ value) * 0x100000001b3; }
  void violate(const std::string& what) {
    if (verdict_.violation.empty()) verdict_.violation = what;
    if (tell_) std::printf("%12.6f VIOLATION %s\n", double(scheduler().now()) / 1e9, what.c_str());
  }
  uint8_t* slot(const End& end, int message) {
    return memory_.get() + (end.channel * 2 + !end.sender) * kSlots * kSlotBytes +
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
  Time pause_after(const End& end) const;
  void close(Net& net, End& end);
  bool step_abandoned(Net& net, int process);
  void end_abandoned(Net& net, int process);
  void failed(End& end, const Error& error);
  void received();
  void happen(const Fault& fault, const trace::Event& event);
  void apply(const Fault& fault, uint32_t pair = 0);
  int channel_of(int process, uint32_t number) const;
  const Path* path_of(const Fault& fault, const trace::Event& event, int channel) const;
  void slow_down(size_t channel);
  void look_at_migration(Time since);
  bool all_set_up() const {
    return std::none_of(ends_.begin(), ends_.end(),
                        [](const End& end) { return end.stage == Stage::kSetUp; });
  }
  bool home_is_well(const Plan::Line& line) const;
  void look_at_paths();
  void hopeless();
  void check_log(const std::string& text);
  Time allowed_gap() const;

  const Plan& plan_;
  const bool tell_;
  Random random_;
  Fabric fabric_;
  const size_t memory_bytes_ = plan_.channels.size() * 2 * kSlots * kSlotBytes + 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<uint8_t, Free> memory_{static_cast<uint8_t*>(std::calloc(memory_bytes_, 1))};
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
  std::set<std::pair<int, Kind>> applied_;                 // NIC, over all processes
  std::array<int, 8> strikes_{};                           // faults, of each NIC
  std::vector<int> seen_;                                  // events, of each fault's
  std::map<std::pair<int, uint32_t>, Time> on_their_way_;  // process, channel; since when, kNever: not known
  std::optional<Time> took_;                               // the migration that has ended last
  int ended_on_their_way_[2] = {0, 0};  // channels, less those of which the log has said so
  std::vector<bool> slow_;              // channels
  std::vector<int> messages_;           // of each channel
  Time disturbed_until_ = 0;
  std::vector<std::pair<Time, Time>> kept_;  // when ends, drivers or their conversation stood still
  Time hung_in_set_up_ = 0;  // drivers, while buffers were registered, which has R2CC_REGISTER_MS
  Time pauses_until_[2] = {0, 0};
  static History* current_;
  static void log(LogLevel level, const char* file, int line, const char* text);
};
History* History::current_ = nullptr;

void History::log(LogLevel, const char*, int, const char* text) {
  current_->digest(scheduler().now());
  for (const char* c = text; *c; ++c) current_->digest(uint8_t(*c));
  if (std::strstr(text, "moving its traffic")) ++current_->verdict_.migrations;
  if (current_->tell_)
    std::printf("%12.6f %d: %s\n", double(scheduler().now()) / 1e9, scheduler().process(), text);
  if (scheduler().process() >= 0) current_->check_log(text);
}

// What the log says of a NIC must have happened to that NIC.
void History::check_log(const std::string& text) {
  // … and where the receiver never saw what a NIC has reported, one has lost it, or stands still with it.
  if (text.find("reported messages that the receiver never saw; moving") != std::string::npos &&
      std::none_of(applied_.begin(), applied_.end(), [](const auto& fault) {
        return fault.second == Kind::kLoseImmediate || fault.second == Kind::kFreeze;
      }))
    violate("the log says of a NIC that lost nothing: " + text);
  struct Claim {
    const char* says;
    std::vector<Kind> is_true_after;
  };
  if (const size_t at = text.find(" failed, or ended, before another way"); at != std::string::npos) {
    const size_t number = text.rfind(' ', text.rfind(' ', at - 1) - 1) + 1;
    const int process = scheduler().process();
    ended_on_their_way_[process] -= std::atoi(text.c_str() + number);
    if (ended_on_their_way_[process] < 0) violate("the log says of channels that went on: " + text);
  }
  constexpr std::string_view kAfter = "carries its traffic now, after ";
  if (const size_t at = text.find(kAfter); at != std::string::npos && took_) {
    const Time said = Time(std::atoll(text.c_str() + at + kAfter.size())) * kMicrosecond;
    if (said > *took_ || *took_ - said >= kMicrosecond) violate("the log says another time: " + text);
  }
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
  if (at < memory_.get() || at >= memory_.get() + memory_bytes_ || bytes == 0) return;
  const size_t offset = size_t(at - memory_.get()), which = offset / kSlotBytes;
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
  if (at < memory_.get() || at >= memory_.get() + memory_bytes_ || bytes == 0) return;
  const size_t which = size_t(at - memory_.get()) / kSlotBytes;
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
                    fault.kind == Kind::kTcpMute || (fault.kind == Kind::kStop && fault.nic == end.process);
           });
  };
  end.error = error.message;
  if (tell_)
    std::printf("%12.6f error at process %d, channel %zu: %s\n", double(scheduler().now()) / 1e9, end.process,
                end.channel, error.message.c_str());
  ++verdict_.errors;
  const End& other = ends_[2 * end.channel + end.sender];
  const int receiver = 1 - plan_.channels[end.channel].sender;
  // A receiver's NIC that nobody can stop in time, although it is well.
  const bool unfenceable = error.code == ErrorCode::kUnfenceable &&
                           std::any_of(applied_.begin(), applied_.end(), [&](const auto& fault) {
                             return fault.first / plan_.nics == receiver &&
                                    (fault.second == Kind::kDriverHang || fault.second == Kind::kFreeze);
                           });
  const bool told = error.code == ErrorCode::kPeerGone && (!other.error.empty() || copies_are_lost());
  if (hopeless_since_ == 0) {
    if (!unfenceable && !told) violate("an error although a path works: " + error.message);
    return;
  }
  const Time now = scheduler().now();
  const Time bound = end.comm ? kFailBound : kConnectMost;
  if (now - hopeless_since_ > bound + allowed_gap())
    violate("no path is left, and the error comes late: " + error.message);
  if (error.code == ErrorCode::kAllPathsDown &&
      now - ends_[2 * end.channel + 1].arrived + kSeenLate < kFailBound)
    violate("no path is left, and the error comes early: " + error.message);
}

void History::received() {
  ++received_;
  if (tell_ && received_ % 20 == 0)
    std::printf("%12.6f %d messages have been received\n", double(scheduler().now()) / 1e9, received_);
  for (const Fault& fault : plan_.faults)
    if (fault.event == trace::EventType::kNone && fault.after_messages + 1 == received_)
      scheduler().after(fault.delay, [this, &fault] { happen(fault, {}); });
  if (plan_.hopeless && received_ == (plan_.hopeless_at > 0 ? plan_.hopeless_at : plan_.messages() / 2))
    scheduler().after(plan_.hopeless_after, [this] { hopeless(); });
}

void History::event(const trace::Event& event) {
  const int process = scheduler().process();
  for (const uint64_t value : {scheduler().now(), uint64_t(process), uint64_t(event.type), uint64_t(event.nic),
                               uint64_t(event.channel), event.a, event.b, event.c})
    digest(value);
  if (event.type == trace::EventType::kDuplicateDropped)
    violate("a message of channel " + std::to_string(event.channel) + " arrived twice");
  if (process < 0) return;
  if (event.type == trace::EventType::kSegmentDelivered) {
    if (const int channel = channel_of(process, event.channel); channel >= 0)
      ends_[2 * size_t(channel) + 1].arrived = scheduler().now();
    return;
  }
  if (tell_)
    std::printf("%12.6f %d: event %s, channel %u, NIC %u: %llu %llu %llu\n", double(scheduler().now()) / 1e9,
                process, std::string(trace::name(event.type)).c_str(), event.channel, event.nic,
                static_cast<unsigned long long>(event.a), static_cast<unsigned long long>(event.b),
                static_cast<unsigned long long>(event.c));
  const std::pair channel(process, event.channel);
  if (event.type == trace::EventType::kMigrationStarted) on_their_way_.emplace(channel, scheduler().now());
  // What the peer had begun to leave when this end had no event of it.
  if (event.type == trace::EventType::kFenceDone) on_their_way_.emplace(channel, kNever);
  if (event.type == trace::EventType::kMigrationDone) {
    const auto it = on_their_way_.find(channel);
    const Time since = it == on_their_way_.end() ? kNever : it->second;
    took_ = since == kNever ? std::nullopt : std::optional(scheduler().now() - since);
    if (took_) look_at_migration(since);
    on_their_way_.erase(channel);
  }
  if (event.type == trace::EventType::kChannelClosing || event.type == trace::EventType::kChannelFailed)
    ended_on_their_way_[process] += int(on_their_way_.erase(channel));
  if (event.type == trace::EventType::kFailback)
    if (const int channel = channel_of(process, event.channel); channel >= 0) slow_down(size_t(channel));
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (fault.event != event.type || fault.by != process || seen_[i]++ != fault.after_messages) continue;
    scheduler().after(fault.delay, [this, &fault, event] { happen(fault, event); });
  }
}

// From one path to another, where one works: of that time what no fault has taken that keeps an end, a
// driver, or what the ends tell each other.
void History::look_at_migration(Time since) {
  Time counted = since, took = 0;
  std::sort(kept_.begin(), kept_.end());
  for (const auto& [from, until] : kept_) {
    if (from > counted) took += std::min(from, scheduler().now()) - std::min(counted, scheduler().now());
    counted = std::max(counted, until);
  }
  if (counted < scheduler().now()) took += scheduler().now() - counted;
  if (took > kMigrationBound && hopeless_since_ == 0 && !plan_.busy_driver())
    violate("a migration took " + std::to_string(took / kMillisecond) + " ms of its own");
}

void History::slow_down(size_t channel) {
  if (slow_[channel]) return;
  slow_[channel] = true;
  const int more = plan_.channels[channel].later_messages;
  const int posted = std::max(ends_[2 * channel].posted, ends_[2 * channel + 1].posted);
  if (more > 0) messages_[channel] = std::min(messages_[channel], posted + more);
}

int History::channel_of(int process, uint32_t number) const {
  for (const End& end : ends_)
    if (end.process == process && end.comm && end.stage == Stage::kTraffic && end.comm->number() == number)
      return int(end.channel);
  return -1;
}

// What a fault strikes there: nullptr, nothing just now.
const Path* History::path_of(const Fault& fault, const trace::Event& event, int channel) const {
  if (channel < 0) return nullptr;
  const End& end = ends_[size_t(2 * channel + fault.nic)];
  if (!end.comm || end.stage != Stage::kTraffic) return nullptr;
  const Path* found = nullptr;
  end.comm->for_each_path([&](const Path& path) {
    switch (fault.target) {
      case Fault::Target::kActive:
        if (path.state == PathState::kActive) found = &path;
        break;
      case Fault::Target::kLane:
        if (path.state == PathState::kLane) found = &path;
        break;
      default:
        if (path.id() == event.a) found = &path;
    }
  });
  return found;
}

void History::happen(const Fault& planned, const trace::Event& event) {
  Fault fault = planned;
  uint32_t pair = 0;
  switch (fault.target) {
    case Fault::Target::kNic:
      break;
    case Fault::Target::kEventPeer:
      fault.nic = (1 - fault.by) * plan_.nics + event.nic;
      break;
    default: {
      const int channel = fault.channel >= 0 ? fault.channel : channel_of(fault.by, event.channel);
      const Path* path = path_of(fault, event, channel);
      if (!path || !path->data) return;
      fault.nic = ends_[size_t(2 * channel + fault.nic)].process * plan_.nics + path->local_nic();
      pair = path->data.number();
    }
  }
  apply(fault, pair);
}

// Its NICs have failed once at most (one that flaps is left alone for longer), and work.
bool History::home_is_well(const Plan::Line& line) const {
  const std::array<int, 2> numbers = {line.sender * plan_.nics + line.sender_nic,
                                      (1 - line.sender) * plan_.nics + line.receiver_nic};
  for (const int number : numbers) {
    const Nic& nic = *fabric_.nics[size_t(number)];
    if (strikes_[size_t(number)] > 1 || !nic.port_up || nic.deaf || nic.refuses || nic.unstoppable)
      return false;
  }
  return fabric_.cut.empty();
}

// What PROTOCOL.md promises of the paths, when nothing has gone wrong for a while.
void History::look_at_paths() {
  scheduler().after(kLookEvery, [this] { look_at_paths(); });
  if (hopeless_since_ != 0 || scheduler().now() < disturbed_until_ + kCalm) return;
  const auto is_used = [](const Path& path) {
    return path.state == PathState::kActive || path.state == PathState::kLane;
  };
  for (size_t i = 0; i < ends_.size(); i += 2) {
    const End &sender = ends_[i], &receiver = ends_[i + 1];
    if (sender.stage != Stage::kTraffic || receiver.stage != Stage::kTraffic || !sender.error.empty() ||
        !receiver.error.empty())
      continue;
    std::set<uint32_t> polled;
    const auto look = [&](const Path& path, const char* end) {
      if (path.state == PathState::kFencing)
        violate("a half of path " + std::to_string(path.id()) + " of channel " +
                std::to_string(sender.channel) + " stays unfenced at its " + end);
    };
    receiver.comm->for_each_path([&](const Path& path) {
      look(path, "receiver");
      if (is_used(path)) polled.insert(path.id());
    });
    const Plan::Line& line = plan_.channels[sender.channel];
    sender.comm->for_each_path([&](const Path& path) {
      look(path, "sender");
      if (path.state == PathState::kActive && home_is_well(line) &&
          (path.local_nic() != line.sender_nic || path.remote_nic() != line.receiver_nic))
        violate("the traffic of channel " + std::to_string(sender.channel) + " has not come home");
      if (is_used(path) && !polled.contains(path.id()))
        violate("the sender of channel " + std::to_string(sender.channel) + " uses path " +
                std::to_string(path.id()) + ", and the receiver does not poll it");
    });
  }
}

void History::hopeless() {
  hopeless_since_ = scheduler().now();
  if (tell_)
    std::printf("%12.6f fault: every NIC of process 0 is deaf from here on\n", double(hopeless_since_) / 1e9);
  for (auto& nic : fabric_.nics)
    if (nic->process == 0) nic->deaf = nic->ever_faulty = true;
}

void History::apply(const Fault& fault, uint32_t pair) {
  if (tell_)
    std::printf("%12.6f fault: %s of %d/%d for %llu us\n", double(scheduler().now()) / 1e9, name(fault.kind),
                fault.nic, fault.other, static_cast<unsigned long long>(fault.lasts / kMicrosecond));
  const Time now = scheduler().now();
  Nic& nic = *fabric_.nics[size_t(fault.nic)];
  if (is_of_nic(fault.kind) && !spares(fault.kind)) nic.ever_faulty = true;
  if (is_of_nic(fault.kind)) {
    applied_.emplace(fault.nic, fault.kind);
    ++strikes_[size_t(fault.nic)];
  }
  disturbed_until_ = std::max(disturbed_until_, now + (fault.lasts < kHistoryBound ? fault.lasts : 0));
  if (fault.kind >= Kind::kTcpCut && fault.kind <= Kind::kTcpMute)
    kept_.emplace_back(now, now + fault.lasts + (is_of_control(fault.kind) ? kControlBound : 0));
  if (fault.kind == Kind::kFreeze || (fault.kind >= Kind::kDriverSlow && fault.kind <= Kind::kPretend))
    kept_.emplace_back(now, now + fault.lasts);
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
      if (pair != 0)
        fabric_.pair_error(pair, fault.kind == Kind::kPairError);
      else
        fabric_.pair_error(nic, fault.kind == Kind::kPairError);
      break;
    case Kind::kFreeze:
      nic.frozen_until = std::max(nic.frozen_until, now + fault.lasts);
      break;
    case Kind::kDriverSlow:
    case Kind::kDriverHang:
      if (fault.kind == Kind::kDriverHang && !all_set_up()) hung_in_set_up_ += fault.lasts;
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
    case Kind::kRefusePosts:
      nic.refuse_posts += fault.other;
      break;
    case Kind::kPause:
      pauses_until_[fault.nic] = now + fault.lasts;
      break;
    case Kind::kTcpMute:
      system.weather.mutes = true;
      later([&system] { system.weather.mutes = false; });
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
  const int messages = messages_[end.channel];
  while (end.posted < messages && end.posted < end.done + kSlots) {
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
      end.rests_until = now + pause_after(end);
      end.progress = end.rests_until;
      break;
    }
  }
  const bool stays = plan_.all_stay || (end.channel == 0 && end.sender == plan_.sender_stays);
  if (end.done == messages && stays && plan_.stays_open > 0 && !end.stayed) {
    end.stayed = true;
    end.rests_until = now + plan_.stays_open;
  } else if (end.done == messages) {
    end.stage = Stage::kClosing;
  }
  return some;
}

Time History::pause_after(const End& end) const {
  const Plan::Line& line = plan_.channels[end.channel];
  if (slow_[end.channel] && line.later_pause > 0) return line.later_pause;
  return line.longer_pause > 0 && end.done % 24 == 0 ? line.longer_pause : line.pause;
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
    if (pauses_until_[process] > scheduler().now()) {
      scheduler().sleep(pauses_until_[process] - scheduler().now());
      continue;
    }
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
  Time sum = kRecoveryBound + (plan_.busy_driver() ? 400 * kBusyCall : 0) + hung_in_set_up_;
  for (const Fault& fault : plan_.faults) {
    // One that is for good is left; and a driver that hangs is given up where anybody waits for it, unless
    // the kernel, which is to stop its device, waits for it, too.
    const bool given_up = fault.kind == Kind::kDriverHang && !applied_.contains({fault.nic, Kind::kRemove}) &&
                          !applied_.contains({fault.nic, Kind::kPretend});
    const Time lasts = given_up ? std::min(fault.lasts, kSecond) : fault.lasts;
    sum += kOneFault + (lasts < kHistoryBound ? lasts : 0);
    if (fault.kind == Kind::kLoseCompletion) sum += kPatience;
    if (is_of_control(fault.kind)) sum += kControlBound;
  }
  return sum;
}

Verdict History::run() {
  current_ = this;
  set_log_sink(&History::log);
  for (int process = 0; process < 2; ++process)
    scheduler().spawn(process, [this, process] { program(process); });
  look_at_paths();
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
  if (plan.failback_settle > 0)
    setenv("R2CC_FAILBACK_MS", std::to_string(plan.failback_settle / kMillisecond).c_str(), 1);
  if (plan.abandons) setenv("R2CC_CONNECT_MS", std::to_string(kConnectBound / kMillisecond).c_str(), 1);
  kernel().scarce = plan.scarce;
  static History* const history = new History(plan, tell);  // its memory is NICs': it stays
  return history->run();
}

}  // namespace r2ccl::simulation

// --- what the core reports of itself: trace::Writer::emit
using r2ccl::trace::EventType;
extern "C" {
void __real__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(r2ccl::trace::Writer*, EventType, uint16_t,
                                                              uint32_t, uint64_t, uint64_t, uint64_t,
                                                              uint32_t);
void __wrap__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(r2ccl::trace::Writer* writer, EventType type,
                                                              uint16_t nic, uint32_t channel, uint64_t a,
                                                              uint64_t b, uint64_t c, uint32_t peer) {
  __real__ZN5r2ccl5trace6Writer4emitENS0_9EventTypeEtjmmmj(writer, type, nic, channel, a, b, c, peer);
  if (r2ccl::simulation::History* history = r2ccl::simulation::History::current())
    history->event({0, 0, type, nic, channel, a, b, c, peer, 0, 0});
}
}
