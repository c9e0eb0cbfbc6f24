// SPDX-License-Identifier: Apache-2.0
// The exported functions that stand in front of libibverbs, and the one that lets anybody's events trigger
// faults. Each finds the Context of its object; where there is none (no board, an unknown device, a forked
// child) it is the real function.
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "faultinject/preload/extended.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"
#include "faultinject/preload/waker.h"

namespace {

using faultinject::Context;
using faultinject::Process;

Context* context_of(const ibv_context* device) {
  if (faultinject::ProviderCall::is_under_way()) return nullptr;
  faultinject::Slot* slot = faultinject::find_slot(device);
  return slot != nullptr ? slot->context.load(std::memory_order_acquire) : nullptr;
}

// May an object be made, or memory be registered? Sets errno if not. Waits while the device is frozen.
bool admitted(const ibv_context* device, faultinject::Call::What what) {
  Context* ours = context_of(device);
  const int error = ours != nullptr ? ours->admit(what) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

// The errno with which a command must fail that makes and destroys nothing that we keep; 0: none.
int command(const ibv_context* device) {
  Context* ours = context_of(device);
  return ours != nullptr ? ours->command() : 0;
}

// A destroy: by the real function, unless the device is gone.
template <typename Object>
int destroy(int (*real)(Object*), const ibv_context* device, faultinject::Undestroyed::Kind kind,
            Object* object) {
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(device);
  const auto rc = ours != nullptr ? ours->destroy_without_device(kind, object) : std::nullopt;
  return rc ? *rc : real(object);
}

template <typename Function, typename... Arguments>
ibv_mr* register_memory(Function* real, ibv_pd* pd, Arguments... arguments) {
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return admitted(pd->context, faultinject::Call::What::kRegister) ? real(pd, arguments...) : nullptr;
}

}  // namespace

extern "C" {

void faultinject_event(const char* name, uint64_t value) {
  if (name == nullptr) return;
  Process* process = Process::current();
  if (process == nullptr) return Process::event_without_device(name, value);
  if (process->board().event_bits.load(std::memory_order_relaxed) != 0) process->event(name, value);
}

ibv_context* ibv_open_device(ibv_device* device) {
  const auto real = FAULTINJECT_REAL(kOpenDevice, ibv_open_device);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  ibv_context* context = real(device);
  if (context == nullptr) return nullptr;
  Process* process = Process::current_or_new();
  if (process != nullptr) process->opened(context);
  if (Context* ours = context_of(context); ours != nullptr && ours->is_removed()) {
    ibv_close_device(context);
    errno = ENODEV;
    return nullptr;
  }
  return context;
}

int ibv_close_device(ibv_context* context) {
  const auto real = FAULTINJECT_REAL(kCloseDevice, ibv_close_device);
  if (real == nullptr) return ENOSYS;
  if (Process* process = Process::current()) faultinject::destroy_for_real(process->closing(context));
  faultinject::release_abandoned_slot(context);
  return real(context);
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  const auto real = FAULTINJECT_REAL(kCreateCq, ibv_create_cq);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  if (!admitted(context, faultinject::Call::What::kCreate)) return nullptr;
  Context* ours = context_of(context);
  const faultinject::AsyncEvents::RealFd shown(ours != nullptr ? &ours->events() : nullptr);
  ibv_cq* cq = nullptr;
  if (ours != nullptr && faultinject::wants_spare_entry(channel, cqe))
    cq = real(context, cqe + 1, cq_context, channel, vector);
  if (cq == nullptr) cq = real(context, cqe, cq_context, channel, vector);
  if (cq != nullptr && ours != nullptr) ours->add_cq(cq);
  return cq;
}

int ibv_resize_cq(ibv_cq* cq, int cqe) {
  const auto real = FAULTINJECT_REAL(kResizeCq, ibv_resize_cq);
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(cq->context);
  if (ours == nullptr) return real(cq, cqe);
  if (const int error = ours->command(); error != 0) return error;
  // Waits while the device is frozen.
  if (const int error = ours->admit(faultinject::Call::What::kResize); error != 0) return error;
  return faultinject::wants_spare_entry(cq->channel, cqe) && real(cq, cqe + 1) == 0 ? 0 : real(cq, cqe);
}

int ibv_destroy_cq(ibv_cq* cq) {
  const auto real = FAULTINJECT_REAL(kDestroyCq, ibv_destroy_cq);
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(cq->context);
  if (ours == nullptr) return real(cq);
  if (const auto rc = ours->destroy_without_device(faultinject::Undestroyed::Kind::kCq, cq)) return *rc;
  auto known = ours->take_cq(cq);
  const auto extended = faultinject::extended_take(cq);
  const int rc = real(cq);
  if (rc != 0) faultinject::extended_put_back(extended);
  if (rc != 0 && known != nullptr) ours->put_back(std::move(known));
  return rc;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const auto real = FAULTINJECT_REAL(kCreateCompChannel, ibv_create_comp_channel);
  const int error = real == nullptr ? ENOSYS : command(context);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  ibv_comp_channel* channel = real(context);
  Context* ours = channel != nullptr ? context_of(context) : nullptr;
  if (ours != nullptr) ours->add_channel(channel);
  return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const auto real = FAULTINJECT_REAL(kDestroyCompChannel, ibv_destroy_comp_channel);
  if (real == nullptr) return ENOSYS;
  Context* ours = context_of(channel->context);
  if (ours == nullptr) return real(channel);
  if (const auto rc = ours->destroy_channel_without_device(channel)) return *rc;
  auto known = ours->take_channel(channel);
  const int rc = real(channel);
  if (rc != 0 && known != nullptr) ours->put_back(channel, std::move(known));
  return rc;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  Context* ours = context_of(channel->context);
  if (const auto known = ours != nullptr ? ours->share_channel(channel) : nullptr)
    return known->get(cq, cq_context);
  const auto real = FAULTINJECT_REAL(kGetCqEvent, ibv_get_cq_event);
  return real != nullptr ? real(channel, cq, cq_context) : -1;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kCreateAh, ibv_create_ah);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  if (const int error = command(pd->context); error != 0) {
    errno = error;
    return nullptr;
  }
  ibv_ah* ah = real(pd, attributes);
  Context* ours = ah != nullptr ? context_of(pd->context) : nullptr;
  if (ours != nullptr) ours->add_ah(ah, *attributes);
  return ah;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  const auto real = FAULTINJECT_REAL(kCreateAhFromWc, ibv_create_ah_from_wc);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  ibv_ah* ah = real(pd, wc, grh, port);
  Context* ours = ah != nullptr ? context_of(pd->context) : nullptr;
  const auto init = FAULTINJECT_REAL(kInitAhFromWc, ibv_init_ah_from_wc);
  ibv_ah_attr attributes{};
  if (ours != nullptr && init != nullptr && init(pd->context, port, wc, grh, &attributes) == 0)
    ours->add_ah(ah, attributes);
  return ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
  const auto real = FAULTINJECT_REAL(kDestroyAh, ibv_destroy_ah);
  if (real == nullptr) return ENOSYS;
  if (Context* ours = context_of(ah->context)) ours->forget_ah(ah);
  return real(ah);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kCreateQp, ibv_create_qp);
  if (real == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  if (!admitted(pd->context, faultinject::Call::What::kCreate)) return nullptr;
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
  if (const auto rc = ours->destroy_without_device(faultinject::Undestroyed::Kind::kQp, qp)) return *rc;
  const uint64_t serial = ours->begin_destroy(qp);
  const auto extended = faultinject::extended_take(qp);
  const int rc = real(qp);
  if (rc != 0) faultinject::extended_put_back(extended);
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
  if (const int error = command(context); error != 0) return error;
  const int rc = real(context, port, attributes);
  Context* ours = context_of(context);
  if (rc == 0 && ours != nullptr && ours->shows_port_down(port)) {
    auto* plain = reinterpret_cast<ibv_port_attr*>(attributes);
    plain->state = IBV_PORT_DOWN;
    plain->phys_state = 3;  // Disabled
  }
  return rc;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  Context* ours = context_of(context);
  if (ours != nullptr) return ours->share_events()->get(event);
  const auto real = FAULTINJECT_REAL(kGetAsyncEvent, ibv_get_async_event);
  return real != nullptr ? real(context, event) : -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
  // The event does not say which context it came from; a synthetic one is known to exactly one of them.
  if (Process* process = Process::current(); process != nullptr && process->acknowledge(*event)) return;
  const auto real = FAULTINJECT_REAL(kAckAsyncEvent, ibv_ack_async_event);
  if (real != nullptr) real(event);
}

int ibv_dereg_mr(ibv_mr* mr) {
  return destroy(FAULTINJECT_REAL(kDeregMr, ibv_dereg_mr), mr->context, faultinject::Undestroyed::Kind::kMr,
                 mr);
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const auto real = FAULTINJECT_REAL(kAllocPd, ibv_alloc_pd);
  const int error = real == nullptr ? ENOSYS : command(context);
  if (error == 0) return real(context);
  errno = error;
  return nullptr;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  return destroy(FAULTINJECT_REAL(kDeallocPd, ibv_dealloc_pd), pd->context,
                 faultinject::Undestroyed::Kind::kPd, pd);
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kCreateSrq, ibv_create_srq);
  const int error = real == nullptr ? ENOSYS : command(pd->context);
  if (error == 0) return real(pd, attributes);
  errno = error;
  return nullptr;
}

int ibv_destroy_srq(ibv_srq* srq) {
  if (Context* ours = context_of(srq->context)) ours->events().forget(srq);
  return destroy(FAULTINJECT_REAL(kDestroySrq, ibv_destroy_srq), srq->context,
                 faultinject::Undestroyed::Kind::kSrq, srq);
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const auto real = FAULTINJECT_REAL(kQueryDevice, ibv_query_device);
  const int error = real == nullptr ? ENOSYS : command(context);
  return error == 0 ? real(context, attributes) : error;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return register_memory(FAULTINJECT_REAL(kRegMr, ibv_reg_mr), pd, address, length, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return register_memory(FAULTINJECT_REAL(kRegMrIova, ibv_reg_mr_iova), pd, address, length, iova, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  return register_memory(FAULTINJECT_REAL(kRegMrIova2, ibv_reg_mr_iova2), pd, address, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  return register_memory(FAULTINJECT_REAL(kRegDmabufMr, ibv_reg_dmabuf_mr), pd, offset, length, iova, fd,
                         access);
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  const auto real = FAULTINJECT_REAL(kQueryGid, ibv_query_gid);
  if (real == nullptr) return -1;
  if (const int error = command(context); error != 0) {
    errno = error;
    return -1;
  }
  const int rc = real(context, port, index, gid);
  Context* ours = context_of(context);
  if (rc == 0 && ours != nullptr && ours->hides_gid(port, uint32_t(index))) *gid = {};
  return rc;
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entry_size) {
  const auto real = FAULTINJECT_REAL(kQueryGidEx, _ibv_query_gid_ex);
  if (real == nullptr) return ENOSYS;
  if (const int error = command(context); error != 0) return error;
  const int rc = real(context, port, index, entry, flags, entry_size);
  Context* ours = context_of(context);
  return rc == 0 && ours != nullptr && ours->hides_gid(port, index) ? ENODATA : rc;
}

// The table has rows of `entry_size`, each of which begins as ibv_gid_entry does.
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most, uint32_t flags,
                             size_t entry_size) {
  const auto real = FAULTINJECT_REAL(kQueryGidTable, _ibv_query_gid_table);
  if (real == nullptr) return -ENOSYS;
  if (const int error = command(context); error != 0) return -error;
  const ssize_t count = real(context, entries, most, flags, entry_size);
  Context* ours = context_of(context);
  if (count <= 0 || ours == nullptr) return count;
  auto* rows = reinterpret_cast<unsigned char*>(entries);
  size_t kept = 0;
  for (size_t i = 0; i < size_t(count); i++) {
    const auto* row = reinterpret_cast<const ibv_gid_entry*>(rows + i * entry_size);
    if (ours->hides_gid(row->port_num, row->gid_index)) continue;
    if (kept != i) memmove(rows + kept * entry_size, rows + i * entry_size, entry_size);
    kept++;
  }
  return ssize_t(kept);
}

}  // extern "C"
