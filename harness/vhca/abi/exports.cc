// SPDX-License-Identifier: Apache-2.0
// The public symbols of libibverbs. Nothing but translation: each calls what does the work, or refuses with
// an errno what the virtual HCA has not. Nothing throws across this line.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "harness/vhca/abi/address_handle.h"
#include "harness/vhca/abi/device.h"
#include "harness/vhca/abi/guarded.h"
#include "harness/vhca/abi/memory_region.h"
#include "harness/vhca/process/addresses.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/queue_pair.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/shared_receive.h"

namespace {

using vhca::guarded;

template <typename T>
T* refuse() {
  errno = EOPNOTSUPP;
  return nullptr;
}

// What programs read of a queue pair at any time: libibverbs writes it, providers do not.
void show_state(ibv_qp& qp, ibv_qp_state state) { __atomic_store_n(&qp.state, state, __ATOMIC_RELAXED); }

}  // namespace

extern "C" {

// Devices and contexts.
struct ibv_device** ibv_get_device_list(int* count) {
  return guarded([&] { return vhca::get_device_list(count); });
}
void ibv_free_device_list(struct ibv_device** list) { std::free(list); }
const char* ibv_get_device_name(struct ibv_device* device) { return device->name; }
int ibv_get_device_index(struct ibv_device* device) { return vhca::device_index(device); }
__be64 ibv_get_device_guid(struct ibv_device* device) { return vhca::device_guid(device); }
struct ibv_context* ibv_open_device(struct ibv_device* device) {
  return guarded([&] { return vhca::open_device(device); });
}
int ibv_close_device(struct ibv_context* context) { return vhca::close_device(context); }
struct ibv_context* ibv_import_device(int) {
  return refuse<ibv_context>();
}

int ibv_query_device(struct ibv_context* context, struct ibv_device_attr* attr) {
  return vhca::query_device(context, attr);
}
int ibv_query_port(struct ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* attr) {
  // Callers of the exported symbol have a structure that ends before port_cap_flags2.
  return vhca::query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                          offsetof(ibv_port_attr, port_cap_flags2));
}
int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
  ibv_gid_entry entry;
  if (vhca::query_gid_entry(context, port, static_cast<std::uint32_t>(index), &entry, sizeof entry) != 0) {
    errno = EINVAL;
    return -1;
  }
  *gid = entry.gid;
  return 0;
}
int _ibv_query_gid_ex(struct ibv_context* context, uint32_t port, uint32_t index, struct ibv_gid_entry* entry,
                      uint32_t flags, size_t size) {
  if (flags != 0) return EOPNOTSUPP;
  return vhca::query_gid_entry(context, port, index, entry, size) == 0 ? 0 : ENODATA;
}
ssize_t _ibv_query_gid_table(struct ibv_context* context, struct ibv_gid_entry* entries, size_t max_entries,
                             uint32_t flags, size_t size) {
  if (flags != 0) return -EOPNOTSUPP;
  if (max_entries > UINT16_MAX / size) return -EINVAL;  // longer than an attribute of the kernel's interface
  std::size_t count = 0;
  for (std::uint32_t port = 1; vhca::has_port(context, port); ++port)
    for (int i = 0; i < vhca::gid_count(vhca::port_of(context, port)); ++i, ++count) {
      if (count == max_entries) return -EINVAL;  // the kernel gives all of them or none
      vhca::query_gid_entry(context, port, static_cast<std::uint32_t>(i),
                            reinterpret_cast<ibv_gid_entry*>(reinterpret_cast<char*>(entries) + count * size),
                            size);
    }
  return static_cast<ssize_t>(count);
}
// enum ibv_gid_type_sysfs: 0 InfiniBand or RoCE v1, 1 RoCE v2.
int ibv_query_gid_type(struct ibv_context* context, uint8_t port, unsigned index, int* type) {
  ibv_gid_entry entry;
  if (vhca::query_gid_entry(context, port, index, &entry, sizeof entry) != 0) {
    errno = EINVAL;
    return -1;
  }
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}
int ibv_query_pkey(struct ibv_context* context, uint8_t port, int index, __be16* pkey) {
  if (vhca::has_port(context, port)) {
    const auto keys = vhca::partition_keys(vhca::port_of(context, port));
    if (index >= 0 && static_cast<size_t>(index) < keys.size()) {
      *pkey = htobe16(keys[static_cast<size_t>(index)]);
      return 0;
    }
  }
  errno = EINVAL;
  return -1;
}
// With or without the membership bit.
int ibv_get_pkey_index(struct ibv_context* context, uint8_t port, __be16 pkey) {
  if (vhca::has_port(context, port)) {
    const auto keys = vhca::partition_keys(vhca::port_of(context, port));
    for (size_t i = 0; i < keys.size(); ++i)
      if (((keys[i] ^ be16toh(pkey)) & 0x7fff) == 0) return static_cast<int>(i);
  }
  errno = EINVAL;
  return -1;
}

int ibv_get_async_event(struct ibv_context* context, struct ibv_async_event* event) {
  return vhca::get_async_event(context, event);
}
void ibv_ack_async_event(struct ibv_async_event* event) { vhca::ack_async_event(event); }

// Protection domains and memory.
struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  return guarded([&]() -> ibv_pd* {
    vhca::Runtime& runtime = *vhca::Context::of(context).runtime;
    if (runtime.is_forked_copy()) {
      errno = ENODEV;
      return nullptr;
    }
    auto pd = std::make_unique<vhca::Pd>();
    pd->context = context;
    pd->id = runtime.fabric().next_pd.fetch_add(1) + 1;
    pd->handle = pd->id;
    return pd.release();
  });
}
int ibv_dealloc_pd(struct ibv_pd* handle) {
  vhca::Pd& pd = vhca::pd_of(handle);
  if (pd.users.load() != 0) return EBUSY;
  const std::unique_ptr<vhca::Pd> gone(&pd);
  return 0;
}
struct ibv_pd* ibv_import_pd(struct ibv_context*, uint32_t) {
  return refuse<ibv_pd>();
}
void ibv_unimport_pd(struct ibv_pd*) {}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  return guarded([&] {
    return vhca::register_memory(pd, address, length, reinterpret_cast<std::uintptr_t>(address), access);
  });
}
struct ibv_mr* ibv_reg_mr_iova(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return guarded([&] { return vhca::register_memory(pd, address, length, iova, access); });
}
struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                unsigned access) {
  return guarded([&] { return vhca::register_memory(pd, address, length, iova, static_cast<int>(access)); });
}
struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                 int access) {
  return guarded([&] { return vhca::register_dma_buf(pd, offset, length, iova, fd, access); });
}
int ibv_rereg_mr(struct ibv_mr*, int, struct ibv_pd*, void*, size_t, int) {
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;
}
int ibv_dereg_mr(struct ibv_mr* mr) { return vhca::deregister_memory(mr); }
struct ibv_mr* ibv_import_mr(struct ibv_pd*, uint32_t) {
  return refuse<ibv_mr>();
}
void ibv_unimport_mr(struct ibv_mr*) {}
struct ibv_dm* ibv_import_dm(struct ibv_context*, uint32_t) {
  return refuse<ibv_dm>();
}
void ibv_unimport_dm(struct ibv_dm*) {}

// Completion.
struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context* context) {
  return guarded([&] { return vhca::create_channel(context); });
}
int ibv_destroy_comp_channel(struct ibv_comp_channel* channel) { return vhca::destroy_channel(channel); }
struct ibv_cq* ibv_create_cq(struct ibv_context* context, int cqe, void* cq_context,
                             struct ibv_comp_channel* channel, int comp_vector) {
  return guarded([&] { return vhca::create_cq(context, cqe, cq_context, channel, comp_vector); });
}
int ibv_resize_cq(struct ibv_cq* cq, int cqe) {
  try {
    return vhca::resize_cq(cq, cqe);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}
int ibv_destroy_cq(struct ibv_cq* cq) { return vhca::destroy_cq(cq); }
int ibv_get_cq_event(struct ibv_comp_channel* channel, struct ibv_cq** cq, void** cq_context) {
  return vhca::get_cq_event(channel, cq, cq_context);
}
void ibv_ack_cq_events(struct ibv_cq* cq, unsigned count) { vhca::ack_cq_events(cq, count); }

// Queue pairs.
struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
  return guarded([&] { return vhca::create_qp(pd, init); });
}
struct ibv_qp_ex* ibv_qp_to_qp_ex(struct ibv_qp* qp) {
  return vhca::qp_of(qp).is_extended ? &vhca::qp_of(qp) : nullptr;
}
int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  const int error = vhca::modify_qp(qp, attr, mask);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) show_state(*qp, attr->qp_state);
  return error;
}
int ibv_query_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask, struct ibv_qp_init_attr* init) {
  const int error = vhca::query_qp(qp, attr, mask, init);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) show_state(*qp, attr->qp_state);
  return error;
}
int ibv_query_qp_data_in_order(struct ibv_qp*, enum ibv_wr_opcode, uint32_t) { return 0; }
int ibv_destroy_qp(struct ibv_qp* qp) { return vhca::destroy_qp(qp); }
int ibv_query_ece(struct ibv_qp*, struct ibv_ece*) { return EOPNOTSUPP; }
int ibv_set_ece(struct ibv_qp*, struct ibv_ece*) { return EOPNOTSUPP; }

// Address handles.
struct ibv_ah* ibv_create_ah(struct ibv_pd* pd, struct ibv_ah_attr* attr) {
  return guarded([&] { return vhca::create_ah(pd, *attr); });
}
int ibv_destroy_ah(struct ibv_ah* handle) { return vhca::destroy_ah(handle); }
int ibv_init_ah_from_wc(struct ibv_context* context, uint8_t port, struct ibv_wc* wc, struct ibv_grh* grh,
                        struct ibv_ah_attr* attr) {
  const int error = vhca::address_from_completion(context, port, *wc, grh, *attr);
  if (error == 0) return 0;
  errno = error;
  return -1;
}
struct ibv_ah* ibv_create_ah_from_wc(struct ibv_pd* pd, struct ibv_wc* wc, struct ibv_grh* grh,
                                     uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}
int ibv_resolve_eth_l2_from_gid(struct ibv_context*, struct ibv_ah_attr*, uint8_t*, uint16_t*) {
  return -EOPNOTSUPP;
}

// Shared receive queues.
struct ibv_srq* ibv_create_srq(struct ibv_pd* pd, struct ibv_srq_init_attr* init) {
  return guarded([&] { return vhca::create_srq(pd, init); });
}
int ibv_modify_srq(struct ibv_srq* srq, struct ibv_srq_attr* attr, int mask) {
  return vhca::modify_srq(srq, attr, mask);
}
int ibv_query_srq(struct ibv_srq* srq, struct ibv_srq_attr* attr) { return vhca::query_srq(srq, attr); }
int ibv_destroy_srq(struct ibv_srq* srq) { return vhca::destroy_srq(srq); }

// Multicast is not served.
int ibv_attach_mcast(struct ibv_qp*, const union ibv_gid*, uint16_t) { return EOPNOTSUPP; }
int ibv_detach_mcast(struct ibv_qp*, const union ibv_gid*, uint16_t) { return EOPNOTSUPP; }

// Nothing is pinned, so a fork needs no preparation.
int ibv_fork_init(void) { return 0; }
enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void*, size_t) { return 0; }
int ibv_dofork_range(void*, size_t) { return 0; }

// There is no sysfs entry of a virtual device.
const char* ibv_get_sysfs_path(void) { return "/sys"; }
int ibv_read_sysfs_file(const char*, const char*, char*, size_t) { return -1; }
int ibv_read_ibdev_sysfs_file(char*, size_t, struct ibv_device*, const char*, ...) { return -1; }

}  // extern "C"
