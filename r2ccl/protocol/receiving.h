// SPDX-License-Identifier: Apache-2.0
// The receiving end of a channel: its ledger, what it has told the sender, and what it does when the sender
// asks, when it has waited for long, and when another path carries. Written once, for Receiver and for the
// exploration in tests/model. Pure. What both ends do is in channel_end.h; PROTOCOL.md gives the reason of
// each rule.
//
// A Host, besides what channel_end.h asks of it, answers:
//   acknowledges()            it sends ACKs
//   peer_copies()             the sender's program may have its buffers back before the ACK
//   may_repeat()              there is room for all CTS entries, and no earlier work is unaccounted for
// and carries out:
//   look()                    takes in all that has arrived, on every path
//   write_cts(message)        on the active path, as the next; nothing where that path has just failed
//   write_ack(prove)          'received up to'. `prove`: its completion shows whether the path works
//   send_wait(received)       'I have so much, and wait: query me'
//   send_received(received, segments)   the answer to a query, with what it has of the next message
#pragma once

#include <cstdint>

#include "r2ccl/protocol/channel_end.h"
#include "r2ccl/protocol/ledger.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/rules.h"
#include "r2ccl/protocol/sent.h"

namespace r2ccl {

template <uint32_t kWindow>
class ReceivingEndOf {
 public:
  MigrationEnd migration{false};
  ReceiveLedgerOf<kWindow> ledger;  ///< post and test use it directly
  uint64_t told = 0;                ///< 'received up to', as last written on the active path

  bool waits() const { return ledger.received() < ledger.next(); }
  bool owes_ack() const { return ledger.received() > told; }
  bool has_asked() const { return asked_; }

  // --- time
  /// Nothing has come for long, although probes are answered: it has the sender ask. When it has been
  /// `patient`, it repeats everything that the sender may lack.
  template <class Host>
  void waited(Host& host, bool patient) {
    if (waits() && host.peer_copies() && !asked_ && host.holds(Rule::kRequestAckQuery)) {
      asked_ = true;  // one at a time: a stopped peer's connection must not fill up
      host.send_wait(ledger.received());
    }
    if (!patient || !host.may_repeat()) return;
    repeat_cts(host);
    host.write_ack(true);
  }

  // --- the peer
  /// 'What have you received?' Everything is looked for first: the sender draws conclusions from what is
  /// lacking.
  template <class Host>
  void on_ack_query(Host& host) {
    asked_ = false;
    host.look();
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
  /// A path has been fenced at both ends, and another carries, or the active one goes on. `room`: for all
  /// CTS entries.
  template <class Host>
  void carries_on(Host& host, bool room) {
    if (room) repeat_cts(host);
    told = 0;
    if (host.acknowledges() && ledger.received() > 0) host.write_ack(false);
  }

 private:
  template <class Host>
  void repeat_cts(Host& host) {
    if (!host.holds(Rule::kRepeatCts)) return;
    for_each_open(ledger, [&](uint64_t message) { host.write_cts(message); });
  }

  bool asked_ = false;
};

}  // namespace r2ccl
