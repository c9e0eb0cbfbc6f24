// SPDX-License-Identifier: Apache-2.0
// A device in memory for the extended interface: what is posted through it is written down and completed in
// order, at once. A WR whose data lies where there is no memory fails, and what is behind it flushes, as on
// any device. As with any provider a batch, and a run of polls, hold a lock from their begin to their end.
#pragma once

#include <errno.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "faultinject/preload/opcodes.h"

namespace faultinject::testing {

struct FakeDevice {
  ibv_device device{};
  verbs_context extended{};
  ibv_cq_ex cq{};
  ibv_qp_ex qp{};

  std::vector<ibv_send_wr> posted;  // everything that reached the device
  std::vector<uint64_t> data;       // the first data address of each, or what was inline there
  std::deque<ibv_wc> completions;
  ibv_wc shown{};  // by the run that is under way
  bool failed = false;
  size_t room = SIZE_MAX;  // how many completions may wait to be polled before it refuses a post: a full queue
  std::mutex post_lock, poll_lock, data_lock;    // the last one: of what is above
  std::atomic<ibv_qp_state> state{IBV_QPS_RTS};  // the device's own word, not ibv_qp::state
  std::function<void()> in_modify, modified;     // called before a modify takes effect, and behind it
  uint64_t whole_batches = 0;                    // those of several WRs
  std::vector<ibv_send_wr> batch;
  std::vector<ibv_sge> pieces;  // of the batch, one per WR

  FakeDevice() {
    extended.context.device = &device;
    extended.context.async_fd = -1;
    extended.context.abi_compat = nullptr;  // not an extended context: objects are adopted by hand
    extended.context.ops.post_send = post_send;
    extended.context.ops.poll_cq = poll_cq;
    extended.context.ops.req_notify_cq = [](ibv_cq*, int) { return 0; };
    using Untyped = void (*)();
    extended.context.ops._compat_modify_qp =
        reinterpret_cast<void* (*)()>(reinterpret_cast<Untyped>(modify_qp));
    extended.context.ops._compat_query_qp =
        reinterpret_cast<void* (*)()>(reinterpret_cast<Untyped>(query_qp));
    extended.context.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; };
    cq.context = &extended.context;
    cq.cq_context = this;
    qp.qp_base.context = &extended.context;
    qp.qp_base.qp_context = this;
    qp.qp_base.qp_num = 17;
    qp.qp_base.qp_type = IBV_QPT_RC;
    qp.qp_base.state = IBV_QPS_RTS;
    qp.qp_base.send_cq = qp.qp_base.recv_cq = ibv_cq_ex_to_cq(&cq);
    qp.wr_start = [](ibv_qp_ex* q) { of(q).post_lock.lock(); };
    qp.wr_rdma_write = [](ibv_qp_ex* q, uint32_t, uint64_t) { of(q).begin(IBV_WR_RDMA_WRITE); };
    qp.wr_rdma_read = [](ibv_qp_ex* q, uint32_t, uint64_t) { of(q).begin(IBV_WR_RDMA_READ); };
    qp.wr_send_imm = [](ibv_qp_ex* q, __be32 imm) { of(q).begin(IBV_WR_SEND_WITH_IMM).imm_data = imm; };
    with_atomic_write(qp, [](auto& pointer) {
      pointer = [](ibv_qp_ex* q, uint32_t, uint64_t, const void* value) {
        of(q).begin(kWrAtomicWrite);
        of(q).pieces.back() = {*static_cast<const uint64_t*>(value), kAtomicWriteBytes, 1};
      };
    });
    qp.wr_set_sge = [](ibv_qp_ex* q, uint32_t lkey, uint64_t address, uint32_t length) {
      of(q).pieces.back() = {address, length, lkey};
    };
    qp.wr_set_sge_list = [](ibv_qp_ex* q, size_t count, const ibv_sge* list) {
      if (count > 0) of(q).pieces.back() = list[0];
    };
    qp.wr_set_inline_data = [](ibv_qp_ex* q, void* address, size_t length) {
      of(q).pieces.back() = {*static_cast<uint64_t*>(address), uint32_t(length), 1};
    };
    qp.wr_complete = [](ibv_qp_ex* q) {
      FakeDevice& fake = of(q);
      fake.whole_batches += fake.batch.size() > 1;
      for (size_t i = 0; i < fake.batch.size(); i++) fake.execute(fake.batch[i], fake.pieces[i]);
      fake.end_batch();
      return 0;
    };
    qp.wr_abort = [](ibv_qp_ex* q) { of(q).end_batch(); };
    cq.start_poll = [](ibv_cq_ex* c, ibv_poll_cq_attr*) {
      of(c).poll_lock.lock();
      const int rc = of(c).take();
      if (rc != 0) of(c).poll_lock.unlock();
      return rc;
    };
    cq.next_poll = [](ibv_cq_ex* c) { return of(c).take(); };
    cq.end_poll = [](ibv_cq_ex* c) { of(c).poll_lock.unlock(); };
    cq.read_qp_num = [](ibv_cq_ex* c) { return of(c).shown.qp_num; };
    cq.read_opcode = [](ibv_cq_ex* c) { return of(c).shown.opcode; };
    cq.read_byte_len = [](ibv_cq_ex* c) { return of(c).shown.byte_len; };
  }
  FakeDevice(const FakeDevice&) = delete;
  ibv_context* context() { return &extended.context; }

 private:
  static FakeDevice& of(ibv_qp_ex* q) { return *static_cast<FakeDevice*>(q->qp_base.qp_context); }
  static FakeDevice& of(ibv_cq_ex* c) { return *static_cast<FakeDevice*>(c->cq_context); }

  ibv_send_wr& begin(ibv_wr_opcode opcode) {
    pieces.push_back({0, 0, 1});
    ibv_send_wr& wr = batch.emplace_back();
    wr.wr_id = qp.wr_id;
    wr.send_flags = qp.wr_flags;
    wr.opcode = opcode;
    return wr;
  }
  void end_batch() {
    batch.clear();
    pieces.clear();
    post_lock.unlock();
  }
  void execute(const ibv_send_wr& wr, const ibv_sge& piece) {
    const std::lock_guard guard(data_lock);
    posted.push_back(wr);
    data.push_back(piece.addr);
    ibv_wc wc{};
    wc.wr_id = wr.wr_id;
    wc.qp_num = qp.qp_base.qp_num;
    wc.opcode = IBV_WC_RDMA_WRITE;
    wc.byte_len = piece.length;
    const bool nowhere = piece.addr == 0 && piece.length > 0;
    wc.status = failed ? IBV_WC_WR_FLUSH_ERR : nowhere ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
    failed = failed || nowhere;
    if (wc.status != IBV_WC_SUCCESS || (wr.send_flags & IBV_SEND_SIGNALED) != 0) completions.push_back(wc);
  }
  int take() {
    const std::lock_guard guard(data_lock);
    if (completions.empty()) return ENOENT;
    shown = completions.front();
    completions.pop_front();
    cq.wr_id = shown.wr_id;
    cq.status = shown.status;
    return 0;
  }
  static int modify_qp(ibv_qp* q, ibv_qp_attr* attributes, int mask) {
    auto* fake = static_cast<FakeDevice*>(q->qp_context);
    if (fake->in_modify) fake->in_modify();
    if ((mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RTS && fake->state == IBV_QPS_ERR)
      return EINVAL;
    if ((mask & IBV_QP_STATE) != 0) fake->state = attributes->qp_state;
    if (fake->modified) fake->modified();
    return 0;
  }
  static int query_qp(ibv_qp* q, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
    attributes->qp_state = attributes->cur_qp_state = static_cast<FakeDevice*>(q->qp_context)->state;
    return 0;
  }
  static int post_send(ibv_qp* q, ibv_send_wr* wr, ibv_send_wr** bad) {
    auto* fake = static_cast<FakeDevice*>(q->qp_context);
    for (; wr != nullptr; wr = wr->next) {
      if (fake->is_full()) {
        *bad = wr;
        return ENOMEM;
      }
      ibv_sge piece = wr->num_sge > 0 ? wr->sg_list[0] : ibv_sge{};
      if ((wr->send_flags & IBV_SEND_INLINE) != 0 && piece.length >= sizeof(uint64_t))
        piece.addr = *reinterpret_cast<const uint64_t*>(piece.addr);
      fake->execute(*wr, piece);
    }
    return 0;
  }
  bool is_full() {
    const std::lock_guard guard(data_lock);
    return completions.size() >= room;
  }
  static int poll_cq(ibv_cq* c, int entries, ibv_wc* wcs) {
    auto* fake = static_cast<FakeDevice*>(c->cq_context);
    const std::scoped_lock guard(fake->poll_lock, fake->data_lock);
    int count = 0;
    for (; count < entries && !fake->completions.empty(); count++) {
      wcs[count] = fake->completions.front();
      fake->completions.pop_front();
    }
    return count;
  }
};

}  // namespace faultinject::testing
