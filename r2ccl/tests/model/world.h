// SPDX-License-Identifier: Apache-2.0
// The model that the explorer explores: both ends of one channel, the queue pairs between them and the
// control connection. The ends are those of the core (SendingEndOf, ReceivingEndOf, ChannelEnd). They get
// events, and executor.cc carries out their actions on NICs that may fail at every step.
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
/// CTS entries in the ring: the third message uses the slot of the first.
inline constexpr uint32_t kWindow = 2;
inline constexpr int kMaxWrites = 12;   ///< CTS entries and ACKs on their way over one path
inline constexpr int kMaxControl = 10;  ///< control messages on their way in one direction

/// How far the exploration goes. Of each fault: how often it may occur in one run.
struct Bounds {
  int messages = 2;
  int segments = 1;      ///< per message
  bool copies = false;   ///< messages are sent from copies: a buffer is given back at the NIC's completion
  int paths = 2;         ///< that can be opened in one run
  bool standby = false;  ///< a standby path is kept open
  int lanes = 0;   ///< paths that carry segments beside the active one, from the beginning of the run on
  int rests = 0;   ///< a lane becomes a standby path again
  int breaks = 0;  ///< a path acknowledges nothing more; packets in flight may still arrive
  int lost_completions = 0;     ///< at the sender: the work was done
  int lost_immediates = 0;      ///< data arrives and is acknowledged, but the receiver gets no completion
  int lost_writes = 0;          ///< a CTS entry or ACK is lost without an error
  int early = 0;                ///< a timeout fires too early, or a path is left without a reason
  int planned = 0;              ///< migrations to a standby path (failback)
  int duplicates = 0;           ///< a control message of the migration arrives once more, at any later time
  bool runs_out = false;        ///< an error is permitted once every path has been used
  bool closes = false;          ///< the programs close their ends when they have nothing open any more
  int frozen = 0;               ///< a NIC reports nothing any more, not even flushes
  bool destroy_fences = false;  ///< a frozen NIC's queue pair is destroyed, with its unseen completions
  /// A device is removed: it refuses commands and acknowledges nothing, but carries out what it has received
  /// and what was posted, until the kernel stops it at any later time.
  int gone = 0;
};

enum class Life : uint8_t { kNever, kOpening, kStandby, kActive, kFencing, kRetired, kGone, kLane };
enum class Pair : uint8_t {
  kNone,
  kReady,
  kError,  ///< the move to ERR has returned; the NIC may still write what it had received
  kDead,   ///< its sentinels are flushed, or it is destroyed
};

/// One end's half of a path.
struct Half {
  Life life = Life::kNever;
  Pair pair = Pair::kNone;
  bool frozen = false;
  bool failed = false;  ///< marked failed: it is left once the present migration is over
  bool gone = false;    ///< its device refuses commands; only the kernel makes it kDead
};

/// One RC connection. A queue pair executes its work in order, so counters describe its progress.
struct Link {
  Half half[2];  ///< [0] the sender's, [1] the receiver's
  bool broken = false;
  bool stands_still = false;     ///< sender: a completion was lost, so no progress can be seen
  uint64_t queue = 0;            ///< posted segments in their order, four bits each
  uint8_t posted = 0;            ///< number of posted segments
  uint8_t delivered = 0;         ///< how many of them are in the receiver's memory
  uint8_t acknowledged = 0;      ///< for how many of them the sender's NIC has the ACK
  uint8_t taken[2] = {0, 0};     ///< completions that the sender has polled, arrivals that the receiver has
  uint8_t lost_completions = 0;  ///< a bit per posted segment
  uint8_t lost_immediates = 0;   ///< likewise
  uint8_t stale = 0;  ///< without kNewQueuePairs: segments of the old queue pair that are still in flight
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
  /// kFenced: the first incomplete message. kReceived, kClose: the number of received messages; segments[0]
  /// has the segments of the next one.
  uint8_t number = 0;
  std::array<uint8_t, kWindow> segments{};
  bool cannot = false;  ///< kFenced: this end cannot fence the path
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
  std::array<uint8_t, kSegmentsInAll> on{};  ///< with lanes: the path to which each segment is assigned
  bool refused = false;                      ///< broken ones of these paths refuse the post
};

inline constexpr int kSender = 0, kReceiver = 1;

struct World {
  SendingEndOf<kWindow> sender;  // the core's own
  ReceivingEndOf<kWindow> receiver;
  MigrationEnd& end(int e) { return e == kSender ? sender.migration : receiver.migration; }
  const MigrationEnd& end(int e) const { return e == kSender ? sender.migration : receiver.migration; }
  bool connected = false;  ///< the receiver has used a path
  bool failed[2] = {false, false};
  bool closes[2] = {false, false};       ///< its program has closed this end
  bool closed[2] = {false, false};       ///< it has sent kClose, after it had settled
  bool peer_closed[2] = {false, false};  ///< it has received the peer's kClose
  bool answered = false;                 ///< the sender has had an answer since it began to settle
  bool left_for_good = false;            ///< the sender has left its paths, and waits for its NIC only
  uint8_t given_back = 0;                ///< a bit per message whose send buffer was given back
  uint8_t completed = 0;                 ///< a bit per message whose receive was reported
  uint8_t in_memory = 0;                 ///< a bit per segment that was written to the receive buffer
  std::array<uint8_t, kWindow> ring{};   ///< the sender's CTS entries: message + 1
  uint8_t opening = 0;                   ///< path that the sender is opening
  uint8_t next_path = 2;
  uint8_t asked = 0, requested = 0;  ///< ACK queries, and requests for one, since the last progress
  std::array<uint8_t, kSegmentsInAll> carrier{};  ///< sender: the path of each segment; 0: none
  uint8_t unwritten = 0;                          ///< a bit per segment that its path refused
  uint8_t rests = 0;                              ///< so far
  Queue to[2];
  Control again;  ///< a duplicate, for the end again_to
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
