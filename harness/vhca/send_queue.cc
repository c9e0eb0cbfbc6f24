#include "harness/vhca/send_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "harness/vhca/completion.h"
#include "harness/vhca/device.h"
#include "harness/vhca/memory_region.h"
#include "harness/vhca/responder.h"
#include "harness/vhca/runtime.h"

namespace vhca {
namespace {

constexpr std::uint64_t kBusyRetryNs = 20'000;
constexpr std::uint64_t kInfiniteRetryNs = 4'000'000;
constexpr std::size_t kGatherBytes = 1024;

bool carries_data_to_peer(const SendEntry& e) { return e.opcode != IBV_WR_RDMA_READ; }

Flow* flows_of(Qp& qp, const SendEntry& e) { return carries_data_to_peer(e) ? qp.write_flows : qp.read_flows; }

// Gives every posted WR its place in the work of the two ports, from the first that has none.
void reserve_time(Qp& qp, std::uint64_t now) {
  for (; qp.send_timed != qp.send_head; ++qp.send_timed) {
    SendEntry& e = qp.send_entry(qp.send_timed);
    Flow* flows = flows_of(qp, e);
    for (int side = 0; side < 2; ++side)
      if (flows[side].paced())
        e.begin_tag[side] = reserve(flows[side], e.length - e.placed, now) - (e.placed << kVirtualByteBits);
    e.served_ns = 0;
    e.not_before_ns = now;
  }
}

// Nothing moves until a timer: the ports serve others meanwhile, and all that waits is reserved anew afterwards.
void stall(Qp& qp, std::uint64_t now, std::uint64_t for_ns) {
  for (Flow* flows : {qp.write_flows, qp.read_flows})
    for (int side = 0; side < 2; ++side) cancel_rest(flows[side], now);
  qp.send_timed = qp.send_next;
  qp.stalled_until_ns = now + for_ns;
}

// When the bytes up to `upto` of the message may be at their destination; later than now: not yet.
std::uint64_t arrival_time(Qp& qp, SendEntry& e, std::uint64_t upto, std::uint64_t now) {
  Flow* flows = flows_of(qp, e);
  const std::uint64_t travel = qp.own_latency_ns + (carries_data_to_peer(e) ? 0 : qp.peer_latency_ns);
  if (!flows[0].paced() && !flows[1].paced()) {
    e.served_ns = e.not_before_ns;
    return e.served_ns + travel;
  }
  if (e.served_ns <= now) {  // also 0: not computed yet
    std::uint64_t served = 0;
    for (int side = 0; side < 2; ++side)
      if (flows[side].paced())
        served = std::max(served, time_of_tag(flows[side], e.begin_tag[side] + (upto << kVirtualByteBits), now));
    if (served != 0)
      e.served_ns = served;
    else if (e.served_ns == 0)
      e.served_ns = now;
  }
  return e.served_ns + travel;
}

void count(Qp& qp, const SendEntry& e) {
  Fabric& fabric = qp.owner->runtime->fabric();
  Port& own = fabric.ports[qp.shared->port];
  Port& peer = fabric.ports[qp.shared->peer_port.load(std::memory_order_relaxed)];
  Port& from = carries_data_to_peer(e) ? own : peer;
  Port& to = carries_data_to_peer(e) ? peer : own;
  from.tx_messages.fetch_add(1, std::memory_order_relaxed);
  to.rx_messages.fetch_add(1, std::memory_order_relaxed);
}

void count_bytes(Qp& qp, const SendEntry& e, std::uint64_t bytes) {
  Fabric& fabric = qp.owner->runtime->fabric();
  Port& own = fabric.ports[qp.shared->port];
  Port& peer = fabric.ports[qp.shared->peer_port.load(std::memory_order_relaxed)];
  (carries_data_to_peer(e) ? own : peer).tx_bytes.fetch_add(bytes, std::memory_order_relaxed);
  (carries_data_to_peer(e) ? peer : own).rx_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
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
  wc.qp_num = qp.qp_num;
  if (status != IBV_WC_SUCCESS) wc.vendor_err = status == IBV_WC_WR_FLUSH_ERR ? 0xf5 : 0x80u + status;
  push_send_completion(cq_of(qp.send_cq), wc, qp, index);
}

// A fatal answer to the WR at send_next: what came before it is acknowledged by it, what comes after is flushed.
void fail(Qp& qp, ibv_wc_status status) {
  for (; qp.send_ack != qp.send_next; ++qp.send_ack) complete(qp, qp.send_ack, IBV_WC_SUCCESS);
  complete(qp, qp.send_next, status);
  qp.send_ack = ++qp.send_next;
  qp.shared->state.store(IBV_QPS_ERR);
  announce_receive(qp.owner->runtime->fabric(), *qp.shared, true, 0);
  flush_send_queue(qp);
}

// The WR's own buffers for [offset, offset + bytes); 0 pieces and false on a bad key.
bool local_pieces(Qp& qp, const SendEntry& e, std::uint64_t index, std::uint64_t offset, std::uint64_t bytes, iovec* out,
                  std::size_t& pieces) {
  pieces = 0;
  if (e.is_inline) {
    out[pieces++] = {&qp.inline_data[(index & qp.send_mask) * qp.init.cap.max_inline_data + offset], bytes};
    return true;
  }
  Runtime& runtime = *qp.owner->runtime;
  const std::uint32_t rights = carries_data_to_peer(e) ? 0 : static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE);
  const ibv_sge* sge = &qp.send_sges[(index & qp.send_mask) * qp.init.cap.max_send_sge];
  for (std::uint32_t i = 0; i < e.sge_count && bytes != 0; ++i) {
    if (offset >= sge[i].length) {
      offset -= sge[i].length;
      continue;
    }
    const std::uint64_t take = std::min<std::uint64_t>(sge[i].length - offset, bytes);
    void* at = resolve_key(runtime.fabric(), sge[i].lkey, runtime.self(), qp.shared->pd, sge[i].addr + offset, take, rights);
    if (!at) return false;
    out[pieces++] = {at, take};
    offset = 0;
    bytes -= take;
  }
  return true;
}

Answer place_piece(Qp& qp, SendEntry& e, std::uint64_t index, std::uint64_t bytes, std::uint64_t now, bool& bad_key) {
  std::array<iovec, kMaxSge> local;
  std::size_t pieces = 0;
  bad_key = !local_pieces(qp, e, index, e.placed, bytes, local.data(), pieces);
  if (bad_key) return Answer::kLocalFault;
  // Short messages leave from one buffer that lies like the destination, so that the copy moves whole aligned words.
  alignas(64) char gather[kGatherBytes + 64];
  if (bytes != 0 && bytes <= kGatherBytes && carries_data_to_peer(e) && !e.is_inline) {
    char* at = gather + ((e.remote_address + e.placed) & 63);
    std::size_t filled = 0;
    for (std::size_t i = 0; i < pieces; ++i) {
      copy_whole_words(at + filled, local[i].iov_base, local[i].iov_len);
      filled += local[i].iov_len;
    }
    local[0] = {at, bytes};
    pieces = 1;
  }
  return place(qp, {e, e.placed, bytes, e.placed == 0, e.placed + bytes == e.length, local.data(), pieces}, now);
}

void acknowledge(Qp& qp, std::uint64_t now) {
  for (; qp.send_ack != qp.send_next; ++qp.send_ack) {
    if (qp.send_entry(qp.send_ack).complete_ns > now) return;
    complete(qp, qp.send_ack, IBV_WC_SUCCESS);
  }
}

// The timers of RC. True: the WR failed for good.
bool handle_no_answer(Qp& qp, std::uint64_t now) {
  if (qp.attr.timeout == 0) {
    stall(qp, now, kInfiniteRetryNs);
    return false;
  }
  if (qp.waits_done > qp.attr.retry_cnt) {
    qp.owner->runtime->fabric().ports[qp.shared->port].retry_exhausted.fetch_add(1, std::memory_order_relaxed);
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
  qp.send_next = qp.send_timed = qp.send_head;
  qp.stalled_until_ns = 0;
  const std::uint64_t now = now_ns();
  for (Flow* flows : {qp.write_flows, qp.read_flows})
    for (int side = 0; side < 2; ++side) cancel_rest(flows[side], now);
}

std::uint64_t run_send_queue(Qp& qp, std::uint64_t now) {
  for (;;) {
    const std::uint32_t state = qp.state();
    if (state == IBV_QPS_ERR) {
      flush_send_queue(qp);
      return kNever;
    }
    if (state != IBV_QPS_RTS) return kNever;
    acknowledge(qp, now);
    const std::uint64_t next_ack = qp.send_ack != qp.send_next ? qp.send_entry(qp.send_ack).complete_ns : kNever;
    if (qp.send_next == qp.send_head) return next_ack;
    if (qp.stalled_until_ns > now) return std::min(qp.stalled_until_ns, next_ack);
    qp.stalled_until_ns = 0;
    reserve_time(qp, now);

    SendEntry& e = qp.send_entry(qp.send_next);
    const std::uint64_t bytes = std::min(kPieceBytes, e.length - e.placed);
    const std::uint64_t arrival = arrival_time(qp, e, e.placed + bytes, now);
    if (arrival > now) return std::min(arrival, next_ack);
    if (e.length > kMaxMessageBytes) {
      fail(qp, IBV_WC_LOC_LEN_ERR);
      return kNever;
    }
    bool bad_key = false;
    switch (place_piece(qp, e, qp.send_next, bytes, now, bad_key)) {
      case Answer::kPlaced:
        e.placed += bytes;
        e.served_ns = 0;
        qp.waits_done = 0;
        qp.rnr_done = 0;
        count_bytes(qp, e, bytes);
        if (e.placed == e.length) {
          count(qp, e);
          e.complete_ns = carries_data_to_peer(e) ? arrival + qp.peer_latency_ns : arrival;
          ++qp.send_next;
        }
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
    if (qp.write_flows[0].paced() || qp.write_flows[1].paced() || bytes == kPieceBytes) now = now_ns();
  }
}

int post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  Runtime& runtime = *qp.owner->runtime;
  int error = 0;
  const std::lock_guard guard(qp.send_lock);
  const std::uint32_t state = qp.state();
  if (runtime.is_forked_copy())
    error = ENODEV;
  else if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
    error = EINVAL;
  for (; wr && error == 0; wr = wr->next) {
    if (qp.send_head - qp.send_tail.load(std::memory_order_acquire) >= qp.init.cap.max_send_wr) {
      error = ENOMEM;
      break;
    }
    if (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM && wr->opcode != IBV_WR_RDMA_WRITE &&
        wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && wr->opcode != IBV_WR_RDMA_READ) {
      error = EOPNOTSUPP;
      break;
    }
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > qp.init.cap.max_send_sge) {
      error = EINVAL;
      break;
    }
    SendEntry& e = qp.send_entry(qp.send_head);
    e = {};
    e.wr_id = wr->wr_id;
    e.opcode = wr->opcode;
    e.flags = wr->send_flags;
    e.imm_data = wr->imm_data;
    e.remote_address = wr->wr.rdma.remote_addr;
    e.rkey = wr->wr.rdma.rkey;
    e.sge_count = static_cast<std::uint32_t>(wr->num_sge);
    for (int i = 0; i < wr->num_sge; ++i) e.length += wr->sg_list[i].length;
    if ((wr->send_flags & IBV_SEND_INLINE) && wr->opcode != IBV_WR_RDMA_READ) {
      if (e.length > qp.init.cap.max_inline_data) {
        error = EINVAL;
        break;
      }
      e.is_inline = true;
      char* to = qp.inline_data.data() + (qp.send_head & qp.send_mask) * qp.init.cap.max_inline_data;
      for (int i = 0; i < wr->num_sge; to += wr->sg_list[i].length, ++i)
        std::memcpy(to, reinterpret_cast<const void*>(wr->sg_list[i].addr), wr->sg_list[i].length);
    } else {
      std::copy(wr->sg_list, wr->sg_list + wr->num_sge,
                qp.send_sges.begin() + static_cast<std::ptrdiff_t>((qp.send_head & qp.send_mask) * qp.init.cap.max_send_sge));
    }
    ++qp.send_head;
  }
  if (error != 0 && bad_wr) *bad_wr = wr;
  if (runtime.is_forked_copy()) return error;
  const std::uint64_t now = now_ns();
  if (qp.stalled_until_ns == 0 && state == IBV_QPS_RTS) reserve_time(qp, now);
  runtime.schedule(qp, run_send_queue(qp, now));
  return error;
}

}  // namespace vhca
