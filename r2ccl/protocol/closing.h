// SPDX-License-Identifier: Apache-2.0
// The end of a channel, in time: how long what was sent from copies may settle before this end closes, what
// is still waited for when the peer has closed, and how long a closed end answers a peer that has not. Pure;
// all times are CLOCK_MONOTONIC in nanoseconds.
//
// A Host answers, where Closing says what is done in which order:
//   sender(), greeted()
//   torn_down()           the queue pairs are destroyed, or their drivers do not answer
//   connected(), outage() the control connection stands; it is broken
//   lacks()               a request is open that what was seen so far does not complete
//   for_nic_alone()       … and the receiver has everything: the NIC has not said so
//   has_path(), epoch()   for gives_set_up_up()
//   see_failure()         a FailureSight
// and carries out:
//   owning(f)             f(), as the owner of messages and paths
//   say_last_word()       what last_word() says, once
//   hang_up()             closes the control connection, for good
//   end_connection()      … when what was said has been written
//   give_halves_up()      of paths that are being made
//   leave_paths()         all of them, for good: their queue pairs are destroyed
//   closed()              nothing may be posted or tested any more
//   take_halves()         those that are made by now
//   release()             the program may have its buffers back
//   restore()             the control connection, if it is broken
//   look()                takes in all that has come
//   nothing_is_sent()     no NIC of this end reads a buffer any more
//   lost()                fails: the peer has closed while messages were open
//   give_set_up_up()
#pragma once

#include <algorithm>
#include <cstdint>

#include "r2ccl/protocol/migration.h"

namespace r2ccl {

/// What is known of an end that its program has closed.
struct SettleSight {
  bool greeted = true;      ///< both ends know each other
  bool failed = false;      ///< for good
  bool busy = false;        ///< requests are open: the program waits no more for them
  bool unconfirmed = true;  ///< something that was sent (SendingEndOf::has_to_settle)
  bool unanswered = false;  ///< the peer's process has left another channel's questions unanswered of late
  bool lacks = false;       ///< the receiver lacks something, by what it has said last
  bool connected = true;    ///< its control connection stands
  Phase phase = Phase::kRunning;
};

/// What an end says last, before its queue pairs go: the peer must not take their end for a failure. A
/// program that closes at once when it sees an error must not keep the reason from the peer.
enum class LastWord : uint8_t {
  kNothing,
  kClose,    ///< that it is closed, and what it has received
  kFailure,  ///< why it has failed
  kRecord,   ///< … which nobody hears: it goes on record
};
/// What becomes of the control connection of an end that has failed.
enum class AfterFailure : uint8_t {
  kStays,
  kRestore,  ///< it is broken: the peer is to learn the reason, for as long as it may wait for it
  kHangUp,   ///< … it has been broken for too long, or the two ends never knew each other
};
struct FailureSight {
  bool greeted = true;   ///< both ends know each other
  bool outage = false;   ///< the control connection is broken
  bool in_vain = false;  ///< … for longer than a peer is waited for (Outage::is_in_vain)
};
constexpr AfterFailure after_failure(const FailureSight& seen) {
  if (seen.outage && (!seen.greeted || seen.in_vain)) return AfterFailure::kHangUp;
  return seen.outage ? AfterFailure::kRestore : AfterFailure::kStays;
}
/// It failed before it carried anything: perhaps NCCL never asks for it again, so that nobody closes it.
constexpr bool gives_set_up_up(bool has_path, uint32_t epoch) { return !has_path && epoch == 0; }

class Closing {
 public:
  /// What is lacking when the peer has closed is waited for so long; and what a closing sender repeats.
  static constexpr uint64_t kLingerNs = 2'000'000'000;
  /// … and a report of the NIC on what the receiver has.
  static constexpr uint64_t kLastAckNs = 10'000'000;
  /// How long a closed channel answers a peer that has not closed its end. The network may carry nothing for
  /// seconds, and the other one then asks for our last ACK over the next connection.
  static constexpr uint64_t kLastWordNs = 15'000'000'000;
  /// How long one that is closed waits for the receiver's ACK of messages that were sent from copies; and
  /// again while something is being sent once more.
  static constexpr uint64_t kSettleNs = 100'000'000;

  // --- what has been said
  /// The peer has closed its end: it brings nothing any more.
  bool peer_closed() const { return peer_closed_; }
  void peer_has_closed() { peer_closed_ = true; }
  /// This end has told the peer that it is closed, or why it has failed; or has nothing to tell it.
  bool told() const { return told_; }
  void has_told() { told_ = true; }
  /// Its program has closed it, or it has said all that it had to say. `requested`: by the program.
  bool is_closing(bool requested) const { return told_ || requested; }
  LastWord last_word(bool failed, bool greeted) const {
    if (told_) return LastWord::kNothing;
    if (failed) return greeted ? LastWord::kFailure : LastWord::kRecord;
    return greeted ? LastWord::kClose : LastWord::kNothing;
  }
  /// A sender that has not been greeted has no keys to say anything with, now or later.
  static constexpr bool hangs_up(bool sender, bool greeted) { return sender && !greeted; }

  /// What becomes of this end in a turn.
  enum class Ending : uint8_t {
    kGoesOn,
    kSettles,  ///< its program has closed it, and what was sent settles first: it goes on, perhaps over
               ///< another path
    kCloses,
  };
  /// `requested`: its program has closed it. `settles()`: something that was sent is still waited for; not
  /// asked of an end that has begun to close.
  template <class Settles>
  Ending ending(bool requested, Settles&& settles) const {
    if (begun_) return Ending::kCloses;
    if (!requested) return Ending::kGoesOn;
    return settles() ? Ending::kSettles : Ending::kCloses;
  }

  // --- this end is to be closed, and the receiver may lack something
  enum class Settling : uint8_t {
    kAsk,         ///< wait, and ask the receiver what it has
    kOver,        ///< long enough, or there is nothing to wait for
    kUnanswered,  ///< … and the receiver has not said a word meanwhile
  };
  /// What the receiver has said last counts if it has said a word since. What it lacks may be on its way, or
  /// its NIC stand still; the watchdog finds that out. A migration that is under way is waited for.
  Settling settle(uint64_t now, const SettleSight& seen) {
    if (!seen.greeted || peer_closed_ || seen.failed || seen.busy || !seen.unconfirmed || seen.unanswered)
      return Settling::kOver;
    if (settles_since_ == 0) {
      settles_since_ = now;
      settles_until_ = now + kSettleNs;
      answered_ = false;
    }
    if (seen.phase != Phase::kRunning || (seen.lacks && answered_))
      settles_until_ = std::min(now + kSettleNs, settles_since_ + kLingerNs);
    if (now <= settles_until_) return Settling::kAsk;
    // Where the connection is broken the peer's process is not to blame.
    return answered_ || !seen.connected ? Settling::kOver : Settling::kUnanswered;
  }
  /// The receiver has said what it has.
  void heard() { answered_ = true; }

  // --- the peer has closed
  enum class Lacking : uint8_t {
    kNothing,
    kWait,   ///< what it delivered before may still lie in the completion queue
    kLeave,  ///< the paths: only the NIC's report is missing, and the peer that would repeat it is gone
    kLost,   ///< it will not come any more
  };
  /// `lacks`: a request is open. `for_nic_alone`: the receiver has everything, and the NIC has not said so.
  Lacking look(uint64_t now, bool lacks, bool for_nic_alone) {
    if (!lacks) {
      lacking_since_ = 0;
      return Lacking::kNothing;
    }
    if (lacking_since_ == 0) lacking_since_ = now;
    const uint64_t waited = now - lacking_since_;
    if (for_nic_alone) return waited <= kLastAckNs ? Lacking::kWait : Lacking::kLeave;
    return waited <= kLingerNs ? Lacking::kWait : Lacking::kLost;
  }

  /// In each turn, when the peer has closed. True: nothing is awaited.
  template <class Host>
  bool step_after_peer(Host& host, uint64_t now) {
    return host.owning([&] {
      host.look();  // what it delivered before
      switch (look(now, host.lacks(), host.for_nic_alone())) {
        case Lacking::kNothing:
          return true;
        case Lacking::kWait:
          return false;
        case Lacking::kLeave:  // until its own queue pair is gone the NIC reads the buffer again and again
          host.leave_paths();
          if (host.torn_down()) host.nothing_is_sent();
          return false;
        case Lacking::kLost:
          host.lost();
      }
      return false;
    });
  }

  // --- this end has failed
  /// In each turn.
  template <class Host>
  void step_after_error(Host& host) {
    host.say_last_word();
    if (gives_set_up_up(host.has_path(), host.epoch())) host.give_set_up_up();
    switch (after_failure(host.see_failure())) {
      case AfterFailure::kStays:
        break;
      case AfterFailure::kRestore:
        return host.restore();
      case AfterFailure::kHangUp:
        host.hang_up();
    }
  }

  // --- this end is closed
  /// In each turn. The last word comes before the queue pairs go, buffers are given back after that, and the
  /// connection ends last, for the peer may ask again. False: it is still torn down.
  template <class Host>
  bool step(Host& host, uint64_t now) {
    if (!begun_) close(host, now);
    host.take_halves();
    if (!released_) {
      if (!host.torn_down()) return false;
      released_ = true;
      host.release();
    }
    host.restore();
    if (may_end(now, host.connected(), host.outage())) {
      host.end_connection();
      finish();
    }
    return true;
  }
  bool begun() const { return begun_; }
  void begin(uint64_t now) {
    begun_ = true;
    begun_at_ = now;
  }
  /// Nobody waits for its last ACK any more. `connected`: its connection stands; `outage`: it is being
  /// restored.
  bool may_end(uint64_t now, bool connected, bool outage) const {
    return !(connected || outage) || peer_closed_ || now - begun_at_ > kLastWordNs;
  }
  /// Nothing of it is left but the memory.
  bool finished() const { return finished_; }
  void finish() { finished_ = true; }

 private:
  template <class Host>
  void close(Host& host, uint64_t now) {
    host.owning([&] {
      host.say_last_word();
      if (hangs_up(host.sender(), host.greeted())) host.hang_up();
      host.give_halves_up();
      host.leave_paths();
      begin(now);  // not before: should memory be short, all of it is done once more
      host.closed();
      return true;
    });
  }

  bool peer_closed_ = false, told_ = false, begun_ = false, finished_ = false;
  bool released_ = false;  // the program may have its buffers back
  bool answered_ = false;  // the receiver, a question, since it settles
  uint64_t settles_since_ = 0, settles_until_ = 0;
  uint64_t lacking_since_ = 0;
  uint64_t begun_at_ = 0;
};

}  // namespace r2ccl
