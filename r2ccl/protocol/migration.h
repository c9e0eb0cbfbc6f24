// SPDX-License-Identifier: Apache-2.0
// One end's part in the migration protocol: epochs, whose fence is still missing, and what follows from each
// control message. Pure: no verbs, no clock, no threads. channel_end.h says what is done then. PROTOCOL.md
// gives the reason of each rule.
#pragma once

#include <cstdint>

namespace r2ccl {

enum class PathState : uint8_t {
  kOpening,
  kProving,
  kStandby,
  kActive,  ///< carries everything: CTS entries, ACKs and messages
  kLane,    ///< carries segments of messages beside the active one (balance)
  kFencing,
};

/// Of a sender without an active path: what it is about to leave is not among those.
constexpr bool may_take_over(PathState state) {
  return state == PathState::kStandby || state == PathState::kLane;
}

/// It carries traffic.
constexpr bool is_in_use(PathState state) { return state == PathState::kActive || state == PathState::kLane; }
/// An error has marked it failed, and it has not been left: as long as there is one, nothing is posted.
constexpr bool is_suspect(PathState state, bool marked_failed) { return is_in_use(state) && marked_failed; }

enum class Phase : uint8_t {
  kRunning,         ///< the active path carries traffic; or there was none yet
  kFencing,         ///< the path that is left is not fenced here
  kWaitingForPeer,  ///< this end has done what it can; sender: the other has not. Receiver: until the sender
                    ///< uses another path
  kUnfenced,  ///< sender: the receiver's half is not fenced, and cannot be until its kernel stops its device
  kChoosing,  ///< sender: nothing comes over it any more, and the receiver's ledger is here
};

/// What a control message asks of the end that gets it.
enum class MigrateReply : uint8_t {
  kOld,           ///< nothing: it is of another epoch, or was said before
  kFenceActive,   ///< to leave the active path and fence it
  kFenceGivenUp,  ///< to fence what is left of a path that this end has given up or never used
  kOther,         ///< at the sender: to leave that path, too, when this migration is over
  kUse,           ///< to take the path into use
};

class MigrationEnd {
 public:
  explicit MigrationEnd(bool sender) : sender_(sender) {}

  bool sender() const { return sender_; }
  Phase phase() const { return phase_; }
  uint32_t epoch() const { return epoch_; }
  /// The path that is left in this epoch.
  uint32_t leaving() const { return leaving_; }
  /// Where a planned migration goes; 0: to whatever works.
  uint32_t target() const { return target_; }
  /// The path that is left has not failed.
  bool planned() const { return planned_; }
  /// What is known of a half of that path.
  enum class Fence : uint8_t {
    kPending,
    kCannot,  ///< its device is gone, or does not answer: nobody there can say when it stops
    kDone,
  };
  Fence own_fence() const { return own_; }
  Fence peer_fence() const { return peer_; }

  /// This end leaves `path`, its active one: the next epoch. The caller fences the path and tells the peer.
  void leave(uint32_t path, uint32_t target = 0) { enter(epoch_ + 1, path, target, target != 0); }

  /// The peer leaves `path`. `carries`: it is this end's active path, or one of its lanes. `planned`: it has
  /// not failed. Both may have noticed at once; that is one migration. With lanes they may have noticed
  /// different failures: then both leave the sender's path first, and the receiver's (the sender marks it
  /// failed, on kOther) in the next epoch.
  MigrateReply peer_leaves(uint32_t epoch, uint32_t path, bool carries, bool planned = false) {
    const bool at_once = epoch == epoch_ && phase_ != Phase::kRunning && path != leaving_;
    if (at_once && sender_) return MigrateReply::kOther;
    if (epoch <= epoch_ && !at_once) return MigrateReply::kOld;
    enter(epoch, path, 0, planned);
    return carries ? MigrateReply::kFenceActive : MigrateReply::kFenceGivenUp;
  }

  /// The path that was left is fenced at this end, be it after cannot_fence(). The caller tells the peer
  /// (receiver: with its ledger).
  void fenced() {
    own_ = Fence::kDone;
    follow();
  }
  /// This end cannot fence it. The caller tells the peer likewise, and takes nothing in from that path any
  /// more: the ledger is said.
  void cannot_fence() {
    own_ = Fence::kCannot;
    follow();
  }

  /// The peer says that it has fenced (`stopped`), or cannot. True: it counts, and so does the ledger that
  /// comes with it.
  bool peer_has_fenced(uint32_t epoch, uint32_t path, bool stopped) {
    if (epoch != epoch_ || path != leaving_ || phase_ == Phase::kRunning) return false;
    if (!stopped && peer_ == Fence::kDone) return false;  // said before, and come once more
    peer_ = stopped ? Fence::kDone : Fence::kCannot;
    if (own_ != Fence::kPending) follow();
    return true;
  }

  /// The sender uses `path`, which stands by at this end or does not. `connected`: some path has been in use
  /// before. After kFenceGivenUp the caller tells the peer that it leaves the path: a new epoch.
  MigrateReply peer_uses(uint32_t epoch, uint32_t path, bool stands_by, bool connected) {
    if (sender_ || epoch != epoch_ || (phase_ == Phase::kRunning && connected)) return MigrateReply::kOld;
    if (stands_by) return MigrateReply::kUse;
    if (!connected) return MigrateReply::kOld;  // the sender hears of it through our kDrop
    enter(epoch_ + 1, path, 0, false);
    return MigrateReply::kFenceGivenUp;
  }

  /// Traffic flows over another path.
  void running() { phase_ = Phase::kRunning; }

 private:
  void enter(uint32_t epoch, uint32_t path, uint32_t target, bool planned) {
    epoch_ = epoch;
    leaving_ = path;
    target_ = target;
    planned_ = planned;
    phase_ = Phase::kFencing;
    own_ = peer_ = Fence::kPending;
  }

  // The receiver's fence is the one that counts: only there can application memory be written. What a
  // sender's NIC still sends it refuses, and a NIC that has taken a packet in may hold it for any time,
  // however well the sender is fenced. CTS entries and ACKs that reach the sender late are old ones, and are
  // known as such.
  void follow() {
    if (!sender_ || peer_ == Fence::kPending)
      phase_ = Phase::kWaitingForPeer;
    else
      phase_ = peer_ == Fence::kDone ? Phase::kChoosing : Phase::kUnfenced;
  }

  bool sender_;
  Phase phase_ = Phase::kRunning;
  Fence own_ = Fence::kPending;
  Fence peer_ = Fence::kPending;
  uint32_t epoch_ = 0;
  uint32_t leaving_ = 0;
  uint32_t target_ = 0;
  bool planned_ = false;
};

/// The peer has given up a path that is in `state` here.
enum class AfterDrop : uint8_t {
  kNothing,  ///< it is being fenced already
  kLeave,    ///< it carries traffic: migrate
  kDrop,     ///< give it up, too
};
inline AfterDrop after_drop(PathState state) {
  switch (state) {
    case PathState::kFencing:
      return AfterDrop::kNothing;
    case PathState::kActive:
    case PathState::kLane:
      return AfterDrop::kLeave;
    default:
      return AfterDrop::kDrop;
  }
}

/// The sender's question 'what have you received?': one at a time, so that a stopped peer's connection does
/// not fill up. It also finds the path that has silently dropped a segment: the NIC had reported messages
/// before the question, and the receiver, who looked for them, says for the second time running that it
/// lacks them.
class AckQuery {
 public:
  /// True: ask now. Everything before message `reported` has been reported by the NIC.
  bool ask(uint64_t reported) {
    if (asked_) return false;
    asked_ = true;
    reported_ = reported;
    return true;
  }
  /// The answer. True: the path has lost something.
  bool answered(uint64_t received) {
    asked_ = false;
    const bool lacks = received < reported_;
    const bool again = lacks && lacked_ && received == received_;
    lacked_ = lacks;
    received_ = received;
    return again;
  }
  /// What was asked before says nothing of the path that carries the traffic now.
  void moved() {
    reported_ = 0;
    lacked_ = false;
  }
  bool asked() const { return asked_; }
  bool lacked() const { return lacked_; }
  uint64_t reported() const { return reported_; }
  uint64_t received() const { return received_; }

 private:
  bool asked_ = false;
  bool lacked_ = false;
  uint64_t reported_ = 0;
  uint64_t received_ = 0;
};

}  // namespace r2ccl
