// SPDX-License-Identifier: Apache-2.0
// The receiving end of a channel: its ledger, what it has told the sender, and what it does when the sender
// asks, when it has waited for long, and when another path carries. Written once, for Receiver and for the
// exploration in tests/model. Pure. What both ends do is in channel_end.h; PROTOCOL.md gives the reason of
// each rule.
//
// A Host, besides what channel_end.h asks of it, answers:
//   acknowledges()            it sends ACKs
//   peer_copies()             the sender's program may have its buffers back before the ACK
//   ready()                   a path is active, and nothing that carries is marked failed
//   lanes()                   the paths that carry beside the active one
//   room(n)                   the send queue of the active path takes n more work requests
//   flushing(path)            a flush of what it has placed is under way
//   posted(), completed()     how many work requests the active path has been given, and has completed
//   unflushed()               something that has arrived is not known to be visible yet
// and carries out:
//   look()                    takes in all that has arrived, on every path
//   write_cts(message)        on the active path, as the next; nothing where that path has just failed
//   write_ack(prove)          tells(), on the active path. `prove`: its completion shows whether the path
//   works send_wait(received)       'I have so much, and wait: query me' send_received(received, segments)
//   the answer to a query, with what it has of the next message
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "r2ccl/protocol/channel_end.h"
#include "r2ccl/protocol/ledger.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/rules.h"
#include "r2ccl/protocol/sent.h"

namespace r2ccl {

/// What a test does with an ACK.
enum class Ack : uint8_t {
  kNone,   ///< none is due
  kNow,    ///< writes it
  kLater,  ///< puts it off: Channel::acknowledge()
};

template <uint32_t kWindow>
class ReceivingEndOf {
 public:
  MigrationEnd migration{false};
  ReceiveLedgerOf<kWindow> ledger;  ///< post and test use it directly
  uint64_t told = 0;                ///< 'received up to', as last written on the active path

  /// A CTS entry is written where there is room for it and an ACK behind it.
  static constexpr uint32_t kRoomForCts = 2;
  /// CTS entries and ACKs complete on the active path, also where lanes alone bring messages. Is it time to
  /// look there, with so many under way of those that its queue holds?
  static constexpr bool is_crowded(uint32_t under_way, uint32_t depth) { return under_way > depth / 2; }
  /// An ACK waits for a CTS entry to piggyback on while messages are open, and therefore tested for: for so
  /// many tests, and not when so many messages are to be confirmed. The second numbers are for messages of
  /// which none asks for its ACK soon (ack_soon.h): then tests count from the newest message on, since a
  /// sender that waits sends none. They are far less than may be open.
  static constexpr uint32_t kTestsToWaitForCts = 16;
  static constexpr uint64_t kMessagesToWaitForCts = 4;
  static constexpr uint32_t kTestsUnlessSoon = 1024;
  static constexpr uint64_t kMessagesUnlessSoon = 16;
  /// An answer waits for a flush, which takes a few microseconds where a NIC works, for so many looks.
  static constexpr int kLooksAtFlush = 1000;

  bool waits() const { return ledger.received() < ledger.next(); }
  bool owes_ack() const { return ledger.received() > told; }
  bool has_asked() const { return asked_; }

  // --- ACKs
  /// `message` is complete, and segment_came() of all of it. The sender waits for its ACK unless it has sent
  /// it from a copy: it copies messages of up to `copied_bytes` (0: none) for which it has room, and those
  /// that it does not copy ask for their ACK.
  void is_whole(uint64_t message, uint32_t copied_bytes) {
    const bool asks = soon_ > message;  // or a later one does: then the ACK comes sooner than it must
    if (ledger.bytes(message) <= copied_bytes && copied_bytes > 0 && !asks) return;
    awaited_ = std::max(awaited_, message + 1);
    tests_at_newest_ = tests_;
  }
  /// A new segment of `message` has arrived; `ack_soon`: as in its immediate.
  void segment_came(uint64_t message, bool ack_soon) {
    if (ack_soon) soon_ = std::max(soon_, message + 1);
  }
  /// The newest message that is to be confirmed would have been, had it asked for that.
  bool waited_long() const { return tests_ - tests_at_newest_ >= kTestsToWaitForCts; }
  /// What the next CTS entry says of that in CtsLine::far_nics.
  uint32_t mark() const { return waited_long() ? wire::kWaitedLong : 0; }
  /// An ACK is about to be written, with a CTS entry or without: 'received up to'.
  uint64_t tells() {
    told = ledger.received();
    tests_ = tests_at_newest_ = 0;
    late_ = false;
    return told;
  }
  /// The same, for one without a CTS entry: the word to write.
  uint64_t tells_alone() {
    const uint64_t mark = waited_long() ? wire::kAckWaitedLong : 0;
    return tells() | mark;
  }
  /// A batch of completions has been read: is an ACK due now? `acknowledges`: as the host's.
  bool ack_due(bool acknowledges) const {
    if (!acknowledges || !owes_awaited_ack()) return false;
    return !waits() ||
           ledger.received() - told >= (is_asked_for() ? kMessagesToWaitForCts : kMessagesUnlessSoon);
  }
  /// A test has looked for completions; its message is complete (`done`), or not. `later`: the thread has
  /// other requests open. Then an ACK that is due waits (late_acks.h): what the thread receives and sends
  /// comes first, while a send is rarely waited for. Only one waits, and the next is written at once.
  Ack ack_after_test(bool acknowledges, bool done, bool later) {
    if (!ack_due(acknowledges)) return !done && ack_due_after_test(acknowledges) ? Ack::kNow : Ack::kNone;
    if (!done || !later || late_) return Ack::kNow;
    late_ = true;
    return Ack::kLater;
  }
  /// An ACK was put off: is it due still?
  bool late_ack_due() const { return late_ && owes_awaited_ack(); }

  // --- work requests
  /// A path with something under way that a working queue pair would have completed by now; 0: none.
  template <class Host>
  uint32_t standing_still(Host& host) const {
    const uint32_t active = host.active();
    if (active == 0 || host.flushing(active)) return active;
    for (const uint32_t lane : host.lanes())
      if (host.flushing(lane)) return lane;
    const bool proves = proof_ != 0 && int32_t(host.completed() - proof_) < 0;
    return proves || !host.room(kRoomForCts) ? active : 0;
  }

  // --- time
  /// Nothing has come for long, although probes are answered: it has the sender ask. When it has been
  /// `patient`, it repeats everything that the sender may lack.
  template <class Host>
  void waited(Host& host, bool patient) {
    if (waits() && host.peer_copies() && !asked_ && host.holds(Rule::kRequestAckQuery)) {
      asked_ = true;  // one at a time: a stopped peer's connection must not fill up
      host.send_wait(ledger.received());
    }
    if (!patient || standing_still(host) != 0 || !has_room(host)) return;
    repeat_cts(host);
    if (!host.ready()) return;
    host.write_ack(true);
    proof_ = host.posted();
  }

  // --- the peer
  /// 'What have you received?' Everything is looked for first: the sender draws conclusions from what is
  /// lacking.
  template <class Host>
  void on_ack_query(Host& host) {
    asked_ = false;
    host.look();
    for (int looks = 0; looks < kLooksAtFlush && host.unflushed(); ++looks) host.look();
    host.send_received(ledger.received(), ledger.segments(ledger.received()));
  }

  /// The path that is left is fenced: what goes with kFenced, the first incomplete message and the segments
  /// of those that are. What that path has placed and no flush has shown can no longer be told from what is
  /// still on its way to the GPU: it counts as missing.
  template <class Unflushed>
  uint64_t report(Unflushed& unflushed, uint32_t path, std::span<uint16_t, kWindow> segments) {
    unflushed.take(path, [this](const auto& it) { ledger.forget(it.message, it.segment, it.bytes); });
    return ledger.report(segments);
  }
  /// The program has closed this end: what goes with kClose, behind which nothing follows.
  template <class Rules>
  uint64_t last_ack(const Rules& rules) const {
    return rules.holds(Rule::kLastAck) ? ledger.received() : 0;
  }

  // --- paths
  /// A path has been fenced at both ends, and another carries (`moved`), or the active one goes on. Where
  /// nothing has moved the CTS entries are on their way, and repeated for good measure.
  template <class Host>
  void carries_on(Host& host, bool moved) {
    proof_ = 0;
    if (moved || has_room(host)) repeat_cts(host);
    told = 0;
    if (host.acknowledges() && ledger.received() > 0 && host.room(1)) host.write_ack(false);
  }

 private:
  bool owes_awaited_ack() const { return owes_ack() && awaited_ > told; }
  /// One that waits behind an incomplete message counts, too: then the ACK comes sooner than it must.
  bool is_asked_for() const { return soon_ > told; }
  /// A test has found that its message is not complete: is an ACK due now?
  bool ack_due_after_test(bool acknowledges) {
    if (!acknowledges || !owes_awaited_ack()) return false;
    ++tests_;
    return is_asked_for() ? tests_ >= kTestsToWaitForCts : tests_ - tests_at_newest_ >= kTestsUnlessSoon;
  }
  /// For all CTS entries, and an ACK.
  template <class Host>
  static bool has_room(Host& host) {
    return host.room(kWindow + 1);
  }
  template <class Host>
  void repeat_cts(Host& host) {
    if (!host.holds(Rule::kRepeatCts)) return;
    for_each_open(ledger, [&](uint64_t message) { host.write_cts(message); });
  }

  bool asked_ = false;
  uint64_t awaited_ = 0;          // the sender waits for the ACK of a message before this one
  uint64_t soon_ = 0;             // the newest message that asks for its ACK soon is the one before this one
  uint32_t tests_ = 0;            // in vain, since an ACK began to wait
  uint32_t tests_at_newest_ = 0;  // … when the newest message came of those awaited
  bool late_ = false;             // an ACK was due, and waits (late_acks.h)
  uint32_t proof_ = 0;  // Host::posted() when an ACK was written to prove the active path; 0: none on it
};

/// Which CTS entries and ACKs report their completion: one of a few, so that the send queue is freed in time.
class Signals {
 public:
  static constexpr uint32_t kEvery = 8;
  /// `posted`: how many the path has been given.
  bool due(uint32_t posted) const { return posted - last_ >= kEvery; }
  /// Number `posted` reports; or it is the last one of a path that was not active before.
  void set(uint32_t posted) { last_ = posted; }

 private:
  uint32_t last_ = 0;
};

}  // namespace r2ccl
