// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/context_ops.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "harness/vhca/abi/device.h"
#include "harness/vhca/abi/extended_cq.h"
#include "harness/vhca/abi/extended_qp.h"
#include "harness/vhca/abi/guarded.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/post_send.h"
#include "harness/vhca/queues/queue_pair.h"
#include "harness/vhca/queues/receive_queue.h"
#include "harness/vhca/queues/shared_receive.h"

namespace vhca {
namespace {

template <typename T>
T* not_served() {
  errno = EOPNOTSUPP;
  return nullptr;
}

ibv_mw* alloc_mw(ibv_pd*, ibv_mw_type) { return not_served<ibv_mw>(); }
int bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return EOPNOTSUPP; }
int dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* out,
                    std::size_t size) {
  if (input && input->comp_mask != 0) return EINVAL;
  if (size < sizeof out->orig_attr + sizeof out->comp_mask) return EINVAL;
  ibv_device_attr_ex attr{};
  if (const int error = query_device(context, &attr.orig_attr)) return error;
  attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
  attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
  std::memset(out, 0, size);
  std::memcpy(out, &attr, std::min(size, sizeof attr));
  return 0;
}

ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex* init) {
  constexpr std::uint32_t kServed =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD)) {
    errno = EINVAL;
    return nullptr;
  }
  if ((init->comp_mask & ~kServed) != 0 ||
      ((init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0))
    return not_served<ibv_qp>();
  ibv_qp* made = guarded([&] { return create_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init)); });
  if (!made || !(init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return made;
  Qp& qp = qp_of(made);
  if (const int error = serve_operations(made->qp_type, init->send_ops_flags, qp)) {
    destroy_qp(made);
    errno = error;
    return nullptr;
  }
  qp.is_extended = true;
  return made;
}

ibv_cq_ex* make_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  return guarded([&] { return create_cq_ex(context, init); });
}

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* init) {
  constexpr std::uint32_t kServed = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  const bool basic = !(init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || init->srq_type == IBV_SRQT_BASIC;
  if ((init->comp_mask & ~kServed) != 0 || !(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !basic)
    return not_served<ibv_srq>();
  return guarded([&] { return create_srq(init->pd, reinterpret_cast<ibv_srq_init_attr*>(init)); });
}

}  // namespace

void fill_operations(verbs_context& verbs) {
  verbs.sz = sizeof(verbs_context);
  verbs.query_port = query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.create_qp_ex = create_qp_ex;
  verbs.create_cq_ex = make_cq_ex;
  verbs.create_srq_ex = create_srq_ex;
  ibv_context& context = verbs.context;
  context.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);  // "a verbs_context lies around this one"
  context.ops.alloc_mw = alloc_mw;
  context.ops.bind_mw = bind_mw;
  context.ops.dealloc_mw = dealloc_mw;
  context.ops.post_srq_recv = post_srq_recv;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  // libibverbs keeps the provider's operations of before 2018 here, too, under names of no type.
  using Untyped = void (*)();
  context.ops._compat_modify_qp = reinterpret_cast<void* (*)()>(reinterpret_cast<Untyped>(modify_qp));
  context.ops._compat_query_qp = reinterpret_cast<void* (*)()>(reinterpret_cast<Untyped>(query_qp));
}

}  // namespace vhca
