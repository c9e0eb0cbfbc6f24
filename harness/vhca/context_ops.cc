#include "harness/vhca/context_ops.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/vhca/completion.h"
#include "harness/vhca/device.h"
#include "harness/vhca/queue_pair.h"
#include "harness/vhca/send_queue.h"

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
int post_srq_recv(ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (bad_wr) *bad_wr = wr;
  return EOPNOTSUPP;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* out, std::size_t size) {
  ibv_device_attr_ex attr{};
  if (const int error = query_device(context, &attr.orig_attr)) return error;
  attr.phys_port_cnt_ex = 1;
  std::memset(out, 0, size);
  std::memcpy(out, &attr, std::min(size, sizeof attr));
  return 0;
}

// Served as far as it says no more than ibv_create_qp.
ibv_qp* create_qp_ex(ibv_context*, ibv_qp_init_attr_ex* init) {
  if (init->comp_mask != IBV_QP_INIT_ATTR_PD) return not_served<ibv_qp>();
  return create_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init));
}

ibv_cq_ex* create_cq_ex(ibv_context*, ibv_cq_init_attr_ex*) { return not_served<ibv_cq_ex>(); }
ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex*) { return not_served<ibv_srq>(); }

}  // namespace

void fill_operations(verbs_context& verbs) {
  verbs.sz = sizeof(verbs_context);
  verbs.query_port = query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.create_qp_ex = create_qp_ex;
  verbs.create_cq_ex = create_cq_ex;
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
}

}  // namespace vhca
