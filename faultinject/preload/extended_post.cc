// Posts through ibv_qp_ex. A batch, from wr_start to wr_complete, is either the provider's or ours from its
// begin to its end, whatever begins or heals meanwhile.
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <deque>
#include <vector>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/pointer_table.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

struct Recorded {
  ibv_send_wr wr{};
  std::vector<ibv_sge> list;
  std::vector<uint8_t> bytes;  // inline data
};

struct ExtendedQp {
  const void* key = nullptr;
  Slot* slot = nullptr;
  ibv_qp_ex real{};  // the provider's function pointers
  std::mutex
      mutex;  // held while a batch of ours is written down, and while wr_id and wr_flags are in our use
  bool ours = false;  // the batch that is under way
  std::deque<Recorded> batch;
};

namespace {

// Never destroyed: the program may use verbs until its very end.
PointerTable<ExtendedQp, 32768>& g_qps = *std::make_unique<PointerTable<ExtendedQp, 32768>>().release();

ExtendedQp& state(ibv_qp_ex* qp) { return *g_qps.find(qp); }

void wr_start(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  if (mine.slot->slow.load(std::memory_order_relaxed) == 0 || mine.slot->context.load() == nullptr) [[likely]]
    return mine.real.wr_start(qp);
  mine.mutex.lock();
  mine.ours = true;
  mine.batch.clear();
}

int wr_complete(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_complete(qp);
  for (size_t i = 0; i < mine.batch.size(); i++) {
    Recorded& each = mine.batch[i];
    each.wr.next = i + 1 < mine.batch.size() ? &mine.batch[i + 1].wr : nullptr;
    if ((each.wr.send_flags & IBV_SEND_INLINE) != 0)
      each.list.assign(1, ibv_sge{uint64_t(each.bytes.data()), uint32_t(each.bytes.size()), 0});
    each.wr.sg_list = each.list.data();
    each.wr.num_sge = int(each.list.size());
  }
  const std::deque<Recorded> batch = std::move(mine.batch);  // its elements stay where they are
  mine.batch.clear();
  mine.ours = false;
  mine.mutex.unlock();  // before any context's mutex
  Context* context = mine.slot->context.load(std::memory_order_acquire);
  if (batch.empty() || context == nullptr) return 0;
  ibv_send_wr* bad = nullptr;
  return context->post_send(&qp->qp_base, const_cast<ibv_send_wr*>(&batch.front().wr), &bad);
}

void wr_abort(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) return mine.real.wr_abort(qp);
  mine.batch.clear();
  mine.ours = false;
  mine.mutex.unlock();
}

// A new WR in the batch of ours, or nullptr when the batch is the provider's.
ibv_send_wr* begin(ExtendedQp& mine, ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  if (!mine.ours) [[likely]]
    return nullptr;
  ibv_send_wr& wr = mine.batch.emplace_back().wr;
  wr.wr_id = qp->wr_id;
  wr.send_flags = qp->wr_flags & ~unsigned(IBV_SEND_INLINE);
  wr.opcode = opcode;
  return &wr;
}

void to_memory(ibv_send_wr& wr, uint32_t rkey, uint64_t address) {
  wr.wr.rdma.rkey = rkey;
  wr.wr.rdma.remote_addr = address;
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_RDMA_WRITE);
  if (wr == nullptr) return mine.real.wr_rdma_write(qp, rkey, address);
  to_memory(*wr, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  if (wr == nullptr) return mine.real.wr_rdma_write_imm(qp, rkey, address, imm);
  to_memory(*wr, rkey, address);
  wr->imm_data = imm;
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_RDMA_READ);
  if (wr == nullptr) return mine.real.wr_rdma_read(qp, rkey, address);
  to_memory(*wr, rkey, address);
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  if (wr == nullptr) return mine.real.wr_atomic_cmp_swp(qp, rkey, address, compare, swap);
  wr->wr.atomic = {address, compare, swap, rkey};
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  if (wr == nullptr) return mine.real.wr_atomic_fetch_add(qp, rkey, address, add);
  wr->wr.atomic = {address, add, 0, rkey};
}
void wr_send(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  if (begin(mine, qp, IBV_WR_SEND) == nullptr) mine.real.wr_send(qp);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_SEND_WITH_IMM);
  if (wr == nullptr) return mine.real.wr_send_imm(qp, imm);
  wr->imm_data = imm;
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_SEND_WITH_INV);
  if (wr == nullptr) return mine.real.wr_send_inv(qp, rkey);
  wr->invalidate_rkey = rkey;
}
void wr_send_tso(ibv_qp_ex* qp, void* header, uint16_t size, uint16_t mss) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_TSO);
  if (wr == nullptr) return mine.real.wr_send_tso(qp, header, size, mss);
  wr->tso = {header, size, mss};
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_LOCAL_INV);
  if (wr == nullptr) return mine.real.wr_local_inv(qp, rkey);
  wr->invalidate_rkey = rkey;
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* window, uint32_t rkey, const ibv_mw_bind_info* info) {
  ExtendedQp& mine = state(qp);
  ibv_send_wr* wr = begin(mine, qp, IBV_WR_BIND_MW);
  if (wr == nullptr) return mine.real.wr_bind_mw(qp, window, rkey, info);
  wr->bind_mw.mw = window;
  wr->bind_mw.rkey = rkey;
  wr->bind_mw.bind_info = *info;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t number, uint32_t key) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_ud_addr(qp, ah, number, key);
  mine.batch.back().wr.wr.ud = {ah, number, key};
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t number) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_xrc_srqn(qp, number);
  mine.batch.back().wr.qp_type.xrc.remote_srqn = number;
}
void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_sge_list(qp, count, list);
  mine.batch.back().list.assign(list, list + count);
}
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_sge(qp, lkey, address, length);
  mine.batch.back().list.assign(1, ibv_sge{address, length, lkey});
}
void append(Recorded& recorded, const void* data, size_t length) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  recorded.bytes.insert(recorded.bytes.end(), bytes, bytes + length);
  recorded.wr.send_flags |= IBV_SEND_INLINE;
}
void wr_set_inline_data(ibv_qp_ex* qp, void* data, size_t length) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_inline_data(qp, data, length);
  append(mine.batch.back(), data, length);
}
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  ExtendedQp& mine = state(qp);
  if (!mine.ours) [[likely]]
    return mine.real.wr_set_inline_data_list(qp, count, list);
  for (size_t i = 0; i < count; i++) append(mine.batch.back(), list[i].addr, list[i].length);
}

// What the provider left out stays out: it does not serve it on this queue pair.
template <typename Function>
void replace(Function*& pointer, Function* by) {
  if (pointer != nullptr) pointer = by;
}

void put_data(const ibv_qp_ex& real, ibv_qp_ex* qp, const ibv_send_wr& wr) {
  const auto count = size_t(wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    std::vector<ibv_data_buf> list;
    for (size_t i = 0; i < count; i++)
      list.push_back({reinterpret_cast<void*>(wr.sg_list[i].addr), wr.sg_list[i].length});
    if (list.size() == 1) return real.wr_set_inline_data(qp, list[0].addr, list[0].length);
    return real.wr_set_inline_data_list(qp, list.size(), list.data());
  }
  if (count == 1) return real.wr_set_sge(qp, wr.sg_list[0].lkey, wr.sg_list[0].addr, wr.sg_list[0].length);
  real.wr_set_sge_list(qp, count, wr.sg_list);
}

// False: an operation that has no data.
bool put_operation(const ibv_qp_ex& real, ibv_qp_ex* qp, const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      real.wr_rdma_write(qp, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
      return true;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      real.wr_rdma_write_imm(qp, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, wr.imm_data);
      return true;
    case IBV_WR_RDMA_READ:
      real.wr_rdma_read(qp, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
      return true;
    case IBV_WR_SEND:
      real.wr_send(qp);
      return true;
    case IBV_WR_SEND_WITH_IMM:
      real.wr_send_imm(qp, wr.imm_data);
      return true;
    case IBV_WR_SEND_WITH_INV:
      real.wr_send_inv(qp, wr.invalidate_rkey);
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      real.wr_atomic_cmp_swp(qp, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, wr.wr.atomic.compare_add,
                             wr.wr.atomic.swap);
      return true;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      real.wr_atomic_fetch_add(qp, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, wr.wr.atomic.compare_add);
      return true;
    case IBV_WR_TSO:
      real.wr_send_tso(qp, wr.tso.hdr, wr.tso.hdr_sz, wr.tso.mss);
      return true;
    case IBV_WR_BIND_MW:
      real.wr_bind_mw(qp, wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info);
      return false;
    default:
      real.wr_local_inv(qp, wr.invalidate_rkey);
      return false;
  }
}

// Can the provider's functions of this queue pair carry that WR?
bool serves(const ibv_qp_ex& real, const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      return real.wr_rdma_write != nullptr;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return real.wr_rdma_write_imm != nullptr;
    case IBV_WR_RDMA_READ:
      return real.wr_rdma_read != nullptr;
    case IBV_WR_SEND:
      return real.wr_send != nullptr;
    case IBV_WR_SEND_WITH_IMM:
      return real.wr_send_imm != nullptr;
    case IBV_WR_SEND_WITH_INV:
      return real.wr_send_inv != nullptr;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return real.wr_atomic_cmp_swp != nullptr;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return real.wr_atomic_fetch_add != nullptr;
    case IBV_WR_TSO:
      return real.wr_send_tso != nullptr;
    case IBV_WR_BIND_MW:
      return real.wr_bind_mw != nullptr;
    case IBV_WR_LOCAL_INV:
      return real.wr_local_inv != nullptr;
    default:
      return false;
  }
}

}  // namespace

void extended_adopt(ibv_qp_ex* qp, Slot& slot) {
  auto mine = std::make_shared<ExtendedQp>();
  mine->key = qp;
  mine->slot = &slot;
  memcpy(&mine->real, qp, sizeof *qp);
  if (!g_qps.insert(std::move(mine))) return;  // too many: its work passes by unseen
  replace(qp->wr_start, &wr_start);
  replace(qp->wr_complete, &wr_complete);
  replace(qp->wr_abort, &wr_abort);
  replace(qp->wr_rdma_write, &wr_rdma_write);
  replace(qp->wr_rdma_write_imm, &wr_rdma_write_imm);
  replace(qp->wr_rdma_read, &wr_rdma_read);
  replace(qp->wr_atomic_cmp_swp, &wr_atomic_cmp_swp);
  replace(qp->wr_atomic_fetch_add, &wr_atomic_fetch_add);
  replace(qp->wr_send, &wr_send);
  replace(qp->wr_send_imm, &wr_send_imm);
  replace(qp->wr_send_inv, &wr_send_inv);
  replace(qp->wr_send_tso, &wr_send_tso);
  replace(qp->wr_local_inv, &wr_local_inv);
  replace(qp->wr_bind_mw, &wr_bind_mw);
  replace(qp->wr_set_ud_addr, &wr_set_ud_addr);
  replace(qp->wr_set_xrc_srqn, &wr_set_xrc_srqn);
  replace(qp->wr_set_sge, &wr_set_sge);
  replace(qp->wr_set_sge_list, &wr_set_sge_list);
  replace(qp->wr_set_inline_data, &wr_set_inline_data);
  replace(qp->wr_set_inline_data_list, &wr_set_inline_data_list);
}

std::shared_ptr<ExtendedQp> extended_take(const ibv_qp* qp) { return g_qps.take(qp); }

void extended_put_back(const std::shared_ptr<ExtendedQp>& qp) {
  if (qp != nullptr) g_qps.insert(qp);
}

int extended_post(ibv_qp* pointer, const ibv_send_wr& wr, bool& known) {
  // ibv_qp is the first member of ibv_qp_ex.
  ExtendedQp* mine = g_qps.find(pointer);
  known = mine != nullptr && serves(mine->real, wr);
  if (!known) return 0;
  auto* qp = reinterpret_cast<ibv_qp_ex*>(pointer);
  // The program's batch is over in a moment, but it may be anywhere in it; and we hold the context's mutex.
  for (int i = 0; !mine->mutex.try_lock(); i++) {
    if (i == 1000) return ENOMEM;
    sched_yield();
  }
  mine->real.wr_start(qp);
  const uint64_t wr_id = qp->wr_id;
  const unsigned flags = qp->wr_flags;
  qp->wr_id = wr.wr_id;
  qp->wr_flags = wr.send_flags & ~unsigned(IBV_SEND_INLINE);
  if (put_operation(mine->real, qp, wr)) {
    if (pointer->qp_type == IBV_QPT_UD)
      mine->real.wr_set_ud_addr(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
    if (pointer->qp_type == IBV_QPT_XRC_SEND) mine->real.wr_set_xrc_srqn(qp, wr.qp_type.xrc.remote_srqn);
    put_data(mine->real, qp, wr);
  }
  const int rc = mine->real.wr_complete(qp);
  qp->wr_id = wr_id;
  qp->wr_flags = flags;
  mine->mutex.unlock();
  return rc;
}

}  // namespace faultinject
