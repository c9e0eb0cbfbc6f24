// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/pacing.h"

#include <algorithm>

namespace vhca {
namespace {

__extension__ typedef unsigned __int128 Uint128;  // "__extension__": ISO C++ has no such type

constexpr std::uint64_t kBalanceNs = kWindowNs / 4;
constexpr std::uint64_t kLookNs = 2 * kWindowNs;

// The sending (0) and the receiving (1) port's direction that the message uses.
const Flow& flow_of(const Qp& qp, const SendEntry& e, int side) {
  static constexpr Flow kNowhere;
  if (side == 1 && is_datagram(qp))
    return e.datagram.port == kNoPort ? kNowhere : qp.datagram_flows[e.datagram.flow].flow;
  return carries_data_to_peer(e.opcode) ? qp.write_flows[side] : qp.read_flows[side];
}

std::uint64_t bytes_in(std::uint64_t rate, std::uint64_t ns) {
  return static_cast<std::uint64_t>(static_cast<Uint128>(rate) * ns >> kVirtualByteBits);
}

template <typename F>
void for_each_flow(Qp& qp, int side, F&& f) {
  f(qp.write_flows[side]);
  f(qp.read_flows[side]);
  if (side == 1)
    for (DatagramFlow& to : qp.datagram_flows) f(to.flow);
}

std::uint64_t travel_time(const Qp& qp, const SendEntry& e) {
  return qp.own_latency_ns + (carries_data_to_peer(e.opcode) ? 0 : qp.peer_latency_ns);
}

void reserve_side(Qp& qp, int side, std::uint64_t end, std::uint64_t now) {
  ReservedSide& s = qp.reserved[side];
  for (; s.next < end; ++s.next) {
    SendEntry& e = qp.send_entry(s.next);
    const bool is_new = s.next >= s.touched;
    if (is_new) e.reserved[side] = e.placed;
    const Flow& flow = flow_of(qp, e, side);
    std::uint64_t bytes = e.length - e.reserved[side];
    if (s.bounded && flow.paced()) {
      std::uint64_t room = s.bytes < qp.window_bytes ? qp.window_bytes - s.bytes : 0;
      // What is placed next has its place, whatever else the window is full of.
      if (s.next == qp.send_next && e.placed + kPieceBytes > e.reserved[side])
        room = std::max(room, e.placed + kPieceBytes - e.reserved[side]);
      if (room == 0) return;
      bytes = std::min(bytes, room);
    }
    if (is_new) {
      s.touched = s.next + 1;
      if (side == 0) {
        e.served_ns = 0;
        e.not_before_ns = now;
      }
    }
    if (flow.paced() && (is_new || bytes != 0))
      e.begin_tag[side] = reserve(flow, bytes, now) - flow.work_of(e.reserved[side]);
    e.reserved[side] += bytes;
    s.bytes += bytes;
    if (e.reserved[side] != e.length) return;
  }
}

// Takes back what the side's ports have not served yet.
void take_back(Qp& qp, int side, std::uint64_t now) {
  ReservedSide& s = qp.reserved[side];
  s.bytes = 0;
  s.next = s.touched;
  for (std::uint64_t i = qp.send_next; i < s.touched; ++i) {
    SendEntry& e = qp.send_entry(i);
    const Flow& flow = flow_of(qp, e, side);
    if (flow.paced())
      e.reserved[side] = std::clamp(served_bytes(flow, e.begin_tag[side], now), e.placed, e.reserved[side]);
    s.bytes += e.reserved[side] - e.placed;
    if (e.reserved[side] != e.length) s.next = std::min(s.next, i);
  }
  for_each_flow(qp, side, [now](Flow& flow) { cancel_rest(flow, now); });
}

}  // namespace

bool is_paced(const Qp& qp, const SendEntry& e) {
  return flow_of(qp, e, 0).paced() || flow_of(qp, e, 1).paced();
}

void set_window(Qp& qp) {
  std::uint64_t rate = 0;
  for (int side = 0; side < 2; ++side)
    for_each_flow(qp, side, [&](const Flow& flow) {
      if (flow.paced()) rate = std::max(rate, flow.server->rate);
    });
  const std::uint64_t travel = qp.own_latency_ns + qp.peer_latency_ns;
  qp.in_flight_bytes = kPieceBytes + bytes_in(rate, travel);
  qp.window_bytes = kWindowBytes + bytes_in(rate, kWindowNs + travel);
  qp.is_paced = rate != 0;
}

void reserve_time(Qp& qp, std::uint64_t end, std::uint64_t now) {
  if (qp.is_paced) {
    if (qp.reserves_next_only) return;
    for (int side = 0; side < 2; ++side) reserve_side(qp, side, end, now);
    return;
  }
  std::uint64_t& next = qp.reserved[0].next;
  for (; next < end; ++next) {
    SendEntry& e = qp.send_entry(next);
    e.served_ns = 0;
    e.not_before_ns = now;
  }
  for (ReservedSide& side : qp.reserved) side.next = side.touched = next;
}

void forget_reservation(Qp& qp, std::uint64_t bytes) {
  for (ReservedSide& side : qp.reserved) side.bytes -= std::min(bytes, side.bytes);
  qp.busy_since_ns = 0;
  qp.reserves_next_only = false;
}

void cancel_reservations(Qp& qp, std::uint64_t now) {
  for (int side = 0; side < 2; ++side) {
    for_each_flow(qp, side, [now](Flow& flow) { cancel_rest(flow, now); });
    qp.reserved[side].next = qp.reserved[side].touched = qp.send_next;
    qp.reserved[side].bytes = 0;
  }
  qp.busy_since_ns = 0;
  qp.reserves_next_only = false;
}

void wait_for_target(Qp& qp, std::uint64_t bytes, std::uint64_t now) {
  if (!qp.is_paced || qp.reserves_next_only) return;
  if (qp.busy_since_ns == 0) qp.busy_since_ns = now;
  if (now - qp.busy_since_ns <= kWindowNs) return;
  cancel_reservations(qp, now);
  SendEntry& e = qp.send_entry(qp.send_next);
  for (int side = 0; side < 2; ++side) {
    ReservedSide& s = qp.reserved[side];
    e.reserved[side] = e.placed + bytes;
    s.bytes = bytes;
    s.touched = qp.send_next + 1;
    if (e.reserved[side] == e.length) s.next = s.touched;
  }
  qp.reserves_next_only = true;
}

std::uint64_t balance_reservations(Qp& qp, std::uint64_t end, std::uint64_t now) {
  if (std::max(qp.reserved[0].bytes, qp.reserved[1].bytes) < qp.window_bytes) return now + kLookNs;
  if (now - qp.balanced_ns < kBalanceNs) return qp.balanced_ns + kLookNs;
  qp.balanced_ns = now;
  std::uint64_t served[2], both = qp.in_flight_bytes;
  bool paced[2] = {};
  for (int side = 0; side < 2; ++side) {
    std::uint64_t left = 0;
    for_each_flow(qp, side, [&](const Flow& flow) {
      if (!flow.paced()) return;
      paced[side] = true;
      left += unserved_bytes(flow, now);
    });
    const std::uint64_t bytes = qp.reserved[side].bytes;
    served[side] = bytes - std::min(left, bytes);
    if (paced[side]) both = std::min(both, served[side]);
  }
  for (int side = 0; side < 2; ++side) {
    if (!paced[side]) continue;
    ReservedSide& s = qp.reserved[side];
    const std::uint64_t ahead = served[side] - both;
    if (ahead > qp.window_bytes) {
      if (!s.bounded) take_back(qp, side, now);
      s.bounded = true;
    } else if (ahead < qp.window_bytes / 4) {
      s.bounded = false;
    }
  }
  reserve_time(qp, end, now);
  return now + kLookNs;
}

std::uint64_t arrival_time(Qp& qp, SendEntry& e, std::uint64_t upto, std::uint64_t now) {
  const Flow* flows[2] = {&flow_of(qp, e, 0), &flow_of(qp, e, 1)};
  const std::uint64_t travel = travel_time(qp, e);
  if (!is_paced(qp, e)) {
    e.served_ns = e.not_before_ns;
    return e.served_ns + travel;
  }
  std::uint32_t taken_back = 0;
  for (const Flow* flow : flows)
    if (flow->paced()) taken_back += flow->server->taken_back.load(std::memory_order_relaxed);
  if (e.served_ns <= now || e.taken_back != taken_back) {  // also 0: not computed yet
    e.taken_back = taken_back;
    std::uint64_t served = 0;
    for (int side = 0; side < 2; ++side)
      if (flows[side]->paced())
        served =
            std::max(served, time_of_tag(*flows[side], e.begin_tag[side] + flows[side]->work_of(upto), now));
    if (served != 0)
      e.served_ns = served;
    else if (e.served_ns == 0 || e.served_ns > now)
      e.served_ns = now;
  }
  return e.served_ns + travel;
}

}  // namespace vhca
