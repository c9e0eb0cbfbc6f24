// SPDX-License-Identifier: Apache-2.0
// The model that the explorer explores: both ends of one channel, the queue pairs between them and the
// control connection. The ends are the real ones (SendingEndOf, ReceivingEndOf, ChannelEnd): events go in,
// and what they then want done is carried out by executor.cc in an environment that does its worst.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "r2ccl/protocol/fence.h"
#include "r2ccl/protocol/receiving.h"
#include "r2ccl/protocol/sending.h"

namespace r2ccl::model {

inline constexpr int kMaxMessages = 4;
inline constexpr int kMaxPaths = 6;
inline constexpr int kMaxSegments = 4;    ///< of one message
inline constexpr int kSegmentsInAll = 8;  ///< segments of all messages
inline constexpr uint32_t kWindow =
    2;  ///< CTS entries in the ring: the third message meets the first one's slot
inline constexpr int kMaxWrites = 12;   ///< CTS entries and ACKs on their way over one path
inline constexpr int kMaxControl = 10;  ///< control messages on their way in one direction

/// How far the exploration goes. Faults: at most so many of each in one run.
struct Bounds {
  int messages = 2;
  int segments = 1;      ///< per message
  bool copies = false;   ///< messages are sent from copies: a buffer is given back when the NIC has reported
  int paths = 2;         ///< that can be opened, one after the other or side by side
  bool standby = false;  ///< another path is kept open, which carries nothing
  int lanes = 0;  ///< paths that carry segments beside the active one, at most: so many do from the beginning
  int rests = 0;  ///< how often a lane goes back to standing by
  int breaks = 0;  ///< a path: no acknowledgement comes back any more; what is on its way arrives or does not
  int lost_completions = 0;  ///< of the sender: the work was done
  int lost_immediates = 0;   ///< the data is there, the sender's NIC reports it, the receiver hears nothing
  int lost_writes = 0;       ///< a CTS entry or ACK vanishes without an error
  int early = 0;             ///< timeouts that come too early, and paths that are left without a reason
  int planned = 0;           ///< migrations to a path that stands by (failback)
  int duplicates = 0;        ///< a control message of the migration comes once more, at any later time
  bool runs_out = false;     ///< an error is none that comes when every path has been used up
  bool closes = false;       ///< the programs close their ends when they have nothing open any more
  int frozen = 0;            ///< a NIC that reports nothing any more, not even flushes
  bool destroy_fences =
      false;  ///< a frozen NIC's queue pair is destroyed instead, unseen completions with it
  int gone =
      0;  ///< a device that is being removed: it refuses commands and acknowledges nothing, and what it
          ///< has taken in, or has to send, goes on until the kernel has stopped it, at any later time
};

enum class Life : uint8_t { kNever, kOpening, kStandby, kActive, kFencing, kRetired, kGone, kLane };
enum class Pair : uint8_t {
  kNone,
  kReady,
  kError,  ///< the move to ERR has returned; what the NIC had taken in may still be carried out
  kDead,   ///< its sentinels are back, or it is destroyed
};

/// One end's half of a path.
struct Half {
  Life life = Life::kNever;
  Pair pair = Pair::kNone;
  bool frozen = false;
  bool failed = false;  ///< it carries, and is left as soon as the migration under way is over
  bool gone = false;    ///< its device takes no commands; the kernel makes it kDead
};

/// One RC connection. A queue pair carries out its work in order, so that counters say what has become of it.
struct Link {
  Half half[2];  ///< [0] the sender's, [1] the receiver's
  bool broken = false;
  bool stands_still = false;     ///< sender: a completion was lost, and no other can make up for it
  uint64_t queue = 0;            ///< segments that were posted, four bits each, in their order
  uint8_t posted = 0;            ///< how many
  uint8_t delivered = 0;         ///< how many of them are in the receiver's memory
  uint8_t acknowledged = 0;      ///< … and how many the sender's NIC knows of
  uint8_t taken[2] = {0, 0};     ///< completions that the sender, arrivals that the receiver has polled
  uint8_t lost_completions = 0;  ///< of the posted: bits
  uint8_t lost_immediates = 0;
  uint8_t stale = 0;  ///< segments of an earlier life (kNewQueuePairs): still in the network
  uint8_t writes = 0;
  std::array<uint8_t, kMaxWrites> write{};  ///< see line() and word()
};

enum class Say : uint8_t {
  kNothing,
  kMigrate,
  kFenced,
  kUse,
  kDrop,
  kOpen,
  kOpened,
  kAckQuery,
  kReceived,
  kFail,
  kLane,
  kRest,
  kAsk,
  kNic,
  kClose,
};

struct Control {
  Say say = Say::kNothing;
  uint8_t epoch = 0;
  uint8_t path = 0;
  uint8_t number = 0;  ///< kFenced: first incomplete message; kReceived, kClose: messages received, and of
                       ///< the next one segments[0]
  std::array<uint8_t, kWindow> segments{};
  bool cannot = false;  ///< kFenced: this end cannot
};

struct Queue {
  uint8_t count = 0;
  std::array<Control, kMaxControl> item{};
};

enum class Event : uint8_t {
  kNone,
  kPost,
  kReceive,
  kPoll,
  kConfirm,
  kDeliver,
  kDeliverMute,
  kDeliverStale,
  kAcknowledge,
  kAcknowledgeMute,
  kLand,
  kVanish,
  kBreak,
  kFreeze,
  kNotice,
  kNoReason,
  kPlan,
  kFence,
  kChoose,
  kNoPath,
  kOpen,
  kGiveUp,
  kGiveUpForNothing,
  kRetire,
  kHear,
  kHearAgain,
  kAckQuery,
  kRequestRetransmit,
  kStuckQueuePair,
  kMarkFailed,
  kMarkFailedForNothing,
  kLeaveFailed,
  kStartLane,
  kRestLane,
  kRemove,
  kStopped,
  kNeither,
  kClose,
  kSettleAsk,
  kSettled,
  kLeaveForNic,
  kNothingSent,
  kLacks,
};
struct Step {
  Event event = Event::kNone;
  uint8_t end = 0;
  uint8_t path = 0;
  uint8_t number = 0;
  Control control;
  std::array<uint8_t, kSegmentsInAll> on{};  ///< with lanes: the paths that segments are given to
  bool refused = false;                      ///< and those that are broken do not take them
};

inline constexpr int kSender = 0, kReceiver = 1;

struct World {
  SendingEndOf<kWindow> sender;  // … as in a channel
  ReceivingEndOf<kWindow> receiver;
  MigrationEnd& end(int e) { return e == kSender ? sender.migration : receiver.migration; }
  const MigrationEnd& end(int e) const { return e == kSender ? sender.migration : receiver.migration; }
  bool connected = false;  ///< the receiver has used a path
  bool failed[2] = {false, false};
  bool closes[2] = {false, false};       ///< its program has closed the end …
  bool closed[2] = {false, false};       ///< … which has settled, and said so
  bool peer_closed[2] = {false, false};  ///< it has heard so
  bool answered = false;                 ///< the sender, since it settles
  bool left_for_good = false;            ///< the sender's paths: only its NIC's reports are missing
  uint8_t given_back = 0;                ///< messages whose send buffer is the application's again: bits
  uint8_t completed = 0;                 ///< messages whose receive was reported: bits
  uint8_t in_memory = 0;                 ///< segments that have been written: bits
  std::array<uint8_t, kWindow> ring{};   ///< the sender's: message + 1 of each line
  uint8_t opening = 0;                   ///< path that the sender is opening
  uint8_t next_path = 2;
  uint8_t asked = 0, requested = 0;               ///< timeouts since something moved
  std::array<uint8_t, kSegmentsInAll> carrier{};  ///< sender: the path of each segment, 0: none that matters
  uint8_t unwritten = 0;                          ///< segments that their path did not take: bits
  uint8_t rests = 0;                              ///< so far
  Queue to[2];
  Control again;  ///< a duplicate, and whom it reaches
  uint8_t again_to = 0;
  uint8_t breaks = 0, lost_completions = 0, lost_immediates = 0, lost_writes = 0, early = 0, planned = 0,
          duplicates = 0, frozen = 0, gone = 0;  ///< faults so far
  std::array<Link, kMaxPaths> link;              ///< path i + 1

  const char* violation = nullptr;
  Step last;
};

/// Can the sender send `message` (again)?
inline bool kept(const Bounds& bounds, Rule without, const World& world, uint64_t message) {
  return !(world.given_back >> message & 1) ||
         (bounds.copies && without != Rule::kCopyKept && message >= world.sender.ledger.confirmed());
}

class Model {
 public:
  using State = World;
  static constexpr size_t kMaxBytes = 512;

  explicit Model(const Bounds& bounds, Rule without = Rule::kNone) : bounds_(bounds), without_(without) {}

  World initial() const;
  size_t expand(const World& world, std::vector<World>& next) const;
  size_t bytes(const World& world, uint8_t* out) const;
  const char* at_end(const World& world) const;
  std::string words(const World& world) const;

 private:
  class Executor;
  class Expansion;
  Bounds bounds_;
  Rule without_;
};

/// One line of text.
std::string describe(const Bounds& bounds);
const char* name(Rule rule);

}  // namespace r2ccl::model
