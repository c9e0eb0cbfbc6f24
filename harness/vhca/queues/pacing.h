// SPDX-License-Identifier: Apache-2.0
// How a QP uses the clocks of the ports at both ends of its way (port_clock.h). A message is served when both
// have served it. Each clock alone would serve a QP's work at its own pace; what one of them serves while the
// other holds the message up would be lost to those who share the port, and would leave later on top of its
// rate. So the side that is faster for this QP is given no more than a window ahead of what has left: it
// spends on the QP what the slower side lets through, and the rest is the others'. The slower side has all
// that is posted, so that an engine that comes late loses nothing.
//
// All functions: the caller holds the QP's send_lock.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

inline bool is_datagram(const Qp& qp) { return qp.shared->type == IBV_QPT_UD; }

// Placed under one hold of the target, so that its owner never waits longer than one such copy.
inline constexpr std::uint64_t kPieceBytes = 256 * 1024;

// How much a side may be ahead: two pieces, and what passes at its rate while an engine comes late (and while
// a message travels).
inline constexpr std::uint64_t kWindowBytes = 512 * 1024;
inline constexpr std::uint64_t kWindowNs = 2'000'000;

bool is_paced(const Qp& qp, const SendEntry& entry);

// After the flows were opened.
void set_window(Qp& qp);
// Gives the WRs from send_next on, before `end`, their place in the work of the ports, as far as they may
// have it.
void reserve_time(Qp& qp, std::uint64_t end, std::uint64_t now_ns);
// `bytes` of what is reserved have been placed.
void forget_reservation(Qp& qp, std::uint64_t bytes);
// Takes everything back that is not placed; what is still posted is reserved anew afterwards.
void cancel_reservations(Qp& qp, std::uint64_t now_ns);
// The target takes nothing, because another initiator is at it. The next `bytes` of the WR at send_next have
// been served. If that lasts longer than kWindowNs, only they keep their place, so that the ports serve
// others; the rest is reserved anew when they are placed.
void wait_for_target(Qp& qp, std::uint64_t bytes, std::uint64_t now_ns);
// Compares the two sides when all that could be placed is; takes back what the faster one has reserved beyond
// the window. Returns when to look again at the latest: others may have taken work back by then, so that what
// waits is served sooner than was computed.
std::uint64_t balance_reservations(Qp& qp, std::uint64_t end, std::uint64_t now_ns);

// When the bytes up to `upto` of the message at send_next may be at their destination; later than now: not
// yet.
std::uint64_t arrival_time(Qp& qp, SendEntry& entry, std::uint64_t upto, std::uint64_t now_ns);

}  // namespace vhca
