// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/send_queue.h"

#include <algorithm>
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

// Places so many WRs from send_next on in one copy. False: one of them has to fail, or wait, by itself.
bool place_several(Qp& qp, std::size_t count, std::uint64_t now) {
  if (!place_together(qp, qp.send_next, count, now)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    SendEntry& e = qp.send_entry(qp.send_next);
    note_placed(qp, e, e.length, arrival_time(qp, e, e.length, now));
  }
  return true;
}

// Places `bytes` more of the WR at send_next, and gives the answer that its initiator gets.
Answer place_next(Qp& qp, SendEntry& e, std::uint64_t bytes, std::uint64_t now) {
  if (e.dropped) return Answer::kPlaced;
  const Answer answer = place_piece(qp, e, qp.send_next, bytes, now);
  if (qp.is_reliable() || answer == Answer::kBusy || answer == Answer::kLocalFault) return answer;
  // Nobody says so where it got no further; the rest of the message takes its time and goes nowhere.
  e.dropped = answer != Answer::kPlaced;
  return Answer::kPlaced;
}

// After an answer other than kPlaced and kBusy. False: the queue has failed.
bool goes_on_after(Qp& qp, Answer answer, std::uint64_t now) {
  switch (answer) {
    case Answer::kPlaced:
    case Answer::kBusy:
      return true;
    case Answer::kNoAnswer:
      return !handle_no_answer(qp, now);
    case Answer::kNotReady:
      return !handle_not_ready(qp, now);
    case Answer::kRemoteAccess:
      fail(qp, IBV_WC_REM_ACCESS_ERR);
      return false;
    case Answer::kRemoteInvalid:
      fail(qp, IBV_WC_REM_INV_REQ_ERR);
      return false;
    case Answer::kRemoteOperation:
      fail(qp, IBV_WC_REM_OP_ERR);
      return false;
    case Answer::kLocalFault:
      fail(qp, IBV_WC_LOC_PROT_ERR);
      return false;
  }
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
      one_by_one = !place_several(qp, several, now);
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
    const Answer answer = place_next(qp, e, bytes, now);
    if (answer == Answer::kBusy) {
      wait_for_target(qp, bytes, now);
      return now + kBusyRetryNs;
    }
    if (answer == Answer::kPlaced)
      note_placed(qp, e, bytes, arrival);
    else if (!goes_on_after(qp, answer, now))
      return kNever;
    if (paced || bytes >= kPieceBytes) now = now_ns();
  }
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

}  // namespace vhca
