// SPDX-License-Identifier: Apache-2.0
// Posts through ibv_qp_ex. A batch, from wr_start to wr_complete, is either the provider's or ours from its
// begin to its end, whatever begins or heals meanwhile. Only wr_start is ours all the time: the other
// functions that the program finds in its queue pair are the provider's own, but while a batch of ours is
// written down. Such a batch holds the provider's own lock (an empty batch of the provider's, given up in the
// end), so no other thread is in the middle of one when the functions change.
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/opcodes.h"
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
  ibv_qp_ex real{};       // the provider's function pointers
  ibv_qp_ex recording{};  // those of a batch of ours
  ibv_qp_ex before{};     // what such a batch found
  // Held while a batch of ours is written down, and while wr_id and wr_flags are in our use; taken before the
  // provider's lock.
  std::mutex mutex;
  std::deque<Recorded> batch;
  int unrecorded = 0;  // the errno for the batch where an operation cannot be written down
};

namespace {

// Never destroyed: the program may use verbs until its very end.
PointerTable<ExtendedQp>& g_qps = *std::make_unique<PointerTable<ExtendedQp>>().release();

ExtendedQp& state(ibv_qp_ex* qp) { return *g_qps.find(qp); }

// All functions but wr_start, which other threads may be reading.
void copy_functions(ibv_qp_ex& to, const ibv_qp_ex& from) {
  constexpr size_t kFirst = offsetof(ibv_qp_ex, wr_atomic_cmp_swp), kStart = offsetof(ibv_qp_ex, wr_start),
                   kBehind = offsetof(ibv_qp_ex, wr_complete);
  static_assert(kFirst < kStart && kStart < kBehind && kBehind < offsetof(ibv_qp_ex, wr_abort));
  auto* bytes = reinterpret_cast<char*>(&to);
  const auto* source = reinterpret_cast<const char*>(&from);
  memcpy(bytes + kFirst, source + kFirst, kStart - kFirst);
  memcpy(bytes + kBehind, source + kBehind, sizeof from - kBehind);
}

void start_slowly(ExtendedQp& mine, ibv_qp_ex* qp) {
  if (mine.slot->context.load(std::memory_order_acquire) == nullptr) return mine.real.wr_start(qp);
  mine.mutex.lock();
  mine.real.wr_start(qp);
  copy_functions(mine.before, *qp);
  copy_functions(*qp, mine.recording);
}

// One for each slot, which knows the provider's function; and one for a queue pair that has another.
template <unsigned N>
void wr_start(ibv_qp_ex* qp) {
  Slot& slot = g_slots[N];
  if (slot.slow.load(std::memory_order_relaxed) == 0) [[likely]]
    return slot.wr_start.load(std::memory_order_relaxed)(qp);
  start_slowly(state(qp), qp);
}
void wr_start_of_its_own(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  if (mine.slot->slow.load(std::memory_order_relaxed) == 0) [[likely]]
    return mine.real.wr_start(qp);
  start_slowly(mine, qp);
}

template <unsigned... N>
constexpr std::array<decltype(ibv_qp_ex::wr_start), kSlots> starts(std::integer_sequence<unsigned, N...>) {
  return {wr_start<N>...};
}
constexpr auto kStarts = starts(std::make_integer_sequence<unsigned, kSlots>());

std::deque<Recorded> end_batch(ExtendedQp& mine, ibv_qp_ex* qp) {
  std::deque<Recorded> batch = std::move(mine.batch);  // its elements stay where they are
  mine.batch.clear();
  copy_functions(*qp, mine.before);
  mine.real.wr_abort(qp);
  mine.mutex.unlock();  // before any context's mutex
  return batch;
}

int wr_complete(ibv_qp_ex* qp) {
  ExtendedQp& mine = state(qp);
  const int unrecorded = std::exchange(mine.unrecorded, 0);
  std::deque<Recorded> batch = end_batch(mine, qp);
  if (unrecorded != 0) return unrecorded;
  for (size_t i = 0; i < batch.size(); i++) {
    Recorded& each = batch[i];
    each.wr.next = i + 1 < batch.size() ? &batch[i + 1].wr : nullptr;
    if ((each.wr.send_flags & IBV_SEND_INLINE) != 0)
      each.list.assign(1, ibv_sge{uint64_t(each.bytes.data()), uint32_t(each.bytes.size()), 0});
    each.wr.sg_list = each.list.data();
    each.wr.num_sge = int(each.list.size());
  }
  Context* context = mine.slot->context.load(std::memory_order_acquire);
  if (batch.empty() || context == nullptr) return 0;
  ibv_send_wr* bad = nullptr;
  return context->post_send(&qp->qp_base, &batch.front().wr, &bad);
}

void wr_abort(ibv_qp_ex* qp) {
  state(qp).unrecorded = 0;
  end_batch(state(qp), qp);
}

// A new WR in the batch.
ibv_send_wr& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  ibv_send_wr& wr = state(qp).batch.emplace_back().wr;
  wr.wr_id = qp->wr_id;
  wr.send_flags = qp->wr_flags & ~unsigned(IBV_SEND_INLINE);
  wr.opcode = opcode;
  return wr;
}

void to_memory(ibv_send_wr& wr, uint32_t rkey, uint64_t address) {
  wr.wr.rdma.rkey = rkey;
  wr.wr.rdma.remote_addr = address;
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  ibv_send_wr& wr = begin(qp, IBV_WR_RDMA_WRITE);
  to_memory(wr, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
  ibv_send_wr& wr = begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  to_memory(wr, rkey, address);
  wr.imm_data = imm;
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  ibv_send_wr& wr = begin(qp, IBV_WR_RDMA_READ);
  to_memory(wr, rkey, address);
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  ibv_send_wr& wr = begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  wr.wr.atomic = {address, compare, swap, rkey};
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  ibv_send_wr& wr = begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  wr.wr.atomic = {address, add, 0, rkey};
}
void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
  ibv_send_wr& wr = begin(qp, IBV_WR_SEND_WITH_IMM);
  wr.imm_data = imm;
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  ibv_send_wr& wr = begin(qp, IBV_WR_SEND_WITH_INV);
  wr.invalidate_rkey = rkey;
}
void wr_send_tso(ibv_qp_ex* qp, void* header, uint16_t size, uint16_t mss) {
  ibv_send_wr& wr = begin(qp, IBV_WR_TSO);
  wr.tso = {header, size, mss};
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  ibv_send_wr& wr = begin(qp, IBV_WR_LOCAL_INV);
  wr.invalidate_rkey = rkey;
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* window, uint32_t rkey, const ibv_mw_bind_info* info) {
  ibv_send_wr& wr = begin(qp, IBV_WR_BIND_MW);
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = *info;
}

void append(Recorded& recorded, const void* data, size_t length) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  recorded.bytes.insert(recorded.bytes.end(), bytes, bytes + length);
  recorded.wr.send_flags |= IBV_SEND_INLINE;
}
void wr_atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* data) {
  ibv_send_wr& wr = begin(qp, kWrAtomicWrite);
  to_memory(wr, rkey, address);
  append(state(qp).batch.back(), data, kAtomicWriteBytes);
}
// An ibv_send_wr cannot say what to flush, and how. So the batch fails, where the provider's function would
// write into a batch that is given up.
void wr_flush(ibv_qp_ex* qp, uint32_t, uint64_t, size_t, uint8_t, uint8_t) {
  begin(qp, IBV_WR_SEND);  // the setters that follow need a work request
  state(qp).unrecorded = EOPNOTSUPP;
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t number, uint32_t key) {
  state(qp).batch.back().wr.wr.ud = {ah, number, key};
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t number) {
  state(qp).batch.back().wr.qp_type.xrc.remote_srqn = number;
}
void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  state(qp).batch.back().list.assign(list, list + count);
}
void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  state(qp).batch.back().list.assign(1, ibv_sge{address, length, lkey});
}
void wr_set_inline_data(ibv_qp_ex* qp, void* data, size_t length) {
  append(state(qp).batch.back(), data, length);
}
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  for (size_t i = 0; i < count; i++) append(state(qp).batch.back(), list[i].addr, list[i].length);
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

// False: an operation that has no data, or has been given it.
bool put_operation(const ibv_qp_ex& real, ibv_qp_ex* qp, const ibv_send_wr& wr) {
  if (wr.opcode == kWrAtomicWrite) {
    with_atomic_write(real, [&](auto put) {
      put(qp, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, reinterpret_cast<const void*>(wr.sg_list->addr));
    });
    return false;
  }
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
  if (wr.opcode == kWrAtomicWrite) {
    bool served = false;
    with_atomic_write(real, [&](auto put) { served = put != nullptr; });
    return served && (wr.send_flags & IBV_SEND_INLINE) != 0 && wr.num_sge == 1 &&
           wr.sg_list->length == kAtomicWriteBytes;
  }
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
  mine->recording = mine->real;
  ibv_qp_ex& ours = mine->recording;
  replace(ours.wr_complete, &wr_complete);
  replace(ours.wr_abort, &wr_abort);
  replace(ours.wr_rdma_write, &wr_rdma_write);
  replace(ours.wr_rdma_write_imm, &wr_rdma_write_imm);
  replace(ours.wr_rdma_read, &wr_rdma_read);
  replace(ours.wr_atomic_cmp_swp, &wr_atomic_cmp_swp);
  replace(ours.wr_atomic_fetch_add, &wr_atomic_fetch_add);
  with_atomic_write(ours, [](auto& pointer) { replace(pointer, &wr_atomic_write); });
  with_flush(ours, [](auto& pointer) { replace(pointer, &wr_flush); });
  replace(ours.wr_send, &wr_send);
  replace(ours.wr_send_imm, &wr_send_imm);
  replace(ours.wr_send_inv, &wr_send_inv);
  replace(ours.wr_send_tso, &wr_send_tso);
  replace(ours.wr_local_inv, &wr_local_inv);
  replace(ours.wr_bind_mw, &wr_bind_mw);
  replace(ours.wr_set_ud_addr, &wr_set_ud_addr);
  replace(ours.wr_set_xrc_srqn, &wr_set_xrc_srqn);
  replace(ours.wr_set_sge, &wr_set_sge);
  replace(ours.wr_set_sge_list, &wr_set_sge_list);
  replace(ours.wr_set_inline_data, &wr_set_inline_data);
  replace(ours.wr_set_inline_data_list, &wr_set_inline_data_list);
  if (qp->wr_start == nullptr) return;
  g_qps.insert(std::move(mine));
  qp->wr_start =
      is_the_slots(slot.wr_start, qp->wr_start) ? kStarts[slot_number(slot)] : &wr_start_of_its_own;
}

std::shared_ptr<ExtendedQp> extended_take(const ibv_qp* qp) { return g_qps.take(qp); }

void extended_lock_qps() { g_qps.lock(); }
void extended_unlock_qps() { g_qps.unlock(); }

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
  qp->wr_id = wr_id;  // read by the operation already, and the program's own once the provider's lock is free
  qp->wr_flags = flags;
  const int rc = mine->real.wr_complete(qp);
  mine->mutex.unlock();
  return rc;
}

}  // namespace faultinject
