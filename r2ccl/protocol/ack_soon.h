// SPDX-License-Identifier: Apache-2.0
// Which messages of a sender ask for their ACK soon. Pure. To post an ACK costs the receiver's thread time,
// and a later ACK confirms the messages before it, too. So an ACK may wait for long, as long as the sender's
// program does not wait for it. A program that has few buffers does: it posts the next message only when one
// is free. Only the sender can learn that, from what its program does.
//
// The depth of a message is the number of messages, itself included, that its program has posted without
// their ACKs. ahead() is the depth that the program is trusted to reach. A message of half that depth asks
// for its ACK if more receives are open than the program is trusted to have buffers for: then the ACK comes
// while the program fills the other half. If no more are open, the ACK of the last one is written at once in
// any case, and confirms them all.
//
// ahead() begins at 1, so that every message asks. It doubles after some messages that have reached it. The
// next level is a trial, which ends with the first ACK that came after a long wait and before the next
// message: the program may have waited for it. Each message that reaches the new level proves that the
// program has that many buffers, and pays for a part of a later wait. A pause of a GPU that is longer than
// the long wait costs little trust. One that ends soon after the ACK costs more, since a program that waits
// goes on soon. Each fall doubles the number of messages before the next trial. So long waits become rare
// where a program needs its ACKs.
//
// Messages that are sent from a copy are not awaited: they do not ask, and do not count.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace r2ccl {

class AckSoon {
 public:
  /// Each message of this depth asks.
  static constexpr uint32_t kMostAhead = 16;
  /// So many messages that have reached ahead() double it; twice as many after each fall, and half as many
  /// after kProofs times as many that have reached a level above one.
  static constexpr uint32_t kNeeded = 64;
  static constexpr uint32_t kMostNeeded = 16384;
  static constexpr uint32_t kProofs = 4;
  /// At kMostDoubt ahead() halves. A long wait adds this, if the next message comes soon after it, or does
  /// not; a message that has reached ahead() takes one away, at most one for each time as long as that wait:
  /// else many fast messages would pay for a wait that takes longer than all of them.
  static constexpr uint32_t kMostDoubt = 64;
  static constexpr uint32_t kWaitedFor = 16;
  static constexpr uint32_t kPerhapsWaitedFor = 4;

  uint32_t ahead() const { return ahead_; }

  /// A message is posted, `copied` or not, and is one of `unconfirmed` messages. Does it ask for its ACK
  /// soon? `must_ask`: it does in any case. open(n): the receive of the n-th message behind it is open, as
  /// far as is known. clock(): the time. Both are asked only where it counts.
  template <class Open, class Clock>
  bool posts(bool copied, uint64_t unconfirmed, Open open, Clock clock, bool must_ask = false) {
    awaited_ = awaited_ << 1 | uint64_t(!copied);
    if (copied) return false;
    if (ahead_ > 1) {
      posted_ = clock();
      if (waited_) judge();
    }
    const uint32_t depth = ahead_ == 1 ? 1 : uint32_t(std::popcount(awaited_ & newest(unconfirmed)));
    soon_ = must_ask || depth >= ahead_ || (depth >= ahead_ / 2 && open(ahead_ - depth + 1));
    if (depth >= ahead_) reached();
    return soon_;
  }

  /// ACKs have come after a long wait, or because somebody asked; `unconfirmed` messages are still without.
  template <class Clock>
  void waited_long(uint64_t unconfirmed, Clock clock) {
    // Those that are left keep the NIC busy. One that has asked for its ACK has not waited for long.
    if (ahead_ == 1 || soon_ || waited_ || (awaited_ & newest(unconfirmed)) != 0) return;
    confirmed_ = clock();
    wait_ = confirmed_ - posted_;
    waited_ = true;
  }

 private:
  static constexpr uint64_t newest(uint64_t messages) {
    return messages == 0 ? 0 : ~uint64_t{0} >> (64 - std::min<uint64_t>(messages, 64));
  }
  void reached() {
    if (ahead_ > 1) {
      if (doubt_ > 0 && posted_ - paid_ >= wait_) {
        --doubt_;
        paid_ = std::max(paid_ + wait_, posted_ - std::min(posted_, wait_));  // fractions count
      }
      if (++proofs_ >= kProofs * needed_) {
        proofs_ = 0;
        needed_ = std::max(needed_ / 2, kNeeded);
      }
    }
    if (++reached_ < needed_ || ahead_ == kMostAhead) return;
    ahead_ *= 2;
    reached_ = 0;
    doubt_ = kMostDoubt - 1;
  }
  /// The program has posted the first message after a long wait.
  [[gnu::noinline]] void judge() {
    waited_ = false;
    doubt_ += posted_ - confirmed_ < wait_ / 4 ? kWaitedFor : kPerhapsWaitedFor;
    if (doubt_ < kMostDoubt) return;
    ahead_ /= 2;
    reached_ = proofs_ = 0;
    doubt_ = kMostDoubt / 2;
    needed_ = std::min(2 * needed_, kMostNeeded);
  }

  uint64_t awaited_ = 0;    // bit i: the i-th newest message is not copied
  uint64_t posted_ = 0;     // when the newest one of those was
  uint64_t confirmed_ = 0;  // when a long wait was over, `wait_` after that
  uint64_t wait_ = 0;
  uint64_t paid_ = 0;  // when doubt_ was last reduced
  uint32_t ahead_ = 1;
  uint32_t needed_ = kNeeded;
  uint32_t reached_ = 0;  // messages that have reached ahead_, since it changed
  uint32_t proofs_ = 0;   // and those since needed_ changed, or a fall
  uint32_t doubt_ = 0;
  bool soon_ = true;     // the newest one that is not copied
  bool waited_ = false;  // a long wait is over, and no message has been posted since
};

}  // namespace r2ccl
