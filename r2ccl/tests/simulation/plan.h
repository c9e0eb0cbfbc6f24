// SPDX-License-Identifier: Apache-2.0
// What a seed means: processes, channels and NICs, traffic, and what goes wrong when. Most seeds draw at
// random; some aim at what random faults seldom meet (aims.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/tests/simulation/scheduler.h"
#include "r2ccl/trace/event.h"

namespace r2ccl::simulation {

struct Fault {
  enum class Kind : uint8_t {
    kPortDown,         ///< and the port says so
    kPortSilent,       ///< … or not
    kDeaf,             ///< the NIC's packets vanish, in both directions
    kCutRail,          ///< those between two NICs
    kPairError,        ///< a queue pair goes to ERR by itself, and an event says so
    kPairErrorSilent,  ///< … or only the flushes do
    kFreeze,           ///< the NIC stands still, and goes on later with what it has
    kDriverSlow,       ///< its driver's calls take long, within R2CC_FENCE_MS
    kDriverHang,       ///< … beyond it
    kRemove,           ///< the device is removed: EIO, and later the kernel stops it
    kPretend,          ///< it has failed, and says that it carries commands out
    kLoseCompletion,
    kLoseImmediate,
    kLoseLine,
    kLate,  ///< packets take up to a lifetime
    kSlow,  ///< a tenth of its rate
    kTcpCut,
    kTcpHalfOpen,  ///< one end alone hears of it
    kTcpDrop,      ///< nothing gets through for a while
    kTcpHold,      ///< it gets through later
    kTcpSwallow,   ///< connections that stand carry nothing any more; new ones do
    kStop,         ///< SIGSTOP, SIGCONT
    // Not drawn at random:
    kRefusePosts,  ///< of the next so many writes of messages
    kPause,        ///< the program looks at nothing; its service thread goes on
    kTcpMute,      ///< connections are made, and carry nothing
    kCount,
  };
  Kind kind;
  int after_messages;  ///< it happens when so many have been received …
  Time delay;          ///< … and so much later
  Time lasts;
  int nic = 0;    ///< over all processes; kStop, kPause: the process
  int other = 0;  ///< kCutRail: the other NIC; kLose…, kRefusePosts: how many

  // --- aimed
  /// Not kNone: it happens at event number `after_messages` of this type (0: the first) of process `by`.
  trace::EventType event = trace::EventType::kNone;
  int by = 0;
  /// What it strikes. The last three are paths of `channel` (−1: the event's) at its sender or its receiver
  /// (`nic`: 0, 1): pair errors strike the queue pair, other kinds the NIC.
  enum class Target : uint8_t {
    kNic,        ///< `nic`
    kEventPeer,  ///< the one at the other process in the place of the event's
    kActive,
    kLane,
    kEventPath,  ///< the one that the event names
  };
  Target target = Target::kNic;
  int channel = -1;

  std::string words() const;
  /// "pair_error of the event's path at lane_rests"
  std::string label() const;
};
/// What has become of a fault: what it follows has not come, or has come; or it has taken effect.
enum class Fate : uint8_t { kWaits, kFound, kStruck };
const char* name(Fault::Kind kind);
constexpr bool is_of_nic(Fault::Kind kind) {
  return kind < Fault::Kind::kTcpCut || kind == Fault::Kind::kRefusePosts;
}
/// It takes nothing away, neither a NIC nor what that has: any NIC may show it.
bool spares(Fault::Kind kind);

constexpr uint32_t kSlotBytes = 32 << 10;  ///< of a message, at most
constexpr Time kHistoryBound = 90 * kSecond;
constexpr Time kBusyCall = 50 * kMillisecond;  ///< a command of a driver that is merely slow

struct Aim;

struct Plan {
  uint64_t seed = 0;
  int mode = 1;
  int nics = 3;  ///< of each of the two processes
  struct Line {
    int sender, sender_nic, receiver_nic;
    int messages;
    uint32_t most_bytes;
    Time pause;             ///< its program rests so long after every eighth message,
    Time longer_pause = 0;  ///< and so long after every third time; 0: the same
    // Once its traffic has come home, unless 0:
    Time later_pause = 0;    ///< … it rests so long,
    int later_messages = 0;  ///< and sends so many more
  };
  std::vector<Line> channels;
  std::vector<Fault> faults;
  int spared[2] = {0, 0};   ///< the NIC of each process that stays well, so that a path always works
  bool hopeless = false;    ///< … but for these histories, in which none does in the end
  int scarce = -1;          ///< the epoll set of this process does not take every connection
  bool pair_dies = false;   ///< two NICs of process 0 fail for good: two are left for their two channels
  bool abandons = false;    ///< process 0 asks a few times for one channel more, and then never again
  bool stops_late = false;  ///< what a NIC had begun to send is still read, and goes out, after a move to ERR

  const Aim* aim = nullptr;   ///< nullptr: its faults are drawn at random
  bool busy_driver = false;   ///< of the spared NIC of process 0: each command takes kBusyCall
  Time stays_open = 0;        ///< so long channel 0's receiving program has all and closes nothing
  bool sender_stays = false;  ///< … or its sending one
  bool all_stay = false;      ///< … or all programs, all their channels
  Time failback_settle = 0;   ///< R2CC_FAILBACK_MS; 0: as it is
  int hopeless_at = 0;        ///< after so many messages; 0: half of them
  Time hopeless_after = 0;    ///< … and so long

  int messages() const;
  std::string words() const;
};
Plan plan_of(uint64_t seed);
/// Which of the least sizes of a history it misses: 4 channels, 3 NICs of each process, 200 messages, 3 faults;
/// empty: none. All are planned sizes: not every fault has come when the programs are through.
std::string too_small(const Plan& plan);

}  // namespace r2ccl::simulation
