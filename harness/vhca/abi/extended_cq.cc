// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/extended_cq.h"

#include <cerrno>

#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/runtime.h"

namespace vhca {
namespace {

// Takes the next completion into the CQ. 0, ENOENT: there is none, ENODEV.
int walk(Cq& cq) {
  const int taken = poll_cq(cq.handle_as_cq(), 1, &cq.walked);
  if (taken < 0) return ENODEV;
  if (taken == 0) return ENOENT;
  cq.status = cq.walked.status;
  cq.wr_id = cq.walked.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attr) {
  if (attr && attr->comp_mask != 0) return EINVAL;
  Cq& cq = cq_of(handle);
  if (cq.owner->runtime->is_forked_copy()) return ENODEV;  // before the lock
  cq.walk_lock.lock();
  const int error = walk(cq);
  if (error != 0) cq.walk_lock.unlock();
  return error;
}
int next_poll(ibv_cq_ex* handle) { return walk(cq_of(handle)); }
void end_poll(ibv_cq_ex* handle) { cq_of(handle).walk_lock.unlock(); }

const ibv_wc& walked(ibv_cq_ex* handle) { return cq_of(handle).walked; }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return walked(cq).opcode; }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) { return walked(cq).vendor_err; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) { return walked(cq).byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return walked(cq).imm_data; }
std::uint32_t read_qp_num(ibv_cq_ex* cq) { return walked(cq).qp_num; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) { return walked(cq).src_qp; }
unsigned read_wc_flags(ibv_cq_ex* cq) { return walked(cq).wc_flags; }
std::uint32_t read_slid(ibv_cq_ex* cq) { return walked(cq).slid; }
std::uint8_t read_sl(ibv_cq_ex* cq) { return walked(cq).sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex* cq) { return walked(cq).dlid_path_bits; }

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  const std::uint32_t flags = init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? init->flags : 0;
  if ((init->wc_flags & ~static_cast<std::uint64_t>(IBV_WC_STANDARD_FLAGS)) != 0 ||
      (init->comp_mask & ~IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ||
      (flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_cq* made = create_cq(context, static_cast<int>(init->cqe), init->cq_context, init->channel,
                           static_cast<int>(init->comp_vector));
  if (!made) return nullptr;
  Cq& cq = cq_of(made);
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  const auto serve = [init](std::uint64_t flag, auto& slot, auto* function) {
    if (init->wc_flags & flag) slot = function;
  };
  serve(IBV_WC_EX_WITH_BYTE_LEN, cq.read_byte_len, read_byte_len);
  serve(IBV_WC_EX_WITH_IMM, cq.read_imm_data, read_imm_data);
  serve(IBV_WC_EX_WITH_QP_NUM, cq.read_qp_num, read_qp_num);
  serve(IBV_WC_EX_WITH_SRC_QP, cq.read_src_qp, read_src_qp);
  serve(IBV_WC_EX_WITH_SLID, cq.read_slid, read_slid);
  serve(IBV_WC_EX_WITH_SL, cq.read_sl, read_sl);
  serve(IBV_WC_EX_WITH_DLID_PATH_BITS, cq.read_dlid_path_bits, read_dlid_path_bits);
  cq.read_wc_flags = read_wc_flags;
  return &cq;
}

}  // namespace vhca
