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
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  int (*poll_cq)(ibv_cq*, int, ibv_wc*) = nullptr;
  int (*req_notify_cq)(ibv_cq*, int) = nullptr;
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*, size_t) = nullptr;
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*) = nullptr;
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*) = nullptr;
  std::atomic<ibv_context*> device{nullptr};
  std::atomic<Context*> context{nullptr};  // nullptr in a forked child: everything passes through
};

// A slot with the originals of `device` saved, not yet patched in; nullptr when all are taken.
Slot* take_slot(ibv_context* device);
void patch(Slot& slot, Context& context);
void unpatch(Slot& slot);  // puts the originals back and frees the slot
Slot* find_slot(const ibv_context* device);
void abandon_all_slots();  // in a forked child

}  // namespace faultinject
