// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/properties.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "r2ccl/protocol/wire.h"
#include "r2ccl/tests/simulation/system.h"

namespace r2ccl::simulation {
namespace {

using Kind = Fault::Kind;

constexpr Time kConnectMost = 30 * kSecond;           // R2CC_CONNECT_MS, unless the plan abandons a connect
constexpr Time kFailBound = 2 * kSecond;              // R2CC_FAIL_BOUND_MS
constexpr Time kSeenLate = 50 * kMillisecond;         // a segment, by a program that rests or waits
constexpr Time kMigrationBound = 200 * kMillisecond;  // for each path that is left
// What a channel may stand still for, and for each fault, whose own time comes on top.
constexpr Time kRecoveryBound = 3 * kSecond, kOneFault = kSecond / 2;
// A silence that ended makes the watchdog wait longer before it takes a queue pair for one that stands still:
// four times R2CC_STUCK_MS, where 3 s are allowed for.
constexpr Time kPatience = kSecond;
// It begins to wait anew when its traffic comes home meanwhile.
constexpr Time kMostPatience = 4 * kSecond;
// When nothing has gone wrong for so long, both ends agree on their paths, and none is half fenced.
constexpr Time kCalm = 7 * kSecond, kLookEvery = 100 * kMillisecond;

}  // namespace

void Properties::written(const Nic& nic, const uint8_t* at, size_t bytes) {
  const auto place = job_.buffers().find(at, bytes);
  if (!place) return;
  if (place->sender)
    findings_.violate("a send buffer was written by a NIC");
  else if (!place->open && nic.unstoppable && !job_.receiver(place->channel).error.empty())
    return;  // its channel has failed, because nobody can stop this NIC, and has said so
  else if (!place->open)
    findings_.violate("a receive buffer of channel " + std::to_string(place->channel) +
                      " was written after its receive had been reported, by NIC " +
                      std::to_string(nic.number));
  else if (place->end > kSlotBytes)
    findings_.violate("a NIC wrote beyond a receive buffer");
}

void Properties::read(const Nic& nic, const uint8_t* at, size_t bytes) {
  const auto place = job_.buffers().find(at, bytes);
  if (!place) return;
  if (place->channel < 2) last_nic_[place->channel] = nic.number;
  if (!place->open && !nic.unstoppable)
    findings_.violate("a send buffer of channel " + std::to_string(place->channel) +
                      " was given back while NIC " + std::to_string(nic.number) + " still reads it");
}

// A known limit: the buffers of small messages are given back before the receiver has them, and a sender that
// is closed waits for its word for 0.1 s only where the control connection carries nothing, or the receiver's
// process is stopped.
bool Properties::copies_are_lost(const End& end) const {
  const auto keeps_the_word = [&](const Fault& fault) {
    return fault.kind == Kind::kTcpDrop || fault.kind == Kind::kTcpHold || fault.kind == Kind::kTcpHalfOpen ||
           fault.kind == Kind::kTcpSwallow || fault.kind == Kind::kTcpMute ||
           (fault.kind == Kind::kStop && fault.nic == end.process);
  };
  return !end.sender &&  // the oldest that it lacks:
         job_.buffers().size_of(end.channel, end.done) <= wire::kCopiedBytes &&
         job_.sender(end.channel).stage != Stage::kTraffic &&
         std::any_of(plan_.faults.begin(), plan_.faults.end(), keeps_the_word);
}

// While a path works.
bool Properties::error_is_due(const End& end, const Error& error) const {
  const End& other = end.sender ? job_.receiver(end.channel) : job_.sender(end.channel);
  if (error.code == ErrorCode::kPeerGone) return !other.error.empty() || copies_are_lost(end);
  if (error.code != ErrorCode::kUnfenceable) return false;
  // A receiver's NIC that nobody can stop in time, although it is well.
  const int first = job_.receiver(end.channel).process * plan_.nics;
  for (int nic = first; nic < first + plan_.nics; ++nic)
    if (faults_.has_struck(nic, Kind::kDriverHang) || faults_.has_struck(nic, Kind::kFreeze)) return true;
  return false;
}

void Properties::failed(const End& end, const Error& error) {
  if (faults_.hopeless_since() == 0) {
    if (!error_is_due(end, error)) findings_.violate("an error although a path works: " + error.message);
    return;
  }
  const Time now = scheduler().now();
  const Time bound = end.comm ? kFailBound : kConnectMost;
  if (now - faults_.hopeless_since() > bound + allowed_gap())
    findings_.violate("no path is left, and the error comes late: " + error.message);
  if (error.code == ErrorCode::kAllPathsDown &&
      now - job_.receiver(end.channel).arrived + kSeenLate < kFailBound)
    findings_.violate("no path is left, and the error comes early: " + error.message);
}

void Properties::event(const trace::Event& event, const Migrations& migrations) {
  if (event.type == trace::EventType::kDuplicateDropped)
    findings_.violate("a message of channel " + std::to_string(event.channel) + " arrived twice");
  if (event.type != trace::EventType::kMigrationDone || !migrations.last_since()) return;
  const Time took = faults_.undisturbed_since(*migrations.last_since());
  if (took > kMigrationBound * Time(std::max(migrations.last_fences(), 1)) && faults_.hopeless_since() == 0 &&
      !plan_.busy_driver)
    findings_.violate("a migration took " + std::to_string(took / kMillisecond) + " ms of its own");
}

// Its NICs have failed once at most (one that flaps is left alone for longer), and work.
bool Properties::home_is_well(const Plan::Line& line) const {
  const std::array<int, 2> numbers = {line.sender * plan_.nics + line.sender_nic,
                                      (1 - line.sender) * plan_.nics + line.receiver_nic};
  for (const int number : numbers) {
    const Nic& nic = *fabric_.nics[size_t(number)];
    if (faults_.strikes(number) > 1 || !nic.port_up || nic.deaf || nic.refuses || nic.unstoppable)
      return false;
  }
  return fabric_.cut.empty();
}

// What PROTOCOL.md promises of the paths, when nothing has gone wrong for a while.
void Properties::look_at_paths() {
  scheduler().after(kLookEvery, [this] { look_at_paths(); });
  if (faults_.hopeless_since() != 0 || scheduler().now() < faults_.disturbed_until() + kCalm) return;
  for (size_t i = 0; i < plan_.channels.size(); ++i) {
    const End &sender = job_.sender(i), &receiver = job_.receiver(i);
    if (sender.stage == Stage::kTraffic && receiver.stage == Stage::kTraffic && sender.error.empty() &&
        receiver.error.empty())
      look_at_paths_of(sender, receiver);
  }
}

void Properties::look_at_paths_of(const End& sender, const End& receiver) {
  const std::string channel = std::to_string(sender.channel);
  const auto is_used = [](const Path& path) {
    return path.state == PathState::kActive || path.state == PathState::kLane;
  };
  const auto look = [&](const Path& path, const char* end) {
    if (path.state == PathState::kFencing)
      findings_.violate("a half of path " + std::to_string(path.id()) + " of channel " + channel +
                        " stays unfenced at its " + end);
  };
  std::set<uint32_t> polled;
  receiver.comm->for_each_path([&](const Path& path) {
    look(path, "receiver");
    if (is_used(path)) polled.insert(path.id());
  });
  const Plan::Line& line = plan_.channels[sender.channel];
  sender.comm->for_each_path([&](const Path& path) {
    look(path, "sender");
    if (path.state == PathState::kActive && home_is_well(line) &&
        (path.local_nic() != line.sender_nic || path.remote_nic() != line.receiver_nic))
      findings_.violate("the traffic of channel " + channel + " has not come home");
    if (is_used(path) && !polled.contains(path.id()))
      findings_.violate("the sender of channel " + channel + " uses path " + std::to_string(path.id()) +
                        ", and the receiver does not poll it");
  });
}

Time Properties::allowed_gap() const {
  Time sum = kRecoveryBound + (plan_.busy_driver ? 400 * kBusyCall : 0) + faults_.hung_in_set_up();
  for (const Fault& fault : plan_.faults) {
    // One that is for good is left; and a driver that hangs is given up where anybody waits for it, unless
    // the kernel, which is to stop its device, waits for it, too.
    const bool given_up = fault.kind == Kind::kDriverHang && !faults_.has_struck(fault.nic, Kind::kRemove) &&
                          !faults_.has_struck(fault.nic, Kind::kPretend);
    const Time lasts = given_up ? std::min(fault.lasts, kSecond) : fault.lasts;
    sum += kOneFault + (lasts < kHistoryBound ? lasts : 0);
    if (fault.kind == Kind::kLoseCompletion) sum += kPatience + (job_.has_come_home() ? kMostPatience : 0);
    if (is_of_control(fault.kind)) sum += kControlBound;
  }
  return sum;
}

void Properties::at_end(bool ended) {
  const Verdict& verdict = findings_.verdict;
  if (plan_.pair_dies && verdict.errors == 0 && last_nic_[0] == last_nic_[1])
    findings_.violate("two channels that have lost their NICs share NIC " + std::to_string(last_nic_[0]) +
                      ", and another carries nothing");
  if (!ended) {
    std::string what = "it does not end:";
    for (const End& end : job_.ends())
      if (end.stage != Stage::kOver)
        what += " channel " + std::to_string(end.channel) + (end.sender ? " sender" : " receiver") +
                " stage " + std::to_string(int(end.stage)) + " " + std::to_string(end.done) + "/" +
                std::to_string(end.posted);
    findings_.violate(what);
  }
  if (verdict.longest_gap > allowed_gap())
    findings_.violate("a channel stood still for " + std::to_string(verdict.longest_gap / kMillisecond) +
                      " ms, more than " + std::to_string(allowed_gap() / kMillisecond));
  for (int process = 0; process < 2; ++process) {
    if (fabric_.left(process) > 0) findings_.violate("queue pairs or registrations are left");
    if (kernel().open_files(process) > 0) findings_.violate("descriptors are left");
  }
}

}  // namespace r2ccl::simulation
