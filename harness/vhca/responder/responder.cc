// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/responder.h"

#include <algorithm>
#include <array>
#include <optional>

#include "harness/vhca/base/log.h"
#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/memory/gpu_memory.h"
#include "harness/vhca/memory/keys.h"
#include "harness/vhca/process/addresses.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/responder/atomics.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/responder_hold.h"
#include "harness/vhca/responder/shared_request.h"

namespace vhca {
namespace {

constexpr std::size_t kMaxPieces = 40;

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
  VHCA_PAUSE_POINT(broken);
  const std::uint32_t last = qp.srq != 0 ? 1u << IBV_EVENT_QP_LAST_WQE_REACHED : 0;
  qp.events.raise(target.life(), 1u << event | last);
  announce_receive(fabric, qp, true, completions);
  ring_doorbell(fabric, qp.owner.load());
}

// IBTA vol. 1, 11.6.3.1: the first message that arrives before the owner has gone to RTS tells it that the
// peer has. Raised once, whatever becomes of that message.
void establish(Fabric& fabric, Target& target) {
  QpSlot& qp = target.slot();
  if (qp.state.load(std::memory_order_relaxed) != IBV_QPS_RTR || qp.type == IBV_QPT_UD) return;
  VHCA_PAUSE_POINT(establishing);
  constexpr std::uint32_t kOnce = QpEvents::kEstablished;
  if (qp.events.raise(target.life(), 1u << IBV_EVENT_COMM_EST | kOnce, kOnce))
    ring_doorbell(fabric, qp.owner.load());
}

// Packets of the message are longer than what one end takes for the path's MTU, or shorter than what it takes
// all of them to have but the last.
bool is_cut_otherwise(const QpSlot& a, const QpSlot& b, std::uint64_t message) {
  constexpr std::uint64_t kLeastMtu = 256;
  if (message <= kLeastMtu) return false;
  const std::uint32_t mtu_a = a.path_mtu.load(std::memory_order_relaxed),
                      mtu_b = b.path_mtu.load(std::memory_order_relaxed);
  return mtu_a != mtu_b && a.type != IBV_QPT_UD && message > 128u << std::min(mtu_a, mtu_b);
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
  VHCA_PAUSE_POINT(receive_completed);
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

/// Where a piece is placed, step by step. A step that has an answer ends it.
class Placing {
 public:
  Placing(Process& self, Qp& initiator, const Piece& piece, std::uint64_t now_ns)
      : self_(self),
        initiator_(initiator),
        piece_(piece),
        send_(piece.send),
        now_ns_(now_ns),
        fabric_(self.fabric()),
        target_(fabric_, initiator, piece.send, self.self()) {}

  Answer carry_out() {
    if (target_.busy()) return Answer::kBusy;
    if (!target_.held()) return Answer::kNoAnswer;
    owner_ = qp().owner.load();
    if (initiator_.is_reliable()) initiator_.peer_life = target_.life();
    establish(fabric_, target_);
    if (is_cut_otherwise(qp(), *initiator_.shared, send_.length))
      return refuse(IBV_EVENT_QP_REQ_ERR, Answer::kRemoteInvalid);
    if (is_send() || send_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
      if (const auto answer = find_receive()) return *answer;
    if (is_atomic(send_.opcode)) return carry_out_atomic_operation();
    if (const auto answer = is_send() ? find_room_of_receive() : find_remote_memory()) return *answer;
    if (const auto answer = move()) return *answer;
    VHCA_PAUSE_POINT(copied);
    if (piece_.last && receive_.entry && !complete(IBV_WC_SUCCESS)) return Answer::kNoAnswer;
    // Whoever is not heard is not acknowledged: the owner had gone on before.
    return target_.still_held() ? Answer::kPlaced : Answer::kNoAnswer;
  }

 private:
  using Ended = std::optional<Answer>;

  QpSlot& qp() { return target_.slot(); }
  bool is_send() const { return send_.opcode == IBV_WR_SEND || send_.opcode == IBV_WR_SEND_WITH_IMM; }
  bool is_read() const { return send_.opcode == IBV_WR_RDMA_READ; }
  /// A datagram lies behind the room for a GRH, whether there is one or not.
  std::uint64_t header() { return qp().type == IBV_QPT_UD ? kGrhBytes : 0; }
  bool with_grh() { return qp().type == IBV_QPT_UD && send_.datagram.has_grh; }

  bool complete(ibv_wc_status status) {
    return complete_receive(fabric_, qp(), receive_, status, piece_, initiator_.qp_base.qp_num);
  }
  /// The receive request is answered with an error, and the queue pair breaks.
  Answer fail_receive(ibv_wc_status status, ibv_event_type event, Answer answer) {
    if (!complete(status)) return Answer::kNoAnswer;
    break_target(fabric_, target_, event, 1);
    return answer;
  }
  /// A request is refused: the queue pair breaks where the initiator is told.
  Answer refuse(ibv_event_type event, Answer answer) {
    if (initiator_.is_reliable()) break_target(fabric_, target_, event, 0);
    return answer;
  }

  Ended find_receive() {
    if (qp().srq != 0) finish_taking(fabric_, qp());
    receive_.index = qp().recv_completed.load(std::memory_order_relaxed);
    if (receive_.index == qp().recv_posted.load(std::memory_order_acquire) &&
        (qp().srq == 0 || !take_shared_receive(fabric_, qp(), target_.hold()))) {
      if (!target_.still_held()) return Answer::kNoAnswer;
      // A process that is gone posts nothing: it has no HCA any more that could answer "not ready".
      if (self_.mover().touch(owner_) == MoveStatus::kGone) return Answer::kNoAnswer;
      return Answer::kNotReady;
    }
    receive_.entry = &recv_entry_of(fabric_, qp(), receive_.index);
    VHCA_PAUSE_POINT(receive_found);
    // Index, request and ring are of the life that we hold: its owner ends none before it has revoked the
    // hold.
    if (!target_.still_held()) return Answer::kNoAnswer;
    return {};
  }

  Ended find_room_of_receive() {
    if (send_.length + header() > capacity_of(*receive_.entry))
      return fail_receive(IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR, Answer::kRemoteInvalid);
    const int count =
        receive_pieces(fabric_, qp(), *receive_.entry, piece_.offset + (with_grh() ? 0 : header()),
                       piece_.bytes + (with_grh() ? header() : 0), remote_);
    if (count < 0) return fail_receive(IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, Answer::kRemoteOperation);
    remote_count_ = static_cast<std::size_t>(count);
    return {};
  }

  Ended find_remote_memory() {
    const std::uint32_t right = is_read() ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!(qp().access.load(std::memory_order_relaxed) & right))
      return refuse(IBV_EVENT_QP_REQ_ERR, Answer::kRemoteInvalid);
    if (send_.length == 0) return {};
    // The whole range, with the first piece and with every other: the region may go in between.
    void* base = resolve_key(fabric_, send_.rkey, owner_, qp().pd, send_.remote_address, send_.length, right);
    if (!base) return refuse(IBV_EVENT_QP_ACCESS_ERR, Answer::kRemoteAccess);
    remote_[0] = {static_cast<char*>(base) + piece_.offset, piece_.bytes};
    remote_count_ = 1;
    return {};
  }

  Answer carry_out_atomic_operation() {
    if (!(qp().access.load(std::memory_order_relaxed) & IBV_ACCESS_REMOTE_ATOMIC) ||
        (send_.remote_address & 7) != 0) {
      break_target(fabric_, target_, IBV_EVENT_QP_REQ_ERR, 0);
      return Answer::kRemoteInvalid;
    }
    void* word =
        resolve_key(fabric_, send_.rkey, owner_, qp().pd, send_.remote_address, 8, IBV_ACCESS_REMOTE_ATOMIC);
    if (any_gpu(piece_.local, piece_.local_count)) {
      refuse_gpu_atomic();
      return Answer::kLocalFault;
    }
    if (word && is_gpu(word)) {
      refuse_gpu_atomic();
      break_target(fabric_, target_, IBV_EVENT_QP_REQ_ERR, 0);
      return Answer::kRemoteInvalid;
    }
    std::uint64_t before = 0;
    const Answer answer = word ? carry_out_atomic(self_, owner_, word, target_.hold(), send_, before, now_ns_)
                               : Answer::kRemoteAccess;
    if (answer == Answer::kRemoteAccess) break_target(fabric_, target_, IBV_EVENT_QP_ACCESS_ERR, 0);
    if (answer == Answer::kPlaced) {
      auto* from = reinterpret_cast<char*>(&before);
      for (std::size_t i = 0; i < piece_.local_count; from += piece_.local[i++].iov_len)
        copy_whole_words(piece_.local[i].iov_base, from, piece_.local[i].iov_len);
    }
    return answer;
  }

  Ended move() {
    iovec* local = piece_.local;
    std::size_t local_count = piece_.local_count;
    ibv_grh grh;
    std::array<iovec, kMaxSge + 1> behind_header;
    if (with_grh()) {
      fill_grh(fabric_.ports[initiator_.shared->port], fabric_.ports[send_.datagram.port], send_.datagram,
               send_.length, grh);
      behind_header[0] = {&grh, sizeof grh};
      std::copy(local, local + local_count, behind_header.begin() + 1);
      local = behind_header.data();
      ++local_count;
    }
    const MoveDirection direction = is_read() ? MoveDirection::kFromRemote : MoveDirection::kToRemote;
    const MoveStatus status = remote_count_ == 0
                                  ? self_.mover().touch(owner_)
                                  : self_.mover().move(direction, owner_, local, local_count, remote_.data(),
                                                       remote_count_, target_.hold(), now_ns_);
    switch (status) {
      case MoveStatus::kOk:
        return {};
      case MoveStatus::kGone:
      case MoveStatus::kRefused:
        return Answer::kNoAnswer;
      case MoveStatus::kBusy:
        return Answer::kBusy;
      case MoveStatus::kLocalFault:
        return Answer::kLocalFault;
      case MoveStatus::kRemoteFault:
        break;
    }
    if (is_send()) return fail_receive(IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, Answer::kRemoteOperation);
    return refuse(IBV_EVENT_QP_ACCESS_ERR, Answer::kRemoteAccess);
  }

  Process& self_;
  Qp& initiator_;
  const Piece& piece_;
  const SendEntry& send_;
  const std::uint64_t now_ns_;
  Fabric& fabric_;
  Target target_;
  ProcessId owner_ = 0;
  Receive receive_{nullptr, 0};
  std::array<iovec, kMaxPieces> remote_;
  std::size_t remote_count_ = 0;
};

}  // namespace

Answer place(Process& self, Qp& initiator, const Piece& piece, std::uint64_t now_ns) {
  return Placing(self, initiator, piece, now_ns).carry_out();
}

Answer place_whole(Process& self, Qp& initiator, const SendEntry* const* sends, std::size_t count,
                   iovec* local, std::size_t local_count, std::uint64_t now_ns) {
  Fabric& fabric = self.fabric();
  Target target(fabric, initiator, *sends[0], self.self());
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
    if (is_cut_otherwise(qp, *initiator.shared, send.length)) return Answer::kRemoteInvalid;
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
  establish(fabric, target);
  const MoveStatus status =
      self.mover().move(is_read ? MoveDirection::kFromRemote : MoveDirection::kToRemote, owner, local,
                        local_count, remote.data(), remote_count, target.hold(), now_ns);
  VHCA_PAUSE_POINT(copied_together);
  return status == MoveStatus::kOk && target.still_held() ? Answer::kPlaced : Answer::kRemoteOperation;
}

std::uint64_t rnr_timer_ns(std::uint32_t code) {
  // IBTA vol. 1, table "encoding for RNR NAK timer field", in units of 10 microseconds.
  static constexpr std::uint32_t kTable[32] = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTable[code & 31] * 10'000ull;
}

}  // namespace vhca
