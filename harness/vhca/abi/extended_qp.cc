// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/extended_qp.h"

#include <cerrno>

#include "harness/vhca/queues/post_send.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/send_queue.h"

// From wr_start to wr_complete or wr_abort the QP's send_lock is held. Requests are built in the entries
// behind send_head and are posted all together or not at all; the first error is kept for wr_complete.
namespace vhca {
namespace {

SendEntry& last_built(Qp& qp) { return qp.send_entry(qp.built_head - 1); }

SendEntry* begin(ibv_qp_ex* handle, ibv_wr_opcode opcode) {
  Qp& qp = qp_of(handle);
  if (qp.build_error != 0) return nullptr;
  qp.build_error = begin_entry(qp, qp.built_head, opcode);
  if (qp.build_error != 0) return nullptr;
  SendEntry& e = qp.send_entry(qp.built_head++);
  e.wr_id = handle->wr_id;
  e.flags = handle->wr_flags;
  return &e;
}

void begin_remote(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address,
                  std::uint32_t imm = 0) {
  SendEntry* e = begin(handle, opcode);
  if (!e) return;
  e->rkey = rkey;
  e->remote_address = address;
  e->imm_data = imm;
}

void begin_atomic(ibv_qp_ex* handle, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address,
                  AtomicOperands operands) {
  SendEntry* e = begin(handle, opcode);
  if (!e) return;
  e->rkey = rkey;
  e->remote_address = address;
  e->atomic = operands;
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  begin_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, {compare, swap});
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  begin_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, {add, 0});
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, IBV_WR_RDMA_READ, rkey, address);
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, IBV_WR_RDMA_WRITE, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
  begin_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
}
void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) { begin_remote(qp, IBV_WR_SEND_WITH_IMM, 0, 0, imm); }

template <typename F>
void on_last(ibv_qp_ex* handle, F&& f) {
  Qp& qp = qp_of(handle);
  if (qp.build_error != 0) return;
  qp.build_error = qp.built_head == qp.send_head ? EINVAL : f(qp, qp.built_head - 1);
}

void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
  on_last(handle,
          [&](Qp& qp, std::uint64_t) { return set_datagram_target(qp, last_built(qp), ah, number, qkey); });
}
void wr_set_sge_list(ibv_qp_ex* handle, std::size_t count, const ibv_sge* list) {
  on_last(handle, [&](Qp& qp, std::uint64_t index) { return set_pieces(qp, index, list, count); });
}
void wr_set_sge(ibv_qp_ex* handle, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge piece{address, length, lkey};
  wr_set_sge_list(handle, 1, &piece);
}
void wr_set_inline_data(ibv_qp_ex* handle, void* data, std::size_t bytes) {
  on_last(handle, [&](Qp& qp, std::uint64_t index) { return set_inline_data(qp, index, data, bytes); });
}
void wr_set_inline_data_list(ibv_qp_ex* handle, std::size_t count, const ibv_data_buf* list) {
  on_last(handle, [&](Qp& qp, std::uint64_t index) {
    int error = set_inline_data(qp, index, nullptr, 0);
    for (std::size_t i = 0; i < count && error == 0; ++i)
      error = set_inline_data(qp, index, list[i].addr, list[i].length);
    return error;
  });
}

void wr_start(ibv_qp_ex* handle) {
  Qp& qp = qp_of(handle);
  // A forked child takes no lock: a thread of its parent may have held it.
  if (!qp.owner->runtime->is_forked_copy()) qp.send_lock.lock();
  qp.built_head = qp.send_head;
  qp.build_error = may_post(qp);
}
int wr_complete(ibv_qp_ex* handle) {
  Qp& qp = qp_of(handle);
  if (qp.owner->runtime->is_forked_copy()) return ENODEV;
  const std::unique_lock guard(qp.send_lock, std::adopt_lock);
  const int error = qp.build_error;
  if (error != 0) return error;
  qp.send_head = qp.built_head;
  start_posted(qp);
  return 0;
}
void wr_abort(ibv_qp_ex* handle) {
  Qp& qp = qp_of(handle);
  if (!qp.owner->runtime->is_forked_copy()) qp.send_lock.unlock();
}

}  // namespace

int serve_operations(ibv_qp_type type, std::uint64_t flags, ibv_qp_ex& qp) {
  constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  constexpr std::uint64_t kReads =
      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  const std::uint64_t served =
      kSends | (type != IBV_QPT_UD ? kWrites : 0) | (type == IBV_QPT_RC ? kReads : 0);
  if ((flags & ~served) != 0) return EOPNOTSUPP;
  const auto serve = [flags](std::uint64_t flag, auto& slot, auto* function) {
    if (flags & flag) slot = function;
  };
  serve(IBV_QP_EX_WITH_SEND, qp.wr_send, wr_send);
  serve(IBV_QP_EX_WITH_SEND_WITH_IMM, qp.wr_send_imm, wr_send_imm);
  serve(IBV_QP_EX_WITH_RDMA_WRITE, qp.wr_rdma_write, wr_rdma_write);
  serve(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, qp.wr_rdma_write_imm, wr_rdma_write_imm);
  serve(IBV_QP_EX_WITH_RDMA_READ, qp.wr_rdma_read, wr_rdma_read);
  serve(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, qp.wr_atomic_cmp_swp, wr_atomic_cmp_swp);
  serve(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, qp.wr_atomic_fetch_add, wr_atomic_fetch_add);
  if (type == IBV_QPT_UD) qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  return 0;
}

}  // namespace vhca
