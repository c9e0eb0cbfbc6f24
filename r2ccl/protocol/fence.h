// SPDX-License-Identifier: Apache-2.0
// The fence at one end: when does nothing come over the path that is left any more, and is nothing more sent?
// Decided from what the queue pair, its device and its driver show, and
// for how long. Pure: `alive` is a clock on which this process's own pauses count for nothing, in
// nanoseconds. PROTOCOL.md gives the reason of each rule.
//
// A Host is as in channel_end.h; asked is holds(Rule) alone.
#pragma once

#include <cstdint>

#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/rules.h"

namespace r2ccl {

/// What can be seen of the path that is left, and of its NIC.
struct FenceSight {
  bool given_up = false;     ///< it was given up before: in ERR since, and out of use
  bool worker_busy = false;  ///< a driver call on it has not returned; then only `stuck` is known
  bool stuck = false;        ///< … nor will it soon: the driver keeps a call for longer than its bound
  bool flushed = false;      ///< both sentinels are back
  bool empty = false;        ///< its completion queue has been read to the end
  bool mute = false;         ///< … and is known to report nothing any more
  bool destroyed = false;    ///< its queue pair is, as the driver says
  bool refused = false;      ///< the driver would not destroy it
  bool failed = false;       ///< its device is: what it answers to commands proves nothing
};

/// What is known of the device of a path.
struct DeviceSight {
  bool refused = false;   ///< it has answered a command on it with EIO
  bool reported = false;  ///< it has reported that it failed, since the path was made
  bool removed = false;   ///< its kernel has stopped it
};
/// Nothing that its driver says of the path counts any more but flushes, which come from the NIC itself.
constexpr bool has_failed(const DeviceSight& seen) { return seen.refused || seen.reported || seen.removed; }

/// What is known of a queue pair that is being destroyed because its path was given up.
struct DestructionSight {
  bool gone = false;     ///< nothing is kept of it: it is destroyed, and its device has not failed
  bool done = true;      ///< the driver has returned
  bool stuck = false;    ///< … nor will it soon
  bool refused = false;  ///< with an error
  DeviceSight device;    ///< `refused`: that error was EIO
};
/// … as a fence sees it.
constexpr FenceSight of_given_up(const DestructionSight& seen) {
  FenceSight fence;
  fence.given_up = true;
  if (seen.gone) return fence;
  fence.worker_busy = !seen.done;
  fence.stuck = !seen.done && seen.stuck;
  fence.refused = seen.done && seen.refused;
  fence.failed = seen.done && has_failed(seen.device);
  return fence;
}
/// … as FenceClock::look_at_removal() does. Whatever its driver has answered: that is not asked again, and
/// the kernel, whose word alone counts then, destroys what is left of a device.
constexpr FenceSight of_removed(const DestructionSight& seen) {
  FenceSight fence;
  fence.worker_busy = !seen.done;
  fence.destroyed = seen.done;
  return fence;
}

enum class FenceAct : uint8_t {
  kWait,
  kDone,         ///< it is fenced at this end
  kStop,         ///< it is there: it is to be moved to ERR, with sentinels behind what it has
  kDestroy,      ///< no flushes come: its queue pair is to be destroyed
  kCannot,       ///< this end cannot fence it: a receiver's kernel has to stop its device; a sender does
                 ///< without
  kUnfenceable,  ///< nobody can: the channel fails
};

/// Why an end cannot fence.
enum class NoFence : uint8_t {
  kNone,
  kDriverKeepsCall,     ///< … for longer than the fence's bound
  kDestroyedByFailed,   ///< a device that has failed says that it has destroyed the queue pair
  kRefusedByFailed,     ///< … or would not
  kNoFlushesByFailed,   ///< … or nothing comes from it
  kNoFlushesAndRefused  ///< within the bound, and the driver of a device that works would not destroy it
};

struct FenceStep {
  FenceAct act = FenceAct::kWait;
  NoFence why = NoFence::kNone;
};

class FenceClock {
 public:
  /// Flushes have this part of the bound; then the queue pair is destroyed. As long an event that says that
  /// the device has failed may take to follow a command that it only pretended to carry out.
  static constexpr uint64_t kFlushShare = 5;

  /// `bound`: what a driver and its NIC may take; `removal`: what a kernel may take to stop a device that has
  /// failed. `delay`: no fence is over sooner (debugging).
  FenceClock(bool sender, uint64_t bound, uint64_t removal, uint64_t delay = 0)
      : sender_(sender), bound_(bound), removal_(removal), delay_(delay) {}

  // --- what happens
  void begin(uint64_t alive) {
    since_ = alive;
    silent_since_ = destroyed_at_ = 0;
  }
  /// Of a path that was given up before, and that the peer may have used. `there`: it is not being destroyed.
  template <class Host>
  FenceAct begin_given_up(const Host& host, uint64_t alive, bool there) {
    begin(alive);
    if (!host.holds(Rule::kGivenUpFence)) return FenceAct::kDone;
    return there ? FenceAct::kStop : FenceAct::kWait;
  }
  /// This end has done what it can.
  void over(uint64_t alive) { since_ = alive; }
  /// The peer says so of its half, and that counts. `phase`: what follows from it.
  void peer_over(uint64_t alive, Phase phase) {
    if (phase != Phase::kFencing) since_ = alive;
  }

  // --- kFencing: what is to be done, from what is seen
  bool may_look(uint64_t alive) const { return alive - since_ >= delay_; }
  template <class Host>
  FenceStep look(const Host& host, uint64_t alive, const FenceSight& seen) {
    const bool late = alive - since_ > bound_;
    if (seen.worker_busy) {
      silent_since_ = 0;  // the NIC's time begins when the driver has returned
      return late && seen.stuck ? of_working(host, NoFence::kDriverKeepsCall) : FenceStep{};
    }
    if (seen.given_up) {
      if (seen.failed) return of_failed(host, NoFence::kRefusedByFailed);
      if (!seen.refused) return {FenceAct::kDone};
      return late ? of_working(host, NoFence::kNoFlushesAndRefused) : FenceStep{};
    }
    if (seen.flushed || !host.holds(sender_ ? Rule::kSenderSentinel : Rule::kReceiverSentinel))
      return {FenceAct::kDone};
    if (seen.destroyed) {
      if (seen.failed) return of_failed(host, NoFence::kDestroyedByFailed);
      if (destroyed_at_ == 0) destroyed_at_ = alive;
      return {alive - destroyed_at_ >= bound_ / kFlushShare ? FenceAct::kDone : FenceAct::kWait};
    }
    if (seen.refused && seen.failed) return of_failed(host, NoFence::kRefusedByFailed);
    return seen.empty ? look_at_silence(host, alive, seen) : FenceStep{};
  }
  /// How long nothing has come.
  uint64_t silence(uint64_t alive) const { return silent_since_ == 0 ? 0 : alive - silent_since_; }

  // --- behind it
  /// Of an end that could not: its device is being removed. The kernel's word is the only one of such a
  /// device that counts, and EIO comes before it: `removed`, the kernel has destroyed what belonged to it.
  /// The driver's own answer, which is asked for then, is EIO, or success by RDMAV_ALLOW_DISASSOC_DESTROY.
  /// Or the NIC flushes after all.
  FenceAct look_at_removal(bool removed, const FenceSight& seen) const {
    if (!seen.worker_busy && seen.flushed) return FenceAct::kDone;
    if (!removed || seen.worker_busy) return FenceAct::kWait;
    if (seen.destroyed) return FenceAct::kDone;
    if (seen.refused) return seen.failed ? FenceAct::kDone : FenceAct::kWait;
    return FenceAct::kDestroy;
  }
  /// In kUnfenced the receiver's device has not been stopped. kUnfenceable: it takes too long.
  FenceAct look_at_unfenced(Phase phase, uint64_t alive) const {
    return phase == Phase::kUnfenced && alive - since_ > removal_ ? FenceAct::kUnfenceable : FenceAct::kWait;
  }

 private:
  // What a sender's NIC may still send meets the receiver's fence.
  template <class Host>
  FenceStep of_sender(const Host& host, NoFence why) const {
    return {host.holds(Rule::kOneFence) ? FenceAct::kCannot : FenceAct::kUnfenceable, why};
  }
  // Of a device that works: a receiver's NIC that stands still with its driver may place what it has taken in
  // at any time, and nobody stops it.
  template <class Host>
  FenceStep of_working(const Host& host, NoFence why) const {
    return sender_ ? of_sender(host, why) : FenceStep{FenceAct::kUnfenceable, why};
  }
  // Nothing that its driver says counts any more but flushes, which come from the NIC itself.
  template <class Host>
  FenceStep of_failed(const Host& host, NoFence why) const {
    if (!host.holds(Rule::kRefusedNotFenced)) return {FenceAct::kDone};
    return sender_ ? of_sender(host, why) : FenceStep{FenceAct::kCannot, why};
  }
  template <class Host>
  FenceStep look_at_silence(const Host& host, uint64_t alive, const FenceSight& seen) {
    if (silent_since_ == 0) silent_since_ = alive;
    const uint64_t silent = alive - silent_since_;
    if (!seen.mute && !seen.refused && silent <= bound_ / kFlushShare) return {};
    if (seen.failed) return of_failed(host, NoFence::kNoFlushesByFailed);
    if (!seen.refused) return {FenceAct::kDestroy};
    return silent > bound_ ? of_working(host, NoFence::kNoFlushesAndRefused) : FenceStep{};
  }

  const bool sender_;
  const uint64_t bound_, removal_, delay_;
  uint64_t since_ = 0;         // alive; when what it waits for began
  uint64_t silent_since_ = 0;  // alive; since when the path has been empty and nothing came; 0: not known
  uint64_t destroyed_at_ = 0;  // alive; its queue pair was, as the driver says; 0: it is not
};

}  // namespace r2ccl
