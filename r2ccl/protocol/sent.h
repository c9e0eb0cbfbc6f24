// SPDX-License-Identifier: Apache-2.0
// What a sender concludes of the messages that it has sent: which segments paths carry that are not left,
// what is sent again behind a fence, which path has silently dropped a segment, and when a lane may rest.
// Written once, for the channel and for the exploration. Pure. PROTOCOL.md gives the reasons.
//
// A Host tells of the messages:
//   bool holds(Rule)
//   bool acknowledged()                    the receiver sends ACKs
//   bool known(message)                    it is known where its segments went
//   bool kept(message)                     it can be sent (again)
//   uint32_t segments(message)
//   uint32_t path_of(message, segment)     where it was given to, written or not
//   uint32_t bytes_of(message, segment)
//   bool carries(path)                     it carries, and is not being left
//   bool written(message, segment)         its path has taken it (asked by the exploration alone)
// and carries out:
//   void send_again(message, segment)      over a path that carries, which is its path from here on
//   void cannot_send(message)              it is lost: the end fails
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "r2ccl/protocol/ledger.h"
#include "r2ccl/protocol/rules.h"

namespace r2ccl {

/// A path that carries, for a segment that has lost its own.
struct CarrierSight {
  bool failed = false;     ///< it is marked failed
  bool room = true;        ///< in its send queue
  bool registered = true;  ///< the buffer is, on both its NICs
  uint32_t under_way = 0;  ///< work requests that it has not completed
};
constexpr bool can_take(const CarrierSight& path) { return !path.failed && path.room && path.registered; }
/// The segment goes to `path` rather than to `best`: to the one that has the least to do of those that can
/// take it. Where none can it stays with the active path, and waits until that has been left.
constexpr bool is_better(const CarrierSight& path, const CarrierSight& best) {
  return can_take(path) && (!can_take(best) || path.under_way < best.under_way);
}

/// Where even that one is marked failed the segment is sent when it has been left.
constexpr bool is_sent_now(bool marked_failed) { return !marked_failed; }

/// Segments of `message` that paths carry which are not left: bits.
template <class Host>
uint16_t live_segments(Host& host, uint64_t message) {
  uint16_t live = 0;
  if (host.known(message))
    for (uint32_t i = 0; i < host.segments(message); ++i)
      if (host.carries(host.path_of(message, i))) live |= uint16_t(1u << i);
  return live;
}

/// Behind a fence the NIC touches no buffer any more: what the receiver has of what that path carried is
/// done, whatever was reported.
template <uint32_t kWindow, class Host>
void adopt_report(SendLedgerOf<kWindow>& ledger, uint64_t first, std::span<const uint16_t> report,
                  Host& host) {
  if (!host.holds(Rule::kReceiverIsRight)) return;
  ledger.take_report(first, report, [&](uint64_t message) {
    return host.holds(Rule::kNicReportOnLanes) ? live_segments(host, message) : uint16_t{0};
  });
}

/// Sends again what the receiver lacks of what no path carries. (Messages that the receiver has in full but
/// out of order are acknowledged later by its own ACK.)
template <uint32_t kWindow, class Host>
void replay(SendLedgerOf<kWindow>& ledger, Host& host) {
  for (uint64_t message = ledger.first_held(); message < ledger.next(); ++message) {
    const uint16_t missing = ledger.missing(message);
    if (missing == 0) continue;
    const uint16_t live = host.holds(Rule::kLiveSegments) ? live_segments(host, message) : uint16_t{0};
    for (uint32_t i = 0; i < 16; ++i) {
      if (!(missing >> i & 1) || live >> i & 1) continue;
      if (!host.kept(message)) return host.cannot_send(message);
      if (!host.holds(Rule::kSegmentsOfPath) && !host.written(message, i)) continue;
      host.send_again(message, i);
    }
  }
}

/// The path that has lost a segment of `message`, of which `arrived` are there; 0: none of those that carry.
template <class Host>
uint32_t lost_on(Host& host, uint64_t message, unsigned arrived) {
  if (!host.kept(message)) return 0;
  for (uint32_t i = 0; i < host.segments(message); ++i)
    if (!(arrived >> i & 1))
      if (const uint32_t path = host.path_of(message, i); host.carries(path)) return path;
  return 0;
}

/// Has the receiver confirmed all that `path` was to carry?
template <uint32_t kWindow, class Host>
bool all_confirmed(const SendLedgerOf<kWindow>& ledger, Host& host, uint32_t path) {
  for (uint64_t message = ledger.confirmed(); message < ledger.next(); ++message)
    if (host.kept(message))
      for (uint32_t i = 0; i < host.segments(message); ++i)
        if (host.path_of(message, i) == path) return false;
  return true;
}

/// Bytes of the longest segment that `path` was to carry and its NIC has not reported.
template <uint32_t kWindow, class Host>
uint32_t longest_work(const SendLedgerOf<kWindow>& ledger, const Host& host, uint32_t path) {
  uint32_t longest = 0;
  for (uint64_t message = ledger.first_held(); message < ledger.next(); ++message)
    if (host.known(message))
      for (uint32_t i = 0; i < host.segments(message); ++i)
        if ((ledger.missing(message) >> i & 1) && host.path_of(message, i) == path)
          longest = std::max(longest, host.bytes_of(message, i));
  return longest;
}

/// The receiver's messages whose CTS entries the sender may lack.
template <uint32_t kWindow, typename F>
void for_each_open(const ReceiveLedgerOf<kWindow>& ledger, F&& f) {
  for (uint64_t message = ledger.received(); message < ledger.next(); ++message)
    if (!ledger.complete(message)) f(message);
}

}  // namespace r2ccl
