// Polls through ibv_cq_ex. A run, from start_poll to end_poll, begins as the provider's or as ours; one of
// the provider's that fetched something while a fault began becomes ours on the spot, as a fast poll does.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/pointer_table.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

struct ExtendedCq {
  const void* key = nullptr;
  Slot* slot = nullptr;
  ibv_cq_ex real{};  // the provider's function pointers
  std::mutex mutex;  // held during a run of ours
  std::atomic<bool> ours{false};
  ibv_wc wc{};  // what it shows now
};

namespace {

// Never destroyed: the program may use verbs until its very end.
PointerTable<ExtendedCq, 32768>& g_cqs = *std::make_unique<PointerTable<ExtendedCq, 32768>>().release();

ExtendedCq& state(ibv_cq_ex* cq) { return *g_cqs.find(cq); }

void show(ExtendedCq& mine, ibv_cq_ex* cq, const ibv_wc& wc) {
  mine.wc = wc;
  cq->wr_id = wc.wr_id;
  cq->status = wc.status;
}

// The completion that the provider shows now, as far as the program asked for its parts.
ibv_wc read_real(const ibv_cq_ex& real, ibv_cq_ex* cq) {
  ibv_wc wc{};
  wc.wr_id = cq->wr_id;
  wc.status = cq->status;
  if (real.read_qp_num != nullptr) wc.qp_num = real.read_qp_num(cq);
  if (real.read_vendor_err != nullptr) wc.vendor_err = real.read_vendor_err(cq);
  if (real.read_opcode != nullptr) wc.opcode = real.read_opcode(cq);
  if (wc.status != IBV_WC_SUCCESS) return wc;
  if (real.read_byte_len != nullptr) wc.byte_len = real.read_byte_len(cq);
  if (real.read_wc_flags != nullptr) wc.wc_flags = real.read_wc_flags(cq);
  if (real.read_imm_data != nullptr) wc.imm_data = real.read_imm_data(cq);
  if (real.read_src_qp != nullptr) wc.src_qp = real.read_src_qp(cq);
  if (real.read_slid != nullptr) wc.slid = uint16_t(real.read_slid(cq));
  if (real.read_sl != nullptr) wc.sl = real.read_sl(cq);
  if (real.read_dlid_path_bits != nullptr) wc.dlid_path_bits = real.read_dlid_path_bits(cq);
  return wc;
}

// The next completion for a run of ours. 0, ENOENT, or what a fault refuses with.
int fetch(ExtendedCq& mine, ibv_cq_ex* cq, Context& context) {
  ibv_wc wc{};
  const int count = context.poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc);
  if (count < 0) return -count;
  if (count == 0) return ENOENT;
  show(mine, cq, wc);
  return 0;
}

// A fault began while the provider fetched. Its run ends; what it fetched goes through the fault's hands.
int take_over(ExtendedCq& mine, ibv_cq_ex* cq, Context& context) {
  ibv_wc wc = read_real(mine.real, cq);
  mine.real.end_poll(cq);
  mine.mutex.lock();
  mine.ours.store(true, std::memory_order_relaxed);
  if (context.review(ibv_cq_ex_to_cq(cq), 1, &wc) == 0) return fetch(mine, cq, context);
  show(mine, cq, wc);
  return 0;
}

void end_ours(ExtendedCq& mine) {
  mine.ours.store(false, std::memory_order_relaxed);
  mine.mutex.unlock();
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  ExtendedCq& mine = state(cq);
  int rc = 0;
  if (mine.slot->slow.load(std::memory_order_relaxed) == 0) [[likely]] {
    rc = mine.real.start_poll(cq, attributes);
    if (rc != 0 || mine.slot->slow.load(std::memory_order_acquire) == 0) [[likely]]
      return rc;
    Context* context = mine.slot->context.load(std::memory_order_acquire);
    if (context == nullptr) return rc;
    rc = take_over(mine, cq, *context);
  } else {
    Context* context = mine.slot->context.load(std::memory_order_acquire);
    if (context == nullptr) return mine.real.start_poll(cq, attributes);
    mine.mutex.lock();
    mine.ours.store(true, std::memory_order_relaxed);
    rc = fetch(mine, cq, *context);
  }
  if (rc != 0) end_ours(mine);  // then the program calls no end_poll
  return rc;
}

int next_poll(ibv_cq_ex* cq) {
  ExtendedCq& mine = state(cq);
  Context* context = nullptr;
  if (mine.ours.load(std::memory_order_relaxed)) {
    context = mine.slot->context.load(std::memory_order_acquire);
    return context != nullptr ? fetch(mine, cq, *context) : ENOENT;
  }
  const int rc = mine.real.next_poll(cq);
  if (rc != 0 || mine.slot->slow.load(std::memory_order_acquire) == 0) [[likely]]
    return rc;
  context = mine.slot->context.load(std::memory_order_acquire);
  return context != nullptr ? take_over(mine, cq, *context) : rc;
}

void end_poll(ibv_cq_ex* cq) {
  ExtendedCq& mine = state(cq);
  if (!mine.ours.load(std::memory_order_relaxed)) [[likely]]
    return mine.real.end_poll(cq);
  end_ours(mine);
}

bool is_ours(const ExtendedCq& mine) { return mine.ours.load(std::memory_order_relaxed); }

// A part of the completion that is shown: ours, or the provider's.
#define FAULTINJECT_READ(type, name, value)                  \
  type name(ibv_cq_ex* cq) {                                 \
    ExtendedCq& mine = state(cq);                            \
    return is_ours(mine) ? type(value) : mine.real.name(cq); \
  }
FAULTINJECT_READ(ibv_wc_opcode, read_opcode, mine.wc.opcode)
FAULTINJECT_READ(uint32_t, read_vendor_err, mine.wc.vendor_err)
FAULTINJECT_READ(uint32_t, read_byte_len, mine.wc.byte_len)
FAULTINJECT_READ(__be32, read_imm_data, mine.wc.imm_data)
FAULTINJECT_READ(uint32_t, read_qp_num, mine.wc.qp_num)
FAULTINJECT_READ(uint32_t, read_src_qp, mine.wc.src_qp)
FAULTINJECT_READ(unsigned, read_wc_flags, mine.wc.wc_flags)
FAULTINJECT_READ(uint32_t, read_slid, mine.wc.slid)
FAULTINJECT_READ(uint8_t, read_sl, mine.wc.sl)
FAULTINJECT_READ(uint8_t, read_dlid_path_bits, mine.wc.dlid_path_bits)
// An ibv_wc has none of these: the time is that of the read.
FAULTINJECT_READ(uint64_t, read_completion_ts, monotonic_ns())
FAULTINJECT_READ(uint16_t, read_cvlan, 0)
FAULTINJECT_READ(uint32_t, read_flow_tag, 0)
#undef FAULTINJECT_READ

uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  ExtendedCq& mine = state(cq);
  if (!is_ours(mine)) return mine.real.read_completion_wallclock_ns(cq);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  ExtendedCq& mine = state(cq);
  if (is_ours(mine)) {
    *info = {};
  } else {
    mine.real.read_tm_info(cq, info);
  }
}

template <typename Function>
void replace(Function*& pointer, Function* by) {
  if (pointer != nullptr) pointer = by;
}

}  // namespace

void extended_adopt(ibv_cq_ex* cq, Slot& slot) {
  auto mine = std::make_shared<ExtendedCq>();
  mine->key = cq;
  mine->slot = &slot;
  memcpy(&mine->real, cq, sizeof *cq);
  if (!g_cqs.insert(std::move(mine))) return;
  replace(cq->start_poll, &start_poll);
  replace(cq->next_poll, &next_poll);
  replace(cq->end_poll, &end_poll);
  replace(cq->read_opcode, &read_opcode);
  replace(cq->read_vendor_err, &read_vendor_err);
  replace(cq->read_byte_len, &read_byte_len);
  replace(cq->read_imm_data, &read_imm_data);
  replace(cq->read_qp_num, &read_qp_num);
  replace(cq->read_src_qp, &read_src_qp);
  replace(cq->read_wc_flags, &read_wc_flags);
  replace(cq->read_slid, &read_slid);
  replace(cq->read_sl, &read_sl);
  replace(cq->read_dlid_path_bits, &read_dlid_path_bits);
  replace(cq->read_completion_ts, &read_completion_ts);
  replace(cq->read_cvlan, &read_cvlan);
  replace(cq->read_flow_tag, &read_flow_tag);
  replace(cq->read_tm_info, &read_tm_info);
  replace(cq->read_completion_wallclock_ns, &read_completion_wallclock_ns);
}

std::shared_ptr<ExtendedCq> extended_take(const ibv_cq* cq) { return g_cqs.take(cq); }

void extended_put_back(const std::shared_ptr<ExtendedCq>& cq) {
  if (cq != nullptr) g_cqs.insert(cq);
}

}  // namespace faultinject
