// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/send_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/pacing.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/send_data.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/responder.h"

namespace vhca {
namespace {

constexpr std::uint64_t kBusyRetryNs = 20'000;
constexpr std::uint64_t kInfiniteRetryNs = 4'000'000;
constexpr std::uint64_t kGatherNs = 1'000'000;
constexpr std::uint64_t kUnpacedPieceBytes = 1 << 20;
constexpr std::uint64_t kAtomicBytes = 8;

// Nothing moves until a timer: the ports serve others meanwhile, and all that waits is reserved anew
// afterwards.
void stall(Qp& qp, std::uint64_t now, std::uint64_t for_ns) {
  cancel_reservations(qp, now);
  qp.stalled_until_ns = now + for_ns;
}

// f(from, to): the ports whose counters the message changes; `to` is null for what reaches nobody.
template <typename F>
void with_ports(Qp& qp, const SendEntry& e, F&& f) {
  Fabric& fabric = qp.owner->runtime->fabric();
  Port* own = &fabric.ports[qp.shared->port];
  const std::uint32_t number =
      is_datagram(qp) ? e.datagram.port : qp.shared->peer_port.load(std::memory_order_relaxed);
  Port* peer = e.dropped || number == kNoPort ? nullptr : &fabric.ports[number];
  if (carries_data_to_peer(e.opcode))
    f(own, peer);
  else
    f(peer, own);
}

void count(Qp& qp, const SendEntry& e) {
  with_ports(qp, e, [&](Port* from, Port* to) {
    if (from) from->tx_messages.fetch_add(1, std::memory_order_relaxed);
    if (to) to->rx_messages.fetch_add(1, std::memory_order_relaxed);
    if (e.dropped && from) from->dropped.fetch_add(1, std::memory_order_relaxed);
  });
}

void count_bytes(Qp& qp, const SendEntry& e, std::uint64_t bytes) {
  with_ports(qp, e, [&](Port* from, Port* to) {
    if (from) from->tx_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (to) to->rx_bytes.fetch_add(bytes, std::memory_order_relaxed);
  });
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

void complete(Qp& qp, std::uint64_t index, ibv_wc_status status) {
  const SendEntry& e = qp.send_entry(index);
  if (status == IBV_WC_SUCCESS && !(e.flags & IBV_SEND_SIGNALED) && !qp.init.sq_sig_all) return;
  ibv_wc wc{};
  wc.wr_id = e.wr_id;
  wc.status = status;
  wc.opcode = completion_opcode(e.opcode);
  wc.byte_len = static_cast<std::uint32_t>(e.length);
  wc.qp_num = qp.qp_base.qp_num;
  if (status != IBV_WC_SUCCESS) wc.vendor_err = status == IBV_WC_WR_FLUSH_ERR ? 0xf5 : 0x80u + status;
  push_send_completion(cq_of(qp.qp_base.send_cq), wc, qp, index);
}

// A fatal answer to the WR at send_next: what came before it is acknowledged by it, what comes after is
// flushed.
void fail(Qp& qp, ibv_wc_status status) {
  for (; qp.send_ack != qp.send_next; ++qp.send_ack) complete(qp, qp.send_ack, IBV_WC_SUCCESS);
  complete(qp, qp.send_next, status);
  qp.send_ack = ++qp.send_next;
  if (!qp.is_reliable()) {  // only the send queue breaks: IBTA vol. 1, 10.3.1.6
    std::uint32_t expected = qp.state();
    while ((expected == IBV_QPS_RTS || expected == IBV_QPS_SQD) &&
           !qp.shared->state.compare_exchange_strong(expected, IBV_QPS_SQE)) {
    }
    flush_send_queue(qp);
    return;
  }
  qp.shared->state.store(IBV_QPS_ERR);
  announce_receive(qp.owner->runtime->fabric(), *qp.shared, true, 0);
  flush_send_queue(qp);
  if (qp.shared->srq != 0) push_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void acknowledge(Qp& qp, std::uint64_t now) {
  for (; qp.send_ack != qp.send_next; ++qp.send_ack) {
    if (qp.send_entry(qp.send_ack).complete_ns > now) return;
    complete(qp, qp.send_ack, IBV_WC_SUCCESS);
  }
}

// `bytes` more of the WR at send_next have got there at `arrival`.
void note_placed(Qp& qp, SendEntry& e, std::uint64_t bytes, std::uint64_t arrival) {
  forget_reservation(qp, bytes);
  e.placed += bytes;
  e.served_ns = 0;
  qp.waits_done = 0;
  qp.rnr_done = 0;
  count_bytes(qp, e, bytes);
  if (e.placed != e.length) return;
  count(qp, e);
  // Without acknowledgements: when the data is gone from our memory, which is here when it has arrived.
  e.complete_ns = carries_data_to_peer(e.opcode) && qp.is_reliable() ? arrival + qp.peer_latency_ns : arrival;
  ++qp.send_next;
}

// How many of the WRs from send_next on may go in one copy, of those before `end` that are due.
std::size_t count_together(Qp& qp, std::uint64_t end, std::uint64_t now) {
  const SendEntry& first = qp.send_entry(qp.send_next);
  std::uint64_t bytes = 0;
  std::size_t pieces = 0, count = 0;
  for (std::uint64_t i = qp.send_next; i != end && count < kTogetherMessages; ++i, ++count) {
    SendEntry& e = qp.send_entry(i);
    bytes += e.length;
    pieces += e.sge_count;
    if (!may_share_a_copy(e) || e.opcode != first.opcode || bytes > kTogetherBytes ||
        pieces > kTogetherPieces || is_paced(qp, e) || arrival_time(qp, e, e.length, now) > now)
      break;
  }
  return count;
}

// Whether what was just posted may wait for more of its kind. Only for a program that has not come back yet
// for what it had posted before, and that has to come back for this: it will, and it is not waiting for this
// one alone.
bool may_wait_for_more(Qp& qp) {
  if (qp.send_next == qp.send_tail.load(std::memory_order_relaxed) || qp.stalled_until_ns != 0 ||
      qp.own_latency_ns != 0 || qp.peer_latency_ns != 0 || qp.state() != IBV_QPS_RTS ||
      (cq_of(qp.qp_base.send_cq).shared->notify.load(std::memory_order_relaxed) & kArmedMask) != 0)
    return false;
  if (qp.send_head - qp.send_next >= kTogetherMessages) return false;
  const ibv_wr_opcode opcode = qp.send_entry(qp.send_next).opcode;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = qp.send_next; i != qp.send_head; ++i) {
    const SendEntry& e = qp.send_entry(i);
    bytes += e.length;
    const bool signaled = qp.init.sq_sig_all || (e.flags & IBV_SEND_SIGNALED);
    if (!signaled || !may_share_a_copy(e) || e.opcode != opcode || bytes >= kTogetherBytes || is_paced(qp, e))
      return false;
  }
  return bytes != 0;
}

std::uint64_t longest_message(const Qp& qp) {
  return is_datagram(qp) ? qp.owner->runtime->fabric().ports[qp.shared->port].mtu : kMaxMessageBytes;
}

// The timers of RC. True: the WR failed for good.
bool handle_no_answer(Qp& qp, std::uint64_t now) {
  if (qp.attr.timeout == 0) {
    stall(qp, now, kInfiniteRetryNs);
    return false;
  }
  if (qp.waits_done > qp.attr.retry_cnt) {
    qp.owner->runtime->fabric().ports[qp.shared->port].retry_exhausted.fetch_add(1,
                                                                                 std::memory_order_relaxed);
    fail(qp, IBV_WC_RETRY_EXC_ERR);
    return true;
  }
  ++qp.waits_done;
  stall(qp, now, 4096ull << qp.attr.timeout);
  return false;
}

bool handle_not_ready(Qp& qp, std::uint64_t now) {
  Fabric& fabric = qp.owner->runtime->fabric();
  fabric.ports[qp.shared->port].rnr_naks.fetch_add(1, std::memory_order_relaxed);
  if (qp.attr.rnr_retry != 7) {
    if (qp.rnr_done >= qp.attr.rnr_retry) {
      fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
      return true;
    }
    ++qp.rnr_done;
  }
  const QpSlot& target = fabric.queue_pairs[qp.shared->peer_number.load() & (kMaxQueuePairs - 1)];
  qp.waits_done = 0;  // a NAK is an answer
  stall(qp, now, rnr_timer_ns(target.min_rnr_timer.load(std::memory_order_relaxed)));
  return false;
}

}  // namespace

void flush_send_queue(Qp& qp) {
  for (; qp.send_ack != qp.send_head; ++qp.send_ack) complete(qp, qp.send_ack, IBV_WC_WR_FLUSH_ERR);
  qp.send_next = qp.drain_end = qp.send_head;
  qp.drain_notify = false;
  qp.stalled_until_ns = 0;
  cancel_reservations(qp, now_ns());
}

std::uint64_t run_send_queue(Qp& qp, std::uint64_t now) {
  qp.gathers.store(false, std::memory_order_relaxed);
  bool one_by_one = false;
  for (;;) {
    const std::uint32_t state = qp.state();
    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
      flush_send_queue(qp);
      return kNever;
    }
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return kNever;
    acknowledge(qp, now);
    const std::uint64_t end = state == IBV_QPS_SQD ? qp.drain_end : qp.send_head;
    if (state == IBV_QPS_SQD && qp.send_ack == end && std::exchange(qp.drain_notify, false))
      push_qp_event(qp, IBV_EVENT_SQ_DRAINED);
    const std::uint64_t next_ack =
        qp.send_ack != qp.send_next ? qp.send_entry(qp.send_ack).complete_ns : kNever;
    if (qp.send_next == end) return next_ack;
    if (qp.stalled_until_ns > now) return std::min(qp.stalled_until_ns, next_ack);
    qp.stalled_until_ns = 0;
    reserve_time(qp, end, now);

    if (const std::size_t several = one_by_one ? 0 : count_together(qp, end, now); several > 1) {
      one_by_one = !place_together(qp, qp.send_next, several, now);
      for (std::size_t i = 0; i < several && !one_by_one; ++i) {
        SendEntry& e = qp.send_entry(qp.send_next);
        note_placed(qp, e, e.length, arrival_time(qp, e, e.length, now));
      }
      now = now_ns();
      continue;
    }
    SendEntry& e = qp.send_entry(qp.send_next);
    const bool paced = is_paced(qp, e);
    const std::uint64_t bytes = std::min(paced ? kPieceBytes : kUnpacedPieceBytes, e.length - e.placed);
    const std::uint64_t arrival = arrival_time(qp, e, e.placed + bytes, now);
    if (arrival > now) {
      const std::uint64_t look = balance_reservations(qp, end, now);
      return std::min({arrival, next_ack, look});
    }
    if (e.length > longest_message(qp) || (is_atomic(e.opcode) && e.length != kAtomicBytes)) {
      fail(qp, IBV_WC_LOC_LEN_ERR);
      return kNever;
    }
    bool bad_key = false;
    Answer answer = e.dropped ? Answer::kPlaced : place_piece(qp, e, qp.send_next, bytes, now, bad_key);
    if (!qp.is_reliable() && answer != Answer::kPlaced && answer != Answer::kBusy &&
        answer != Answer::kLocalFault) {
      e.dropped = true;  // nobody says so; the rest of the message takes its time and goes nowhere
      answer = Answer::kPlaced;
    }
    switch (answer) {
      case Answer::kPlaced:
        note_placed(qp, e, bytes, arrival);
        break;
      case Answer::kBusy:
        return now + kBusyRetryNs;
      case Answer::kNoAnswer:
        if (handle_no_answer(qp, now)) return kNever;
        break;
      case Answer::kNotReady:
        if (handle_not_ready(qp, now)) return kNever;
        break;
      case Answer::kRemoteAccess:
        fail(qp, IBV_WC_REM_ACCESS_ERR);
        return kNever;
      case Answer::kRemoteInvalid:
        fail(qp, IBV_WC_REM_INV_REQ_ERR);
        return kNever;
      case Answer::kRemoteOperation:
        fail(qp, IBV_WC_REM_OP_ERR);
        return kNever;
      case Answer::kLocalFault:
        fail(qp, IBV_WC_LOC_PROT_ERR);
        return kNever;
    }
    if (paced || bytes >= kPieceBytes) now = now_ns();
  }
}

int begin_entry(Qp& qp, std::uint64_t index, ibv_wr_opcode opcode) {
  if (index - qp.send_tail.load(std::memory_order_acquire) >= qp.init.cap.max_send_wr) return ENOMEM;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      break;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (is_datagram(qp)) return EINVAL;
      break;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if (!qp.is_reliable()) return EINVAL;
      break;
    default:
      return EOPNOTSUPP;
  }
  SendEntry& e = qp.send_entry(index);
  e = {};
  e.opcode = opcode;
  if (is_datagram(qp)) e.datagram.port = kNoPort;  // until it is given an address
  return 0;
}

int set_datagram_target(Qp& qp, SendEntry& e, const ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
  if (!ah) return EINVAL;
  const auto& to = *static_cast<const AddressHandle*>(ah);
  DatagramTarget& target = e.datagram;
  target = {};
  target.source_port = qp.shared->port;
  target.port = to.port;
  target.number = number;
  // A Q_Key with the highest bit set stands for the QP's own.
  target.qkey = qkey >> 31 ? qp.shared->qkey.load(std::memory_order_relaxed) : qkey;
  target.grh_word = 6u << 28 | static_cast<std::uint32_t>(to.attr.grh.traffic_class) << 20 |
                    (to.attr.grh.flow_label & 0xfffff);
  target.sl = to.attr.sl;
  target.hop_limit = to.attr.grh.hop_limit;
  target.source_gid = to.attr.grh.sgid_index;
  target.target_gid = to.target_gid;
  target.has_grh = to.attr.is_global != 0;
  if (to.port == kNoPort) return 0;
  Fabric& fabric = qp.owner->runtime->fabric();
  Port& there = fabric.ports[to.port];
  const std::uint32_t percent = percent_of_rate(fabric, there, memory_node_of_owner(fabric, number));
  const auto is_it = [&](const DatagramFlow& f) { return f.port == to.port && f.percent == percent; };
  const auto flow =
      std::find_if(qp.datagram_flows.begin(), qp.datagram_flows.end(), is_it) - qp.datagram_flows.begin();
  if (flow == std::ssize(qp.datagram_flows)) {
    qp.datagram_flows.push_back({to.port, percent, open_flow(there.rx, qp.qp_base.qp_num, percent)});
    set_window(qp);
  }
  target.flow = static_cast<std::uint16_t>(flow);
  return 0;
}

int set_inline_data(Qp& qp, std::uint64_t index, const void* data, std::size_t bytes) {
  SendEntry& e = qp.send_entry(index);
  if (e.length + bytes > qp.init.cap.max_inline_data) return EINVAL;
  e.is_inline = true;
  if (bytes != 0)
    std::memcpy(&qp.inline_data[(index & qp.send_mask) * qp.init.cap.max_inline_data + e.length], data,
                bytes);
  e.length += bytes;
  return 0;
}

int set_pieces(Qp& qp, std::uint64_t index, const ibv_sge* list, std::size_t count) {
  if (count > qp.init.cap.max_send_sge) return EINVAL;
  SendEntry& e = qp.send_entry(index);
  e.sge_count = static_cast<std::uint32_t>(count);
  e.is_inline = false;
  e.length = 0;
  for (std::size_t i = 0; i < count; ++i) e.length += list[i].length;
  std::copy(
      list, list + count,
      qp.send_sges.begin() + static_cast<std::ptrdiff_t>((index & qp.send_mask) * qp.init.cap.max_send_sge));
  return 0;
}

namespace {

int add_request(Qp& qp, const ibv_send_wr& wr) {
  if (const int error = begin_entry(qp, qp.send_head, wr.opcode)) return error;
  SendEntry& e = qp.send_entry(qp.send_head);
  e.wr_id = wr.wr_id;
  e.flags = wr.send_flags;
  e.imm_data = wr.imm_data;
  if (is_datagram(qp)) {
    if (const int error = set_datagram_target(qp, e, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey))
      return error;
  } else if (is_atomic(wr.opcode)) {
    e.remote_address = wr.wr.atomic.remote_addr;
    e.rkey = wr.wr.atomic.rkey;
    e.atomic = {wr.wr.atomic.compare_add, wr.wr.atomic.swap};
  } else {
    e.remote_address = wr.wr.rdma.remote_addr;
    e.rkey = wr.wr.rdma.rkey;
  }
  if (wr.num_sge < 0) return EINVAL;
  const auto pieces = static_cast<std::size_t>(wr.num_sge);
  if (!(wr.send_flags & IBV_SEND_INLINE) || !carries_data_to_peer(e.opcode))
    return set_pieces(qp, qp.send_head, wr.sg_list, pieces);
  if (pieces > qp.init.cap.max_send_sge) return EINVAL;
  e.is_inline = true;
  for (std::size_t i = 0; i < pieces; ++i)
    if (const int error = set_inline_data(qp, qp.send_head, reinterpret_cast<const void*>(wr.sg_list[i].addr),
                                          wr.sg_list[i].length))
      return error;
  return 0;
}

}  // namespace

int may_post(const Qp& qp) {
  if (qp.owner->runtime->is_forked_copy()) return ENODEV;
  const std::uint32_t state = qp.state();
  return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR
             ? 0
             : EINVAL;
}

void start_posted(Qp& qp) {
  const std::uint64_t now = now_ns();
  if (qp.stalled_until_ns == 0 && qp.state() == IBV_QPS_RTS) reserve_time(qp, qp.send_head, now);
  if (may_wait_for_more(qp)) {
    if (!qp.gathers.load(std::memory_order_relaxed)) qp.owner->runtime->gather(qp, now + kGatherNs);
    return;
  }
  qp.owner->runtime->schedule(qp, run_send_queue(qp, now));
}

int post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  if (qp.owner->runtime->is_forked_copy()) {  // before the lock, which a thread of the parent may have held
    if (bad_wr) *bad_wr = wr;
    return ENODEV;
  }
  const std::lock_guard guard(qp.send_lock);
  int error = may_post(qp);
  for (; wr && error == 0; wr = wr->next) {
    error = add_request(qp, *wr);
    if (error != 0) break;
    ++qp.send_head;
  }
  if (error != 0 && bad_wr) *bad_wr = wr;
  start_posted(qp);
  return error;
}

}  // namespace vhca
