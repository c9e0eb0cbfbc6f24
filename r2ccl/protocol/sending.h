// SPDX-License-Identifier: Apache-2.0
// The sending end of a channel: what it knows of its messages and of what the receiver has, and what it does
// when the peer says something of them, when it has waited for long, and when another path carries. Written
// once, for Sender and for the exploration in tests/model. Pure. What both ends do is in channel_end.h;
// PROTOCOL.md gives the reason of each rule.
//
// A Host, besides what channel_end.h asks of it, answers:
//   acknowledges()            the receiver sends ACKs, and the sender waits for them
//   active()                  the active path, 0: none
//   ready()                   there is one, and nothing that carries is marked failed
//   lanes()                   the paths that carry beside it
//   under_way(path)           a work request that it was given is not completed
// and carries out:
//   look(everywhere)          reads the receiver's ACKs; `everywhere`: and the completions of what carries
//   owning(f)                 f(), as the owner of the messages
//   send_ack_query()          'what have you received?'
// Messages are what sent.h asks of them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "r2ccl/protocol/ack_soon.h"
#include "r2ccl/protocol/channel_end.h"
#include "r2ccl/protocol/ledger.h"
#include "r2ccl/protocol/migration.h"
#include "r2ccl/protocol/rules.h"
#include "r2ccl/protocol/sent.h"

namespace r2ccl {

template <uint32_t kWindow>
class SendingEndOf {
 public:
  MigrationEnd migration{true};
  SendLedgerOf<kWindow> ledger;  ///< post and test use it directly

  /// A test has found that its send is not done. Does it look for completions on the active path?
  /// `under_way`: as the host's. Without anything under way there what is missing is the ACK, or on a lane.
  /// Of a completion that matters only one is left, which shows that the queue pair is dead, so that the ACK
  /// does not come: one test in so many looks.
  static constexpr uint32_t kTestsPerIdleLook = 16;
  bool looks(bool under_way) { return under_way || ++idle_tests_ % kTestsPerIdleLook == 0; }

  // --- ACKs
  /// Everything before this is received when the program posts the next message: the receiver has confirmed
  /// it, or has used its slot again.
  uint64_t surely_received() const {
    return std::max(ledger.confirmed(), ledger.next() < kWindow ? 0 : ledger.next() + 1 - kWindow);
  }
  /// The program posts the next message. Does it ask for its ACK soon? `acknowledges`: as the host's.
  /// `lacks_copy`: one of its size would be sent from a copy, if there were room for one. The receiver takes
  /// it for such a one, for which nobody waits, unless it asks. open(n), clock(): as for AckSoon.
  template <class Open, class Clock>
  bool asks_for_ack(bool acknowledges, bool copied, bool lacks_copy, Open open, Clock clock) {
    if (!acknowledges) return false;
    return ack_soon_.posts(copied, ledger.next() + 1 - ledger.confirmed(), open, clock, lacks_copy);
  }
  /// The receiver has everything before `up_to`, and says so after a long wait (wire.h), or not.
  template <class Clock>
  void confirmed(uint64_t up_to, bool waited_long, Clock clock) {
    confirm([&] { ledger.confirmed(up_to); }, waited_long, clock);
  }
  /// The same, of which only the low bits are known.
  template <class Clock>
  void confirmed_low(uint32_t up_to, bool waited_long, Clock clock) {
    confirm([&] { ledger.confirmed_low(up_to); }, waited_long, clock);
  }

  bool unconfirmed() const { return ledger.confirmed() < ledger.next(); }
  /// The receiver waits, and what was sent is not confirmed, whether or not somebody waits for that here: it
  /// is watched over as if somebody did.
  bool awaited() const { return awaited_; }
  /// What the receiver has said last, if anything: it lacks something that was sent.
  bool misses() const { return ack_query_.received() < ledger.next(); }
  const AckQuery& ack_query() const { return ack_query_; }
  /// The receiver's ledger, of the newest fence.
  uint64_t report_first() const { return report_first_; }
  std::span<const uint16_t, kWindow> report() const { return report_; }
  /// Grows with what the receiver has, by that ledger.
  uint64_t reported() const {
    uint64_t sum = report_first_ * 16;  // no message has more segments
    for (const uint16_t segments : report_) sum += uint64_t(std::popcount(segments));
    return sum;
  }

  /// A path with something under way that a working queue pair would have completed by now; 0: none.
  template <class Host>
  static uint32_t standing_still(Host& host) {
    const uint32_t active = host.active();
    if (active == 0 || host.under_way(active)) return active;
    for (const uint32_t lane : host.lanes())
      if (host.under_way(lane)) return lane;
    return 0;
  }

  // --- time
  /// Nothing has come for long, although probes are answered.
  template <class Host>
  void waited(Host& host) {
    if (host.acknowledges() && host.holds(Rule::kRepeatAck)) ask(host, ledger.reported());
  }
  /// Is it still awaited?
  template <class Host>
  void look_if_awaited(Host& host) {
    if (!awaited_) return;
    host.look(false);
    awaited_ = unconfirmed();
  }
  /// It looks for a path. Does time count? `wanted`: the program waits for something, or wants to send.
  /// Behind its fence, what is not confirmed has not arrived, and the receiver may wait for it.
  template <class Host>
  bool misses_a_path(Host& host, bool wanted) {
    if (wanted || !host.holds(Rule::kLackingCounts)) return wanted;
    if (migration.phase() != Phase::kChoosing || !host.acknowledges()) return false;
    host.look(false);
    return unconfirmed();
  }

  // --- the end
  /// The program has closed this end. Is there something of which it has its buffer back, and the receiver
  /// may lack it?
  template <class Host>
  bool has_to_settle(Host& host) {
    if (!host.holds(Rule::kSettle)) return false;
    host.look(false);
    return host.acknowledges() && unconfirmed();
  }
  /// The receiver has closed its end, and says what it has received.
  void peer_closed(uint64_t received) { ledger.confirmed(received); }
  /// It has everything: a request that is open waits for the report of this end's NIC.
  bool waits_for_nic_alone() const { return !unconfirmed(); }
  /// … which no NIC gives any more: all queue pairs are destroyed.
  void nothing_is_sent() { ledger.released(ledger.confirmed()); }

  // --- the peer
  /// The receiver has everything before `received`, and waits. Should it wait for a message of which the
  /// program has its buffer back, then nobody but the watchdog looks for it here, and for what became of the
  /// work that was to bring it. It asks in any case: the receiver says nothing more before it has heard a
  /// question. Without a path that carries it is one that marks none failed.
  template <class Host>
  void on_wait(Host& host, uint64_t received) {
    ledger.confirmed(received);
    const bool ready = host.ready();
    host.look(ready);
    awaited_ = host.holds(Rule::kWatchAfterRequest) && host.acknowledges() && unconfirmed();
    ask(host, ready ? ledger.reported() : 0);
  }
  /// The answer, with what it has of the next message. A segment that its NIC has reported and the receiver
  /// lacks was lost by the path that carried it, which is left.
  template <class Host, class Messages>
  void on_received(Host& host, const Messages& messages, uint64_t up_to, unsigned segments) {
    const uint32_t lost = host.owning([&]() -> uint32_t {
      ledger.confirmed(up_to);
      if (!ack_query_.answered(up_to) || !host.holds(Rule::kSilentLoss) || host.active() == 0) return 0;
      const uint32_t path = lost_on(messages, up_to, segments);
      return path != 0 ? path : host.active();
    });
    if (lost != 0) ChannelEnd(migration, host).leave(lost);
  }
  /// True: it counts, and so does the receiver's ledger that comes with it.
  template <class Host>
  bool on_fenced(Host& host, uint32_t epoch, uint32_t path, bool stopped, uint64_t first,
                 std::span<const uint16_t, kWindow> segments) {
    if (!ChannelEnd(migration, host).on_fenced(epoch, path, stopped)) return false;
    report_first_ = first;
    std::copy(segments.begin(), segments.end(), report_.begin());
    host.owning([&] { ledger.confirmed(first); });
    return true;
  }

  // --- paths
  /// A path has been fenced at both ends, and another carries, or the active one goes on.
  template <class Messages>
  void carries_on(Messages& messages) {
    adopt_report(ledger, report_first_, std::span<const uint16_t>(report_), messages);
    ack_query_.moved();
    replay(ledger, messages);
  }
  /// Is everything over that a lane has carried? `reported`: its NIC has reported it all.
  template <class Messages>
  bool is_over(const Messages& messages, uint32_t lane, bool reported) const {
    if (!messages.acknowledged()) return false;  // nobody knows when the receiver has seen the last segment
    if (!reported && messages.holds(Rule::kRestReported)) return false;
    return !messages.holds(Rule::kRestConfirmed) || all_confirmed(ledger, messages, lane);
  }

 private:
  /// A confirmation of nothing new teaches nothing.
  template <class Confirm, class Clock>
  void confirm(Confirm in_ledger, bool waited_long, Clock clock) {
    const uint64_t before = ledger.confirmed();
    in_ledger();
    if (waited_long && ledger.confirmed() != before)
      ack_soon_.waited_long(ledger.next() - ledger.confirmed(), clock);
  }
  template <class Host>
  void ask(Host& host, uint64_t reported) {
    if (ack_query_.ask(reported)) host.send_ack_query();
  }

  AckQuery ack_query_;
  AckSoon ack_soon_;
  bool awaited_ = false;
  uint32_t idle_tests_ = 0;
  uint64_t report_first_ = 0;
  std::array<uint16_t, kWindow> report_{};
};

}  // namespace r2ccl
