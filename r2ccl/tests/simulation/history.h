// SPDX-License-Identifier: Apache-2.0
// One history: processes, channels and NICs, traffic, and what goes wrong when, all from one seed; and what
// must hold whatever the seed.
#pragma once

#include <string>
#include <vector>

#include "r2ccl/tests/simulation/scheduler.h"

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
    kCount,
  };
  Kind kind;
  int after_messages;  ///< it happens when so many have been received …
  Time delay;          ///< … and so much later
  Time lasts;
  int nic = 0;    ///< over all processes; kStop: the process
  int other = 0;  ///< kCutRail: the other NIC; kLose…: how many
};
const char* name(Fault::Kind kind);

struct Plan {
  uint64_t seed = 0;
  int mode = 1;
  int nics = 3;  ///< of each of the two processes
  struct Line {
    int sender, sender_nic, receiver_nic;
    int messages;
    uint32_t most_bytes;
    Time pause;  ///< its program rests so long now and then
  };
  std::vector<Line> channels;
  std::vector<Fault> faults;
  int spared[2] = {0, 0};   ///< the NIC of each process that stays well, so that a path always works
  bool hopeless = false;    ///< … but for these histories, in which none does in the end
  int scarce = -1;          ///< the epoll set of this process does not take every connection
  bool pair_dies = false;   ///< two NICs of process 0 fail for good: two are left for their two channels
  bool abandons = false;    ///< process 0 asks a few times for one channel more, and then never again
  bool stops_late = false;  ///< what a NIC had begun to send is still read, and goes out, after a move to ERR

  /// Not 0: this history aims at channel 0 (history.cc, aim()).
  int aim = 0;
  bool busy_driver() const { return aim == 4; }
  Time stays_open = 0;        ///< so long channel 0's receiving program has all and closes nothing
  bool sender_stays = false;  ///< … or its sending one
  int hopeless_at = 0;        ///< after so many messages; 0: half of them
  Time hopeless_after = 0;    ///< … and so long

  int messages() const;
  std::string words() const;
};
Plan plan_of(uint64_t seed);

struct Verdict {
  std::string violation;  ///< empty: everything holds
  uint64_t events = 0;
  Time simulated = 0;
  Time longest_gap = 0;  ///< between two messages of a channel, without pauses of its programs
  int migrations = 0;
  int errors = 0;  ///< that had to be
};
/// At most once in an operating-system process. `tell`: the log and the faults go to stdout.
Verdict run(const Plan& plan, bool tell);

}  // namespace r2ccl::simulation
