// SPDX-License-Identifier: Apache-2.0
// What a channel knows of its messages. Pure: no verbs, no clock. The receiver's ledger is the authority on
// what has arrived; the sender's says what was posted, what the NIC reported and what the receiver confirmed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "r2ccl/protocol/wire.h"

namespace r2ccl {

enum class Arrival : uint8_t {
  kSegment,    ///< one more segment; others are missing
  kMessage,    ///< that was the last segment of its message
  kDuplicate,  ///< it was here already
  kUnknown,    ///< no open message has this ticket, or the segment counts disagree
};

/// The receiver's half: messages in the order of their irecv. kWindow: how many may be open, a power of two.
template <uint32_t kWindow>
class ReceiveLedgerOf {
 public:
  /// Opens the next message and returns its number. The caller keeps at most kWindow open.
  uint64_t open() {
    Entry& entry = entries_[next_ % kWindow];
    entry = Entry{};
    return next_++;
  }

  struct Outcome {
    Arrival arrival;
    uint64_t message;
  };
  /// The message that an immediate speaks of; not below next(): there is none.
  uint64_t message_of(const wire::Immediate& immediate) const {
    // The ticket is the message number's low bits; open messages span far less than 2^23.
    return first_ + ((immediate.ticket - uint32_t(first_)) & wire::kTicketMask);
  }
  /// A segment of `bytes` has arrived. `hidden`: whoever reads the memory does not see it yet, so that the
  /// message is not complete before seen() of it.
  Outcome arrive(const wire::Immediate& immediate, uint64_t bytes, bool hidden = false) {
    const uint64_t message = message_of(immediate);
    if (message >= next_) {
      // Behind the window: a message that was complete already.
      const bool past = ((uint32_t(first_) - immediate.ticket) & wire::kTicketMask) <= kWindow && first_ > 0;
      return {past ? Arrival::kDuplicate : Arrival::kUnknown, message};
    }
    Entry& entry = entries_[message % kWindow];
    const uint16_t bit = uint16_t(1u << immediate.segment);
    if (immediate.segment >= immediate.segments ||
        (entry.expected != 0 && entry.expected != immediate.segments))
      return {Arrival::kUnknown, message};
    if (entry.arrived & bit) return {Arrival::kDuplicate, message};
    entry.expected = uint8_t(immediate.segments);
    entry.arrived |= bit;
    if (hidden) entry.hidden |= bit;
    entry.bytes += bytes;
    return {completed(entry) ? Arrival::kMessage : Arrival::kSegment, message};
  }
  /// A segment that was hidden can be seen. True: that makes its message complete.
  bool seen(uint64_t message, uint32_t segment) {
    Entry& entry = entries_[message % kWindow];
    entry.hidden &= uint16_t(~(1u << segment));
    return completed(entry);
  }
  /// A segment that is still hidden is never going to be seen: it counts as missing, and may arrive again.
  void forget(uint64_t message, uint32_t segment, uint64_t bytes) {
    Entry& entry = entries_[message % kWindow];
    const uint16_t bit = uint16_t(1u << segment);
    if (!(entry.hidden & bit)) return;
    entry.hidden &= uint16_t(~bit);
    entry.arrived &= uint16_t(~bit);
    entry.bytes -= bytes;
  }

  /// Messages are complete up to here, without a gap: 'received up to N'.
  uint64_t received() const { return first_; }
  uint64_t next() const { return next_; }
  bool complete(uint64_t message) const {
    return message < first_ || (message < next_ && entries_[message % kWindow].complete);
  }
  uint64_t bytes(uint64_t message) const { return entries_[message % kWindow].bytes; }
  /// Bit i: segment i of that message, which is not complete, is here.
  uint16_t segments(uint64_t message) const {
    return message >= first_ && message < next_ ? entries_[message % kWindow].arrived : 0;
  }

  /// What the sender must know for its replay: the first message that is not complete (returned), and what
  /// is here of it and of each one behind it.
  uint64_t report(std::span<uint16_t, kWindow> segments) const {
    for (uint64_t message = first_; message < next_; ++message)
      segments[message - first_] = entries_[message % kWindow].arrived;
    return first_;
  }

  static uint16_t full(uint32_t segments) { return uint16_t((1u << segments) - 1); }

 private:
  struct Entry {
    uint64_t bytes = 0;
    uint16_t arrived = 0;
    uint16_t hidden = 0;
    uint8_t expected = 0;
    bool complete = false;
  };
  bool completed(Entry& entry) {
    if (entry.arrived != full(entry.expected) || entry.hidden != 0) return false;
    entry.complete = true;
    while (first_ < next_ && entries_[first_ % kWindow].complete) ++first_;
    return true;
  }
  std::array<Entry, kWindow> entries_{};
  uint64_t first_ = 0;  // lowest message that is not complete
  uint64_t next_ = 0;
};

/// The sender's half: messages in the order of their isend.
template <uint32_t kWindow>
class SendLedgerOf {
 public:
  uint64_t open(uint32_t segments) {
    entries_[next_ % kWindow] = Entry{ReceiveLedgerOf<kWindow>::full(segments), 0};
    return next_++;
  }
  /// The NIC reports that a segment has been delivered.
  void completed(uint64_t message, uint32_t segment) {
    if (message < next_ && next_ - message <= kWindow)
      entries_[message % kWindow].completed |= uint16_t(1u << segment);
  }
  /// The receiver confirms everything before `up_to`. Never goes back; never beyond what was sent.
  void confirmed(uint64_t up_to) {
    if (up_to > confirmed_ && up_to <= next_) confirmed_ = up_to;
  }
  /// The same, of which only the low bits are known.
  void confirmed_low(uint32_t up_to) {
    if (const auto step = int32_t(up_to - uint32_t(confirmed_)); step > 0)
      confirmed(confirmed_ + uint32_t(step));
  }
  /// The receiver's report, made behind both fences of a path: it has everything before `first`, and
  /// segments[i] of message first + i. For what the path carried, what the NIC said before counts for nothing
  /// from here on. live(message): the segments that other paths carry, which are not fenced: there the NIC's
  /// word stays, is not replaced by the report, and is waited for. (A report of messages that do not exist
  /// yet says nothing.)
  template <typename Live>
  void take_report(uint64_t first, std::span<const uint16_t> segments, Live live) {
    if (first > next_) return;
    const uint64_t here = std::max(first, confirmed_);  // the receiver has everything before this one
    confirmed(here);
    // What has left the window was received: its slot was used again.
    released_ = std::max(released_, std::min(here, next_ > kWindow ? next_ - kWindow : 0));
    for (uint64_t message = released_; message < next_; ++message) {
      Entry& entry = entries_[message % kWindow];
      const auto elsewhere = uint16_t(live(message) & entry.all);
      uint16_t arrived = entry.all;
      if (message >= here)
        arrived = message - first < segments.size() ? uint16_t(segments[message - first] & entry.all) : 0;
      entry.completed = uint16_t((entry.completed & elsewhere) | (arrived & ~elsewhere));
    }
    const auto complete = [this](const Entry& entry) { return entry.completed == entry.all; };
    while (released_ < std::min(here, next_) && complete(entries_[released_ % kWindow])) ++released_;
  }
  void take_report(uint64_t first, std::span<const uint16_t> segments) {
    take_report(first, segments, [](uint64_t) { return uint16_t{0}; });
  }
  /// The segments that must be sent (again): neither the receiver nor, since its last report, the NIC has
  /// said that they are there.
  uint16_t missing(uint64_t message) const {
    const Entry& entry = entries_[message % kWindow];
    return message < confirmed_ ? 0 : uint16_t(entry.all & ~entry.completed);
  }
  /// May the buffer of `message` be given back? With strict acknowledgement only the receiver's ACK counts
  /// in addition to the NIC's.
  bool done(uint64_t message, bool strict) const {
    const Entry& entry = entries_[message % kWindow];
    const bool completed = message < released_ || entry.completed == entry.all;
    return completed && (!strict || message < confirmed_);
  }
  /// No path of this end carries anything before `up_to` any more, and the receiver has it all: the NIC's own
  /// reports no longer matter.
  void released(uint64_t up_to) {
    confirmed(up_to);
    if (up_to > released_ && up_to <= next_) released_ = up_to;
  }
  uint64_t next() const { return next_; }
  uint64_t confirmed() const { return confirmed_; }
  /// Nothing before this one can be missing.
  uint64_t first_held() const { return std::max(confirmed_, released_); }
  /// The first message that the NIC has not reported in full.
  uint64_t reported() const {
    uint64_t message = first_held();
    while (message < next_ && missing(message) == 0) ++message;
    return message;
  }

 private:
  struct Entry {
    uint16_t all = 0;
    uint16_t completed = 0;
  };
  std::array<Entry, kWindow> entries_{};
  uint64_t next_ = 0;
  uint64_t confirmed_ = 0;
  uint64_t released_ = 0;
};

using ReceiveLedger = ReceiveLedgerOf<wire::kRingLines>;
using SendLedger = SendLedgerOf<wire::kRingLines>;

}  // namespace r2ccl
