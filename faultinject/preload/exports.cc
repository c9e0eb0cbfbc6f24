// The exported functions that stand in front of libibverbs, and the one that lets anybody's events trigger
// faults. Each finds the Context of its object; where there is none (no board, an unknown device, a forked
// child) it is the real function.
#include <errno.h>
#include <stddef.h>

#include "faultinject/preload/process.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace {

using faultinject::Context;
using faultinject::Process;

Context* context_of(const ibv_context* device) {
  faultinject::Slot* slot = faultinject::find_slot(device);
  return slot != nullptr ? slot->context.load(std::memory_order_acquire) : nullptr;
}

}  // namespace

extern "C" {

void faultinject_event(const char* name, uint64_t value) {
  Process* process = Process::current();
  if (process != nullptr && name != nullptr &&
      process->board().event_bits.load(std::memory_order_relaxed) != 0)
    process->event(name, value);
}

ibv_context* ibv_open_device(ibv_device* device) {
  const auto real = FAULTINJECT_REAL(kOpenDevice, ibv_open_device);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  ibv_context* context = real(device);
  if (context == nullptr) return nullptr;
  if (Process* process = Process::current_or_new()) process->opened(context);
  return context;
}

int ibv_close_device(ibv_context* context) {
  const auto real = FAULTINJECT_REAL(kCloseDevice, ibv_close_device);
  if (real == nullptr) return ENOSYS;
  if (Process* process = Process::current()) process->closing(context);
  return real(context);
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int vector) {
  const auto real = FAULTINJECT_REAL(kCreateCq, ibv_create_cq);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  Context* ours = context_of(context);
  const faultinject::AsyncEvents::RealFd shown(ours != nullptr ? &ours->events() : nullptr);
  ibv_cq* cq = real(context, cqe, cq_context, channel, vector);
  if (cq != nullptr && ours != nullptr) ours->add_cq(cq);
  return cq;
}

int ibv_destroy_cq(ibv_cq* cq) {
  const auto real = FAULTINJECT_REAL(kDestroyCq, ibv_destroy_cq);
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(cq->context);
  if (ours == nullptr) return real(cq);
  auto known = ours->take_cq(cq);
  const int rc = real(cq);
  if (rc != 0 && known != nullptr) ours->put_back(std::move(known));
  return rc;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kCreateQp, ibv_create_qp);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  Context* ours = context_of(pd->context);
  const faultinject::AsyncEvents::RealFd shown(ours != nullptr ? &ours->events() : nullptr);
  ibv_qp* qp = real(pd, attributes);
  if (qp != nullptr && ours != nullptr) ours->add_qp(qp, *attributes);
  return qp;
}

int ibv_destroy_qp(ibv_qp* qp) {
  const auto real = FAULTINJECT_REAL(kDestroyQp, ibv_destroy_qp);
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(qp->context);
  if (ours == nullptr) return real(qp);
  const uint64_t serial = ours->begin_destroy(qp);
  const int rc = real(qp);
  ours->end_destroy(qp, serial, rc == 0);
  return rc;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  Context* ours = context_of(qp->context);
  if (ours != nullptr) return ours->modify_qp(qp, attributes, mask);
  const auto real = FAULTINJECT_REAL(kModifyQp, ibv_modify_qp);
  return real != nullptr ? real(qp, attributes, mask) : ENOSYS;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  Context* ours = context_of(qp->context);
  if (ours != nullptr) return ours->query_qp(qp, attributes, mask, init);
  const auto real = FAULTINJECT_REAL(kQueryQp, ibv_query_qp);
  return real != nullptr ? real(qp, attributes, mask, init) : ENOSYS;
}

// The exported flavour; the inline one goes through verbs_context::query_port, which slots.cc patches. Both
// structures begin with the same fields.
int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kQueryPort, ibv_query_port);
  if (real == nullptr) return ENOSYS;
  const int rc = real(context, port, attributes);
  Context* ours = context_of(context);
  if (rc == 0 && ours != nullptr && ours->shows_port_down()) {
    auto* plain = reinterpret_cast<ibv_port_attr*>(attributes);
    plain->state = IBV_PORT_DOWN;
    plain->phys_state = 3;  // Disabled
  }
  return rc;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  Context* ours = context_of(context);
  if (ours != nullptr) return ours->events().get(event);
  const auto real = FAULTINJECT_REAL(kGetAsyncEvent, ibv_get_async_event);
  return real != nullptr ? real(context, event) : -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
  // The event does not say which context it came from; a synthetic one is known to exactly one of them.
  if (Process* process = Process::current(); process != nullptr && process->acknowledge(*event)) return;
  const auto real = FAULTINJECT_REAL(kAckAsyncEvent, ibv_ack_async_event);
  if (real != nullptr) real(event);
}

}  // extern "C"
