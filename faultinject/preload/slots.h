// SPDX-License-Identifier: Apache-2.0
// The patched operations of each opened device. Every context gets a slot with functions of its own (one
// template instance per slot), so that the fast path finds the original without any look-up: one relaxed
// load, one branch, one indirect call.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace faultinject {

class Context;

constexpr unsigned kSlots = 64;

struct alignas(64) Slot {
  std::atomic<uint32_t> slow{0};  // 0: nothing to see, nothing to do
  // The same for polls through ibv_cq_ex, as bit 0; above it the number of runs of ours that are under way
  // (extended_poll.cc). 0: a run may begin as the provider's.
  std::atomic<uint32_t> gate{0};
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  int (*poll_cq)(ibv_cq*, int, ibv_wc*) = nullptr;
  // Of the first queue pair and the first completion queue that were adopted; nearly always those of all.
  std::atomic<decltype(ibv_qp_ex::wr_start)> wr_start{nullptr};
  std::atomic<decltype(ibv_cq_ex::start_poll)> start_poll{nullptr};
  std::atomic<decltype(ibv_cq_ex::next_poll)> next_poll{nullptr};
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  int (*req_notify_cq)(ibv_cq*, int) = nullptr;
  // The provider's own, behind libibverbs' ibv_modify_qp and ibv_query_qp, which write ibv_qp::state. Not
  // patched.
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int) = nullptr;
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) = nullptr;
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*, size_t) = nullptr;
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*) = nullptr;
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*) = nullptr;
  std::atomic<ibv_context*> device{nullptr};
  std::atomic<Context*> context{nullptr};  // nullptr in a forked child: everything passes through
  std::atomic<uint64_t> openings{1};       // how often the gate has left 0, or was about to

  // Before anything is touched that the program could see. By the context, under its mutex.
  void raise() {
    slow.store(1);
    if ((gate.load() & 1) == 0) add_to_gate(1);
  }
  void lower() {
    gate.fetch_and(~1u);
    slow.store(0);
  }
  void run_begins() { add_to_gate(2); }
  void run_ends() { gate.fetch_sub(2); }

 private:
  // Who finds the gate shut finds `openings` counted already.
  void add_to_gate(uint32_t bits) {
    uint32_t now = gate.load();
    do {
      if (now == 0) openings.fetch_add(1);
    } while (!gate.compare_exchange_weak(now, now + bits));
  }
};

// By number, so that the function of each slot knows its own without looking. (Not exported: the compiler may
// take the address as it stands.)
extern Slot g_slots[kSlots] __attribute__((visibility("hidden")));

inline unsigned slot_number(const Slot& slot) { return unsigned(&slot - g_slots); }

// Is a provider's function the one that its slot holds, from now on if it held none?
template <typename Function>
bool is_the_slots(std::atomic<Function>& held, Function function) {
  Function none = nullptr;
  return held.compare_exchange_strong(none, function) || none == function;
}

// A slot with the originals of `device` saved, not yet patched in; nullptr when all are taken.
Slot* take_slot(ibv_context* device);
void patch(Slot& slot, Context& context);
void unpatch(Slot& slot);  // puts the originals back and frees the slot
Slot* find_slot(const ibv_context* device);  // nullptr: the device is not injected
// In a forked child: the devices that it has inherited are not injected any more. One that is closed there
// gives its slot back.
void abandon_all_slots();
void release_abandoned_slot(const ibv_context* device);

}  // namespace faultinject
