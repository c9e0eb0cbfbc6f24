// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/slots.h"

#include <errno.h>
#include <stddef.h>

#include <array>
#include <utility>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/waker.h"

namespace faultinject {

Slot g_slots[kSlots];

namespace {

template <unsigned N>
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Slot& slot = g_slots[N];
  if (slot.slow.load(std::memory_order_relaxed) == 0) [[likely]]
    return slot.post_send(qp, wr, bad);
  Context* context = slot.context.load(std::memory_order_acquire);
  return context != nullptr ? context->post_send(qp, wr, bad) : slot.post_send(qp, wr, bad);
}

template <unsigned N>
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Slot& slot = g_slots[N];
  if (slot.slow.load(std::memory_order_relaxed) == 0) [[likely]]
    return slot.post_recv(qp, wr, bad);
  Context* context = slot.context.load(std::memory_order_acquire);
  return context != nullptr ? context->post_recv(qp, wr, bad) : slot.post_recv(qp, wr, bad);
}

template <unsigned N>
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Slot& slot = g_slots[N];
  if (slot.slow.load(std::memory_order_relaxed) == 0) [[likely]]
    return slot.post_srq_recv(srq, wr, bad);
  Context* context = slot.context.load(std::memory_order_acquire);
  return context != nullptr ? context->post_srq_recv(srq, wr, bad) : slot.post_srq_recv(srq, wr, bad);
}

template <unsigned N>
int poll_cq(ibv_cq* cq, int entries, ibv_wc* wcs) {
  Slot& slot = g_slots[N];
  if (slot.slow.load(std::memory_order_relaxed) == 0) [[likely]] {
    const int count = slot.poll_cq(cq, entries, wcs);
    // A fault raises `slow` before it touches a real queue pair. So what came of its touch is only fetched
    // by a poll that finds `slow` raised when it looks again.
    if (count <= 0 || slot.slow.load(std::memory_order_acquire) == 0) [[likely]]
      return count;
    Context* context = slot.context.load(std::memory_order_acquire);
    return context != nullptr ? context->review(cq, count, wcs) : count;
  }
  Context* context = slot.context.load(std::memory_order_acquire);
  return context != nullptr ? context->poll_cq(cq, entries, wcs) : slot.poll_cq(cq, entries, wcs);
}

template <unsigned N>
int req_notify_cq(ibv_cq* cq, int solicited_only) {
  Slot& slot = g_slots[N];
  const int rc = slot.req_notify_cq(cq, solicited_only);
  if (rc == 0 && slot.slow.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    Context* context = slot.context.load(std::memory_order_acquire);
    if (context != nullptr) context->after_req_notify(cq);
  }
  return rc;
}

// nullptr: the call passes through.
Context* context_of(const Slot& slot) {
  return ProviderCall::is_under_way() ? nullptr : slot.context.load(std::memory_order_acquire);
}

// What is not called for each message is the same code for all slots.
int query_port_of(Slot& slot, ibv_context* device, uint8_t port, ibv_port_attr* attributes, size_t length) {
  Context* context = context_of(slot);
  if (const int error = context != nullptr ? context->command() : 0; error != 0) return error;
  const int rc = slot.query_port(device, port, attributes, length);
  if (rc == 0 && context != nullptr && context->shows_port_down(port)) {
    attributes->state = IBV_PORT_DOWN;
    if (length > offsetof(ibv_port_attr, phys_state)) attributes->phys_state = 3;  // Disabled
  }
  return rc;
}

template <unsigned N>
int query_port(ibv_context* device, uint8_t port, ibv_port_attr* attributes, size_t length) {
  return query_port_of(g_slots[N], device, port, attributes, length);
}

ibv_qp* create_qp_ex_of(Slot& slot, ibv_context* device, ibv_qp_init_attr_ex* attributes) {
  Context* context = context_of(slot);
  if (const int error = context != nullptr ? context->admit(Call::What::kCreate) : 0; error != 0) {
    errno = error;
    return nullptr;
  }
  const AsyncEvents::RealFd shown(context != nullptr ? &context->events() : nullptr);
  ibv_qp* qp = slot.create_qp_ex(device, attributes);
  if (qp != nullptr && context != nullptr) {
    ibv_qp_init_attr plain{};
    plain.qp_context = attributes->qp_context;
    plain.send_cq = attributes->send_cq;
    plain.recv_cq = attributes->recv_cq;
    plain.srq = attributes->srq;
    plain.cap = attributes->cap;
    plain.qp_type = attributes->qp_type;
    plain.sq_sig_all = attributes->sq_sig_all;
    context->add_qp(qp, plain);
    const auto to_extended = FAULTINJECT_REAL(kQpToQpEx, ibv_qp_to_qp_ex);
    // What the sends of other types consist of is their provider's own affair (EFA's have two addresses
    // each).
    const bool known =
        is_reliable(plain.qp_type) || plain.qp_type == IBV_QPT_UD || plain.qp_type == IBV_QPT_UC;
    const bool extended =
        known && (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && to_extended != nullptr;
    if (ibv_qp_ex* known = extended ? to_extended(qp) : nullptr; known != nullptr)
      extended_adopt(known, slot);
  }
  return qp;
}

template <unsigned N>
ibv_qp* create_qp_ex(ibv_context* device, ibv_qp_init_attr_ex* attributes) {
  return create_qp_ex_of(g_slots[N], device, attributes);
}

// What is completed must tell its queue pair, for a run of ours, whether the program asks for that or not.
ibv_cq_ex* create_cq_ex_with_qp_num(const Slot& slot, ibv_context* device, ibv_cq_init_attr_ex& attributes) {
  const auto asked = attributes.wc_flags;
  attributes.wc_flags |= IBV_WC_EX_WITH_QP_NUM;
  ibv_cq_ex* cq = slot.create_cq_ex(device, &attributes);
  attributes.wc_flags = asked;
  return cq;
}

// nullptr: none was made with a spare entry. A program of another version of verbs.h may pass a structure
// that is shorter or longer than ours: what comp_mask does not name is not read.
ibv_cq_ex* create_cq_ex_with_spare_entry(const Slot& slot, ibv_context* device,
                                         const ibv_cq_init_attr_ex& attributes) {
  constexpr uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if (!wants_spare_entry(attributes.channel, attributes.cqe) || (attributes.comp_mask & ~kKnown) != 0)
    return nullptr;
  ibv_cq_init_attr_ex more{};
  more.cqe = attributes.cqe + 1;
  more.cq_context = attributes.cq_context;
  more.channel = attributes.channel;
  more.comp_vector = attributes.comp_vector;
  more.wc_flags = attributes.wc_flags;
  more.comp_mask = attributes.comp_mask;
  if ((more.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0) more.flags = attributes.flags;
  if ((more.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) more.parent_domain = attributes.parent_domain;
  return create_cq_ex_with_qp_num(slot, device, more);
}

ibv_cq_ex* create_cq_ex_of(Slot& slot, ibv_context* device, ibv_cq_init_attr_ex* attributes) {
  Context* context = context_of(slot);
  if (const int error = context != nullptr ? context->admit(Call::What::kCreate) : 0; error != 0) {
    errno = error;
    return nullptr;
  }
  const AsyncEvents::RealFd shown(context != nullptr ? &context->events() : nullptr);
  ibv_cq_ex* cq = context != nullptr ? create_cq_ex_with_spare_entry(slot, device, *attributes) : nullptr;
  if (cq == nullptr && context != nullptr) cq = create_cq_ex_with_qp_num(slot, device, *attributes);
  if (cq == nullptr) cq = slot.create_cq_ex(device, attributes);
  if (cq != nullptr && context != nullptr) {
    context->add_cq(ibv_cq_ex_to_cq(cq));
    extended_adopt(cq, slot);
  }
  return cq;
}

template <unsigned N>
ibv_cq_ex* create_cq_ex(ibv_context* device, ibv_cq_init_attr_ex* attributes) {
  return create_cq_ex_of(g_slots[N], device, attributes);
}

struct Thunks {
  decltype(Slot::post_send) post_send;
  decltype(Slot::post_recv) post_recv;
  decltype(Slot::post_srq_recv) post_srq_recv;
  decltype(Slot::poll_cq) poll_cq;
  decltype(Slot::req_notify_cq) req_notify_cq;
  decltype(Slot::query_port) query_port;
  decltype(Slot::create_qp_ex) create_qp_ex;
  decltype(Slot::create_cq_ex) create_cq_ex;
};

template <unsigned... N>
constexpr std::array<Thunks, kSlots> make_thunks(std::integer_sequence<unsigned, N...>) {
  return {Thunks{post_send<N>, post_recv<N>, post_srq_recv<N>, poll_cq<N>, req_notify_cq<N>, query_port<N>,
                 create_qp_ex<N>, create_cq_ex<N>}...};
}
constexpr std::array<Thunks, kSlots> kThunks = make_thunks(std::make_integer_sequence<unsigned, kSlots>());

void abandon(Slot& slot) {
  slot.gate.store(0);
  slot.slow.store(0);
  slot.context.store(nullptr);
}

}  // namespace

Slot* take_slot(ibv_context* device) {
  for (Slot& slot : g_slots) {
    ibv_context* none = nullptr;
    if (!slot.device.compare_exchange_strong(none, device)) continue;
    slot.post_send = device->ops.post_send;
    slot.post_recv = device->ops.post_recv;
    slot.post_srq_recv = device->ops.post_srq_recv;
    slot.poll_cq = device->ops.poll_cq;
    slot.req_notify_cq = device->ops.req_notify_cq;
    // libibverbs keeps them here under names of no type, since it calls them itself.
    using Untyped = void (*)();
    slot.modify_qp =
        reinterpret_cast<decltype(slot.modify_qp)>(reinterpret_cast<Untyped>(device->ops._compat_modify_qp));
    slot.query_qp =
        reinterpret_cast<decltype(slot.query_qp)>(reinterpret_cast<Untyped>(device->ops._compat_query_qp));
    // nullptr where the context is not an extended one, is too short, or does not serve the operation.
    verbs_context* extended = verbs_get_ctx_op(device, query_port);
    slot.query_port = extended != nullptr ? extended->query_port : nullptr;
    extended = verbs_get_ctx_op(device, create_qp_ex);
    slot.create_qp_ex = extended != nullptr ? extended->create_qp_ex : nullptr;
    extended = verbs_get_ctx_op(device, create_cq_ex);
    slot.create_cq_ex = extended != nullptr ? extended->create_cq_ex : nullptr;
    return &slot;
  }
  return nullptr;
}

void patch(Slot& slot, Context& context) {
  ibv_context* device = slot.device.load();
  const Thunks& thunks = kThunks[slot_number(slot)];
  slot.context.store(&context, std::memory_order_release);
  device->ops.post_send = thunks.post_send;
  device->ops.post_recv = thunks.post_recv;
  device->ops.post_srq_recv = thunks.post_srq_recv;
  device->ops.poll_cq = thunks.poll_cq;
  device->ops.req_notify_cq = thunks.req_notify_cq;
  verbs_context* extended = verbs_get_ctx(device);
  if (slot.query_port != nullptr) extended->query_port = thunks.query_port;
  if (slot.create_qp_ex != nullptr) extended->create_qp_ex = thunks.create_qp_ex;
  if (slot.create_cq_ex != nullptr) extended->create_cq_ex = thunks.create_cq_ex;
}

void unpatch(Slot& slot) {
  ibv_context* device = slot.device.load();
  device->ops.post_send = slot.post_send;
  device->ops.post_recv = slot.post_recv;
  device->ops.post_srq_recv = slot.post_srq_recv;
  device->ops.poll_cq = slot.poll_cq;
  device->ops.req_notify_cq = slot.req_notify_cq;
  verbs_context* extended = verbs_get_ctx(device);
  if (slot.query_port != nullptr) extended->query_port = slot.query_port;
  if (slot.create_qp_ex != nullptr) extended->create_qp_ex = slot.create_qp_ex;
  if (slot.create_cq_ex != nullptr) extended->create_cq_ex = slot.create_cq_ex;
  abandon(slot);
  slot.wr_start.store(nullptr);
  slot.start_poll.store(nullptr);
  slot.next_poll.store(nullptr);
  slot.device.store(nullptr);
}

Slot* find_slot(const ibv_context* device) {
  for (Slot& slot : g_slots)
    if (slot.device.load(std::memory_order_acquire) == device && device != nullptr &&
        slot.context.load(std::memory_order_acquire) != nullptr)
      return &slot;
  return nullptr;
}

void release_abandoned_slot(const ibv_context* device) {
  for (Slot& slot : g_slots)
    if (slot.device.load() == device && slot.context.load() == nullptr) unpatch(slot);
}

void abandon_all_slots() {
  for (Slot& slot : g_slots) abandon(slot);
}

}  // namespace faultinject
