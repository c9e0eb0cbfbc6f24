// SPDX-License-Identifier: Apache-2.0
// Polls through ibv_cq_ex. A run, from start_poll to end_poll, begins as the provider's or as ours; one of
// the provider's that fetched something while a fault began becomes ours on the spot, as a fast poll does.
// Only start_poll and next_poll are ours all the time: the other functions that the program finds in its
// completion queue are the provider's own, but during a run of ours. What a run shows lies in the completion
// queue itself, so there is one at a time: while one of ours is under way the gate is shut (slots.h), and
// before the first behind a gate that was open, all runs of the provider's have ended (run_alone).
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <array>
#include <utility>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/pointer_table.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

struct ExtendedCq {
  const void* key = nullptr;
  Slot* slot = nullptr;
  ibv_cq_ex real{};    // the provider's function pointers
  ibv_cq_ex ours{};    // those of a run of ours
  ibv_cq_ex before{};  // what such a run found
  std::mutex mutex;    // held during a run of ours
  uint64_t alone = 0;  // the slot's `openings` for which no run of the provider's is under way
  ibv_wc wc{};         // what a run of ours shows now
};

namespace {

// Never destroyed: the program may use verbs until its very end.
PointerTable<ExtendedCq>& g_cqs = *std::make_unique<PointerTable<ExtendedCq>>().release();

ExtendedCq& state(ibv_cq_ex* cq) {
  ExtendedCq* known = g_cqs.find(cq);
  if (known == nullptr) __builtin_unreachable();  // its functions are ours, so it was adopted
  return *known;
}

// All functions but start_poll, which other threads may be reading.
void copy_functions(ibv_cq_ex& to, const ibv_cq_ex& from) {
  constexpr size_t kFirst = offsetof(ibv_cq_ex, next_poll);
  static_assert(offsetof(ibv_cq_ex, start_poll) < kFirst);
  memcpy(reinterpret_cast<char*>(&to) + kFirst, reinterpret_cast<const char*>(&from) + kFirst,
         sizeof from - kFirst);
}

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

// Another thread that found the gate open may be in the middle of a run of the provider's still. One of our
// own begins when all others have ended; what it fetches is for the poll that follows.
void run_alone(ExtendedCq& mine, ibv_cq_ex* cq, Context& context) {
  const uint64_t openings = mine.slot->openings.load();
  if (mine.alone == openings) return;
  ibv_poll_cq_attr attributes{};
  if (mine.real.start_poll(cq, &attributes) == 0) {
    const ibv_wc wc = read_real(mine.real, cq);
    mine.real.end_poll(cq);
    context.keep(ibv_cq_ex_to_cq(cq), wc, true);
  }
  mine.alone = openings;
}

void end_ours(ExtendedCq& mine, ibv_cq_ex* cq) {
  copy_functions(*cq, mine.before);
  mine.slot->run_ends();
  mine.mutex.unlock();
}

// 0, and a run of ours is under way; or there is none.
int start_ours(ExtendedCq& mine, ibv_cq_ex* cq, Context& context) {
  mine.mutex.lock();
  mine.slot->run_begins();
  run_alone(mine, cq, context);
  copy_functions(mine.before, *cq);
  copy_functions(*cq, mine.ours);
  const int rc = fetch(mine, cq, context);
  if (rc != 0) end_ours(mine, cq);  // then the program calls no end_poll
  return rc;
}

// A fault began while the provider fetched. Its run ends; what it fetched goes through the fault's hands.
void give_up(ExtendedCq& mine, ibv_cq_ex* cq, Context& context) {
  const ibv_wc wc = read_real(mine.real, cq);
  mine.real.end_poll(cq);
  context.keep(ibv_cq_ex_to_cq(cq), wc, false);
}

int start_poll(ExtendedCq* known, Slot& slot, decltype(ibv_cq_ex::start_poll) real, ibv_cq_ex* cq,
               ibv_poll_cq_attr* attributes) {
  const bool open = slot.gate.load(std::memory_order_relaxed) == 0;
  if (open) [[likely]] {
    const int rc = real(cq, attributes);
    if (rc != 0 || slot.gate.load(std::memory_order_acquire) == 0) [[likely]]
      return rc;
  }
  Context* context = slot.context.load(std::memory_order_acquire);
  if (context == nullptr) return open ? 0 : real(cq, attributes);
  ExtendedCq& mine = known != nullptr ? *known : state(cq);
  if (open) give_up(mine, cq, *context);
  return start_ours(mine, cq, *context);
}

int next_poll(ExtendedCq* known, Slot& slot, decltype(ibv_cq_ex::next_poll) real, ibv_cq_ex* cq) {
  const int rc = real(cq);
  if (rc != 0 || slot.gate.load(std::memory_order_acquire) == 0) [[likely]]
    return rc;
  Context* context = slot.context.load(std::memory_order_acquire);
  if (context == nullptr) return rc;
  ExtendedCq& mine = known != nullptr ? *known : state(cq);
  give_up(mine, cq, *context);
  mine.mutex.lock();
  slot.run_begins();
  run_alone(mine, cq, *context);
  copy_functions(mine.before, *cq);
  copy_functions(*cq, mine.ours);
  return fetch(mine, cq, *context);
}

// One for each slot, which knows the provider's functions; and one for a completion queue that has others.
template <unsigned N>
int start_poll_of(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  Slot& slot = g_slots[N];
  return start_poll(nullptr, slot, slot.start_poll.load(std::memory_order_relaxed), cq, attributes);
}
template <unsigned N>
int next_poll_of(ibv_cq_ex* cq) {
  Slot& slot = g_slots[N];
  return next_poll(nullptr, slot, slot.next_poll.load(std::memory_order_relaxed), cq);
}
int start_poll_of_its_own(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  ExtendedCq& mine = state(cq);
  return start_poll(&mine, *mine.slot, mine.real.start_poll, cq, attributes);
}
int next_poll_of_its_own(ibv_cq_ex* cq) {
  ExtendedCq& mine = state(cq);
  return next_poll(&mine, *mine.slot, mine.real.next_poll, cq);
}

struct Polls {
  decltype(ibv_cq_ex::start_poll) start;
  decltype(ibv_cq_ex::next_poll) next;
};
template <unsigned... N>
constexpr std::array<Polls, kSlots> polls(std::integer_sequence<unsigned, N...>) {
  return {Polls{start_poll_of<N>, next_poll_of<N>}...};
}
constexpr auto kPolls = polls(std::make_integer_sequence<unsigned, kSlots>());

// The functions of a run of ours.
int next_of_ours(ibv_cq_ex* cq) {
  ExtendedCq& mine = state(cq);
  Context* context = mine.slot->context.load(std::memory_order_acquire);
  return context != nullptr ? fetch(mine, cq, *context) : ENOENT;
}
void end_poll(ibv_cq_ex* cq) { end_ours(state(cq), cq); }
ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return state(cq).wc.opcode; }
uint32_t read_vendor_err(ibv_cq_ex* cq) { return state(cq).wc.vendor_err; }
uint32_t read_byte_len(ibv_cq_ex* cq) { return state(cq).wc.byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return state(cq).wc.imm_data; }
uint32_t read_qp_num(ibv_cq_ex* cq) { return state(cq).wc.qp_num; }
uint32_t read_src_qp(ibv_cq_ex* cq) { return state(cq).wc.src_qp; }
unsigned read_wc_flags(ibv_cq_ex* cq) { return state(cq).wc.wc_flags; }
uint32_t read_slid(ibv_cq_ex* cq) { return state(cq).wc.slid; }
uint8_t read_sl(ibv_cq_ex* cq) { return state(cq).wc.sl; }
uint8_t read_dlid_path_bits(ibv_cq_ex* cq) { return state(cq).wc.dlid_path_bits; }
// An ibv_wc has none of these: the time is that of the read.
uint64_t read_completion_ts(ibv_cq_ex*) { return monotonic_ns(); }
uint16_t read_cvlan(ibv_cq_ex*) { return 0; }
uint32_t read_flow_tag(ibv_cq_ex*) { return 0; }
void read_tm_info(ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; }
uint64_t read_completion_wallclock_ns(ibv_cq_ex*) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

}  // namespace

void extended_adopt(ibv_cq_ex* cq, Slot& slot) {
  auto mine = std::make_shared<ExtendedCq>();
  mine->key = cq;
  mine->slot = &slot;
  memcpy(&mine->real, cq, sizeof *cq);
  mine->ours = mine->real;
  ibv_cq_ex& ours = mine->ours;
  replace(ours.next_poll, &next_of_ours);
  replace(ours.end_poll, &end_poll);
  replace(ours.read_opcode, &read_opcode);
  replace(ours.read_vendor_err, &read_vendor_err);
  replace(ours.read_byte_len, &read_byte_len);
  replace(ours.read_imm_data, &read_imm_data);
  replace(ours.read_qp_num, &read_qp_num);
  replace(ours.read_src_qp, &read_src_qp);
  replace(ours.read_wc_flags, &read_wc_flags);
  replace(ours.read_slid, &read_slid);
  replace(ours.read_sl, &read_sl);
  replace(ours.read_dlid_path_bits, &read_dlid_path_bits);
  replace(ours.read_completion_ts, &read_completion_ts);
  replace(ours.read_cvlan, &read_cvlan);
  replace(ours.read_flow_tag, &read_flow_tag);
  replace(ours.read_tm_info, &read_tm_info);
  replace(ours.read_completion_wallclock_ns, &read_completion_wallclock_ns);
  if (cq->start_poll == nullptr) return;
  g_cqs.insert(std::move(mine));
  const bool usual =
      is_the_slots(slot.start_poll, cq->start_poll) && is_the_slots(slot.next_poll, cq->next_poll);
  cq->start_poll = usual ? kPolls[slot_number(slot)].start : &start_poll_of_its_own;
  replace(cq->next_poll, usual ? kPolls[slot_number(slot)].next : &next_poll_of_its_own);
}

std::shared_ptr<ExtendedCq> extended_take(const ibv_cq* cq) { return g_cqs.take(cq); }

void extended_lock_cqs() { g_cqs.lock(); }
void extended_unlock_cqs() { g_cqs.unlock(); }

void extended_put_back(const std::shared_ptr<ExtendedCq>& cq) {
  if (cq != nullptr) g_cqs.insert(cq);
}

}  // namespace faultinject
