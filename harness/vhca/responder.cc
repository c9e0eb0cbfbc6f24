// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "harness/vhca/address_handle.h"
#include "harness/vhca/atomics.h"
#include "harness/vhca/completion.h"
#include "harness/vhca/device.h"
#include "harness/vhca/gpu_memory.h"
#include "harness/vhca/log.h"
#include "harness/vhca/memory_region.h"
#include "harness/vhca/pause_point.h"
#include "harness/vhca/process_table.h"
#include "harness/vhca/runtime.h"
#include "harness/vhca/shared_receive.h"

namespace vhca {
namespace {

constexpr std::uint64_t kHolderMask = 0xffffffffu;
constexpr std::uint64_t kOneHold = 1ull << 32;
constexpr std::uint64_t kStoppedHolderNs = 20'000'000;
constexpr std::uint64_t kLongestWaitNs = 2'000'000'000;
constexpr std::uint64_t kLookAtHolderNs = 1'000'000;
constexpr std::size_t kMaxPieces = 40;

constexpr std::uint64_t kSpinNs = 20'000;

void nap() {
  const timespec length{0, 20'000};
  ::nanosleep(&length, nullptr);
}

ProcessId holder_of(std::uint64_t word) { return static_cast<ProcessId>(word & kHolderMask); }

bool receives(std::uint32_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

// The target QP, held for the length of one piece.
class Target {
 public:
  Target(Fabric& fabric, const Qp& initiator, const SendEntry& send, ProcessId self)
      : slot_(fabric.queue_pairs[number_of(initiator, send) & (kMaxQueuePairs - 1)]) {
    if (!answers(initiator, send)) return;
    std::uint64_t seen = slot_.responder.load();
    if (holder_of(seen) != 0) {
      if (!responder_is_free(fabric, slot_)) {
        busy_ = true;
        return;
      }
      seen = slot_.responder.load();
    }
    hold_ = (seen & ~kHolderMask) + kOneHold + self;
    if (holder_of(seen) != 0 || !slot_.responder.compare_exchange_strong(seen, hold_)) {
      busy_ = true;
      return;
    }
    held_ = true;
    // Again, now that the owner has to wait for us if it wants to change its mind.
    if (!answers(initiator, send)) release();
  }

  // Of what is held: nothing is changed in another life.
  std::uint32_t life() const { return life_; }
  // False: we were stopped, and the owner has gone on without us. What we had found may be gone.
  bool still_held() const { return hold().is_valid(); }
  Hold hold() const { return {slot_.responder, hold_}; }

  ~Target() { release(); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  bool held() const { return held_; }
  bool busy() const { return busy_; }
  QpSlot& slot() { return slot_; }

  void release() {
    if (!held_) return;
    held_ = false;
    end_of_use();
    std::uint64_t ours = hold_;
    if (slot_.responder.compare_exchange_strong(ours, hold_ & ~kHolderMask)) return;
    ours = hold_;
    slot_.revoked.compare_exchange_strong(ours, 0);
  }

 private:
  static std::uint32_t number_of(const Qp& initiator, const SendEntry& send) {
    return initiator.shared->type == IBV_QPT_UD
               ? send.datagram.number
               : initiator.shared->peer_number.load(std::memory_order_relaxed);
  }

  bool answers(const Qp& initiator, const SendEntry& send) {
    const QpSlot& own = *initiator.shared;
    const std::uint32_t word = slot_.state.word();
    life_ = QpState::life_of(word);
    if (slot_.number.load() != number_of(initiator, send) || !receives(QpState::state_of(word)) ||
        slot_.type != own.type || (initiator.peer_life != 0 && initiator.peer_life != life_) ||
        slot_.pkey_index.load(std::memory_order_relaxed) != own.pkey_index.load(std::memory_order_relaxed))
      return false;
    if (own.type == IBV_QPT_UD)
      return slot_.port == send.datagram.port &&
             slot_.qkey.load(std::memory_order_relaxed) == send.datagram.qkey;
    const Fabric& fabric = initiator.owner->runtime->fabric();
    const auto packet = std::uint32_t(std::min<std::uint64_t>(send.length, 128u << initiator.attr.path_mtu));
    for (const Port* port : {&fabric.ports[own.port], &fabric.ports[slot_.port]})
      if (const std::uint32_t passes = port->narrow.load(std::memory_order_relaxed);
          passes != 0 && packet > passes)
        return false;
    return slot_.peer_number.load(std::memory_order_relaxed) == initiator.qp_base.qp_num &&
           slot_.port == own.peer_port.load(std::memory_order_relaxed) &&
           slot_.peer_port.load(std::memory_order_relaxed) == own.port;
  }

  QpSlot& slot_;
  std::uint64_t hold_ = 0;
  std::uint32_t life_ = 0;
  bool held_ = false;
  bool busy_ = false;
};

// The target's QP breaks: as hardware does after it has sent a NAK. The caller holds it. Not if its owner has
// moved it to RESET meanwhile. The state first: were the initiator killed in between, the owner's engine
// would still find out by the state.
void break_target(Fabric& fabric, Target& target, ibv_event_type event, unsigned completions) {
  QpSlot& qp = target.slot();
  std::uint32_t seen = qp.state.word();
  do {
    if (QpState::life_of(seen) != target.life() || !receives(QpState::state_of(seen))) {
      if (completions != 0) announce_receive(fabric, qp, true, completions);
      return;
    }
    VHCA_PAUSE_POINT(breaking);
  } while (!qp.state.change(seen, IBV_QPS_ERR));
  const std::uint32_t last = qp.srq != 0 ? 1u << IBV_EVENT_QP_LAST_WQE_REACHED : 0;
  qp.async_flags.fetch_or(1u << event | last);
  announce_receive(fabric, qp, true, completions);
  ring_doorbell(fabric, qp.owner.load());
}

// IBTA vol. 1, 11.6.3.1: the first message that arrives before the owner has gone to RTS tells it that the
// peer has. Raised once, whatever becomes of that message.
void establish(Fabric& fabric, QpSlot& qp) {
  if (qp.state.load(std::memory_order_relaxed) != IBV_QPS_RTR || qp.type == IBV_QPT_UD ||
      qp.established.exchange(1) != 0)
    return;
  qp.async_flags.fetch_or(1u << IBV_EVENT_COMM_EST);
  ring_doorbell(fabric, qp.owner.load());
}

struct Receive {
  RecvEntry* entry;
  std::uint64_t index;
};

// False: the hold was revoked while we were stopped, and the request is not ours to complete any more.
bool complete_receive(Fabric& fabric, QpSlot& qp, const Receive& receive, ibv_wc_status status,
                      const Piece& piece, std::uint32_t source_qp) {
  const SendEntry& send = piece.send;
  const bool is_write = send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  RecvEntry& entry = *receive.entry;
  entry.status = status;
  entry.opcode = is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  entry.byte_count = static_cast<std::uint32_t>(send.length);
  entry.slid = 0;
  entry.sl = 0;
  entry.wc_flags =
      is_write || send.opcode == IBV_WR_SEND_WITH_IMM ? static_cast<std::uint32_t>(IBV_WC_WITH_IMM) : 0u;
  entry.imm_data = send.imm_data;
  entry.source_qp = source_qp;
  if (qp.type == IBV_QPT_UD) {
    entry.byte_count += static_cast<std::uint32_t>(kGrhBytes);
    if (send.datagram.has_grh) entry.wc_flags |= IBV_WC_GRH;
    entry.slid = static_cast<std::uint16_t>(fabric.ports[send.datagram.source_port].lid);
    entry.sl = send.datagram.sl;
  }
  std::uint64_t expected = receive.index;
  if (!qp.recv_completed.compare_exchange_strong(expected, receive.index + 1)) return false;
  if (status == IBV_WC_SUCCESS) announce_receive(fabric, qp, (send.flags & IBV_SEND_SOLICITED) != 0, 1);
  return true;
}

// The part of a receive work request's buffers that a piece of a SEND falls into. Count of pieces, -1 on a
// bad key.
int receive_pieces(const Fabric& fabric, const QpSlot& qp, const RecvEntry& entry, std::uint64_t offset,
                   std::uint64_t bytes, std::array<iovec, kMaxPieces>& out) {
  int count = 0;
  const ProcessId owner = qp.owner.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < entry.sge_count && bytes != 0; ++i) {
    const RecvSge& sge = entry.sge[i];
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint64_t take = std::min<std::uint64_t>(sge.length - offset, bytes);
    void* at =
        resolve_key(fabric, sge.lkey, owner, qp.recv_pd, sge.address + offset, take, IBV_ACCESS_LOCAL_WRITE);
    if (!at) return -1;
    out[static_cast<std::size_t>(count++)] = {at, take};
    offset = 0;
    bytes -= take;
  }
  return count;
}

void refuse_gpu_atomic() {
  static const bool told = (log_line("an atomic operation on, or with its result in, GPU memory is refused: "
                                     "the virtual HCA serves none"),
                            true);
  static_cast<void>(told);
}

std::uint64_t capacity_of(const RecvEntry& entry) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < entry.sge_count; ++i) bytes += entry.sge[i].length;
  return bytes;
}

}  // namespace

Answer place(Qp& initiator, const Piece& piece, std::uint64_t now_ns) {
  Runtime& runtime = *initiator.owner->runtime;
  Fabric& fabric = runtime.fabric();
  Target target(fabric, initiator, piece.send, runtime.self());
  if (target.busy()) return Answer::kBusy;
  if (!target.held()) return Answer::kNoAnswer;
  QpSlot& qp = target.slot();
  if (initiator.is_reliable()) initiator.peer_life = target.life();
  establish(fabric, qp);
  const SendEntry& send = piece.send;
  const ProcessId owner = qp.owner.load();
  const bool is_send = send.opcode == IBV_WR_SEND || send.opcode == IBV_WR_SEND_WITH_IMM;
  const bool is_read = send.opcode == IBV_WR_RDMA_READ;
  const bool is_datagram = qp.type == IBV_QPT_UD;
  const std::uint64_t header = is_datagram ? kGrhBytes : 0;

  Receive receive{nullptr, 0};
  if (is_send || send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    if (qp.srq != 0) finish_taking(fabric, qp);
    receive.index = qp.recv_completed.load(std::memory_order_relaxed);
    if (receive.index == qp.recv_posted.load(std::memory_order_acquire) &&
        (qp.srq == 0 || !take_shared_receive(fabric, qp))) {
      // A process that is gone posts nothing: it has no HCA any more that could answer "not ready".
      if (runtime.mover().touch(owner) == MoveStatus::kGone) return Answer::kNoAnswer;
      return Answer::kNotReady;
    }
    receive.entry = &recv_entry_of(fabric, qp, receive.index);
    VHCA_PAUSE_POINT(receive_found);
    // Index, request and ring are of the life that we hold: its owner ends none before it has revoked the
    // hold.
    if (!target.still_held()) return Answer::kNoAnswer;
  }

  std::array<iovec, kMaxPieces> remote;
  std::size_t remote_count = 0;
  if (is_send) {
    if (send.length + header > capacity_of(*receive.entry)) {
      if (!complete_receive(fabric, qp, receive, IBV_WC_LOC_LEN_ERR, piece, initiator.qp_base.qp_num))
        return Answer::kNoAnswer;
      break_target(fabric, target, IBV_EVENT_QP_REQ_ERR, 1);
      return Answer::kRemoteInvalid;
    }
    // A datagram lies behind the room for a GRH, whether there is one or not.
    const bool with_grh = is_datagram && send.datagram.has_grh;
    const int count = receive_pieces(fabric, qp, *receive.entry, piece.offset + (with_grh ? 0 : header),
                                     piece.bytes + (with_grh ? header : 0), remote);
    if (count < 0) {
      if (!complete_receive(fabric, qp, receive, IBV_WC_LOC_PROT_ERR, piece, initiator.qp_base.qp_num))
        return Answer::kNoAnswer;
      break_target(fabric, target, IBV_EVENT_QP_FATAL, 1);
      return Answer::kRemoteOperation;
    }
    remote_count = static_cast<std::size_t>(count);
  } else if (is_atomic(send.opcode)) {
    if (!(qp.access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_ATOMIC) ||
        (send.remote_address & 7) != 0) {
      break_target(fabric, target, IBV_EVENT_QP_REQ_ERR, 0);
      return Answer::kRemoteInvalid;
    }
    void* word =
        resolve_key(fabric, send.rkey, owner, qp.pd, send.remote_address, 8, IBV_ACCESS_REMOTE_ATOMIC);
    if (any_gpu(piece.local, piece.local_count)) {
      refuse_gpu_atomic();
      return Answer::kLocalFault;
    }
    std::uint64_t before = 0;
    if (word && is_gpu(word)) {
      refuse_gpu_atomic();
      break_target(fabric, target, IBV_EVENT_QP_REQ_ERR, 0);
      return Answer::kRemoteInvalid;
    }
    const Answer answer = word ? carry_out_atomic(runtime, owner, word, target.hold(), send, before, now_ns)
                               : Answer::kRemoteAccess;
    if (answer == Answer::kRemoteAccess) break_target(fabric, target, IBV_EVENT_QP_ACCESS_ERR, 0);
    if (answer == Answer::kPlaced) {
      auto* from = reinterpret_cast<char*>(&before);
      for (std::size_t i = 0; i < piece.local_count; from += piece.local[i++].iov_len)
        copy_whole_words(piece.local[i].iov_base, from, piece.local[i].iov_len);
    }
    return answer;
  } else {
    const bool naks = initiator.is_reliable();
    const std::uint32_t right = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!(qp.access.load(std::memory_order_relaxed) & right)) {
      if (naks) break_target(fabric, target, IBV_EVENT_QP_REQ_ERR, 0);
      return Answer::kRemoteInvalid;
    }
    if (send.length != 0) {
      // The whole range, with the first piece and with every other: the region may go in between.
      void* base = resolve_key(fabric, send.rkey, owner, qp.pd, send.remote_address, send.length, right);
      if (!base) {
        if (naks) break_target(fabric, target, IBV_EVENT_QP_ACCESS_ERR, 0);
        return Answer::kRemoteAccess;
      }
      remote[0] = {static_cast<char*>(base) + piece.offset, piece.bytes};
      remote_count = 1;
    }
  }

  iovec* local = piece.local;
  std::size_t local_count = piece.local_count;
  ibv_grh grh;
  std::array<iovec, kMaxSge + 1> behind_header;
  if (is_datagram && send.datagram.has_grh) {
    fill_grh(fabric.ports[initiator.shared->port], fabric.ports[send.datagram.port], send.datagram,
             send.length, grh);
    behind_header[0] = {&grh, sizeof grh};
    std::copy(local, local + local_count, behind_header.begin() + 1);
    local = behind_header.data();
    ++local_count;
  }
  const MoveStatus status =
      remote_count == 0
          ? runtime.mover().touch(owner)
          : runtime.mover().move(is_read ? MoveDirection::kFromRemote : MoveDirection::kToRemote, owner,
                                 local, local_count, remote.data(), remote_count, target.hold(), now_ns);
  switch (status) {
    case MoveStatus::kOk:
      break;
    case MoveStatus::kGone:
    case MoveStatus::kRefused:
      return Answer::kNoAnswer;
    case MoveStatus::kBusy:
      return Answer::kBusy;
    case MoveStatus::kLocalFault:
      return Answer::kLocalFault;
    case MoveStatus::kRemoteFault:
      if (is_send) {
        if (!complete_receive(fabric, qp, receive, IBV_WC_LOC_PROT_ERR, piece, initiator.qp_base.qp_num))
          return Answer::kNoAnswer;
        break_target(fabric, target, IBV_EVENT_QP_FATAL, 1);
        return Answer::kRemoteOperation;
      }
      if (initiator.is_reliable()) break_target(fabric, target, IBV_EVENT_QP_ACCESS_ERR, 0);
      return Answer::kRemoteAccess;
  }
  VHCA_PAUSE_POINT(copied);
  if (piece.last && receive.entry &&
      !complete_receive(fabric, qp, receive, IBV_WC_SUCCESS, piece, initiator.qp_base.qp_num))
    return Answer::kNoAnswer;
  // Whoever is not heard is not acknowledged: the owner had gone on before.
  return target.still_held() ? Answer::kPlaced : Answer::kNoAnswer;
}

Answer place_whole(Qp& initiator, const SendEntry* const* sends, std::size_t count, iovec* local,
                   std::size_t local_count, std::uint64_t now_ns) {
  Runtime& runtime = *initiator.owner->runtime;
  Fabric& fabric = runtime.fabric();
  Target target(fabric, initiator, *sends[0], runtime.self());
  if (!target.held()) return target.busy() ? Answer::kBusy : Answer::kNoAnswer;
  QpSlot& qp = target.slot();
  const ProcessId owner = qp.owner.load();
  const bool is_read = sends[0]->opcode == IBV_WR_RDMA_READ;
  const std::uint32_t right = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if (!(qp.access.load(std::memory_order_relaxed) & right) || count > kMaxPieces)
    return Answer::kRemoteInvalid;
  std::array<iovec, kMaxPieces> remote;
  std::size_t remote_count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const SendEntry& send = *sends[i];
    auto* at = static_cast<char*>(
        resolve_key(fabric, send.rkey, owner, qp.pd, send.remote_address, send.length, right));
    if (!at) return Answer::kRemoteAccess;
    iovec* const before = remote_count != 0 ? &remote[remote_count - 1] : nullptr;
    if (before && static_cast<char*>(before->iov_base) + before->iov_len == at)
      before->iov_len += send.length;
    else
      remote[remote_count++] = {at, send.length};
  }
  if (initiator.is_reliable()) initiator.peer_life = target.life();
  establish(fabric, qp);
  const MoveStatus status =
      runtime.mover().move(is_read ? MoveDirection::kFromRemote : MoveDirection::kToRemote, owner, local,
                           local_count, remote.data(), remote_count, target.hold(), now_ns);
  return status == MoveStatus::kOk && target.still_held() ? Answer::kPlaced : Answer::kRemoteOperation;
}

std::uint64_t rnr_timer_ns(std::uint32_t code) {
  // IBTA vol. 1, table "encoding for RNR NAK timer field", in units of 10 microseconds.
  static constexpr std::uint32_t kTable[32] = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTable[code & 31] * 10'000ull;
}

bool responder_is_free(Fabric& fabric, QpSlot& qp) {
  std::uint64_t word = qp.responder.load();
  if (holder_of(word) == 0) return true;
  if (process_liveness(fabric, holder_of(word)) != Liveness::kDead)
    return holder_of(qp.responder.load()) == 0;
  qp.responder.compare_exchange_strong(word, word & ~kHolderMask);
  return holder_of(qp.responder.load()) == 0;
}

// Takes the hold from a holder that does not let go. Not while another one that lives has not found out that
// it has lost its own.
static void revoke_hold(Fabric& fabric, QpSlot& qp, std::uint64_t word) {
  std::uint64_t before = qp.revoked.load();
  if (holder_of(before) != 0 && process_liveness(fabric, holder_of(before)) != Liveness::kDead) return;
  if (!qp.revoked.compare_exchange_strong(before, word)) return;
  std::uint64_t expected = word;
  if (!qp.responder.compare_exchange_strong(expected, word & ~kHolderMask)) {
    expected = word;
    qp.revoked.compare_exchange_strong(expected, 0);  // it has let go by itself
  }
}

void wait_until_unused(Fabric& fabric, QpSlot& qp, ProcessId self) {
  const std::uint64_t start = now_ns();
  std::uint64_t looked = start;
  for (;;) {
    const std::uint64_t word = qp.responder.load();
    const ProcessId holder = holder_of(word);
    if (holder == 0) return;
    const std::uint64_t now = now_ns();
    if (now - start > kSpinNs) nap();  // the holder may need this very CPU
    if (holder == self || now - looked < kLookAtHolderNs) continue;
    looked = now;
    const Liveness life = process_liveness(fabric, holder);
    if (life == Liveness::kDead && responder_is_free(fabric, qp)) return;
    if (now - start > (life == Liveness::kStopped ? kStoppedHolderNs : kLongestWaitNs)) {
      revoke_hold(fabric, qp, word);
      return;
    }
  }
}

bool is_at_rest(Fabric& fabric, Qp& qp) {
  QpSlot& slot = *qp.shared;
  const std::uint64_t word = slot.responder.load();
  if (holder_of(word) == 0) return true;
  const std::uint64_t now = now_ns();
  if (qp.held_by != word) {
    qp.held_by = word;
    qp.held_since_ns = now;
  }
  const Liveness life = process_liveness(fabric, holder_of(word));
  if (life == Liveness::kDead) return responder_is_free(fabric, slot);
  if (now - qp.held_since_ns > (life == Liveness::kStopped ? kStoppedHolderNs : kLongestWaitNs))
    revoke_hold(fabric, slot, word);
  return holder_of(slot.responder.load()) == 0;
}

bool is_still_written_to(const Fabric& fabric, const QpSlot& qp) {
  for (const std::uint64_t word : {qp.responder.load(), qp.revoked.load()})
    if (holder_of(word) != 0 && process_liveness(fabric, holder_of(word)) != Liveness::kDead) return true;
  return false;
}

void wait_until_unused_once(Fabric& fabric, QpSlot& qp, ProcessId self) {
  const std::uint64_t word = qp.responder.load();
  const std::uint64_t start = now_ns();
  std::uint64_t looked = start;
  while (holder_of(word) != 0 && qp.responder.load() == word) {
    const std::uint64_t now = now_ns();
    if (now - start > kSpinNs) nap();
    if (holder_of(word) == self || now - looked < kLookAtHolderNs) continue;
    looked = now;
    const Liveness life = process_liveness(fabric, holder_of(word));
    if (life == Liveness::kDead || now - start > kLongestWaitNs) return;
    if (life == Liveness::kStopped && now - start > kStoppedHolderNs) return;
  }
}

}  // namespace vhca
