// SPDX-License-Identifier: Apache-2.0
#include "faultinject/testing/agent/interface.h"

#include <errno.h>
#include <stdlib.h>

#include "faultinject/testing/agent/agent.h"

namespace agent {
namespace {

#ifdef AGENT_BINDS_AT_RUN_TIME
constexpr bool kExtended = false, kAsksForNothing = false;
ibv_cq* create_extended_cq(int, ibv_comp_channel*) { return nullptr; }
ibv_qp* create_extended_qp(const ibv_qp_init_attr&) { return nullptr; }
int post_extended(ibv_qp*, const ibv_send_wr&) { return ENOSYS; }
#else
const bool kExtended = getenv("AGENT_EXTENDED") != nullptr;
const bool kAsksForNothing = getenv("AGENT_ASKS_FOR_NOTHING") != nullptr;

ibv_cq* create_extended_cq(int entries, ibv_comp_channel* channel) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = uint32_t(entries);
  attributes.channel = channel;
  if (!kAsksForNothing)
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &attributes);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_qp* create_extended_qp(const ibv_qp_init_attr& plain) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = plain.send_cq;
  attributes.recv_cq = plain.recv_cq;
  attributes.cap = plain.cap;
  attributes.qp_type = plain.qp_type;
  attributes.srq = plain.srq;
  attributes.pd = pd;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
  if (plain.qp_type != IBV_QPT_UD)
    attributes.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (plain.qp_type == IBV_QPT_RC) attributes.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
  return ibv_create_qp_ex(context, &attributes);
}

int post_extended(ibv_qp* plain, const ibv_send_wr& wr) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(plain);
  ibv_wr_start(qp);
  qp->wr_id = wr.wr_id;
  qp->wr_flags = wr.send_flags & ~unsigned(IBV_SEND_INLINE);
  const uint32_t key = wr.wr.rdma.rkey;
  const uint64_t address = wr.wr.rdma.remote_addr;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, key, address, wr.imm_data);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(qp, key, address);
      break;
    case IBV_WR_SEND:
      ibv_wr_send(qp);
      break;
    default:
      ibv_wr_rdma_write(qp, key, address);
  }
  if (plain->qp_type == IBV_QPT_UD)
    ibv_wr_set_ud_addr(qp, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(wr.sg_list->addr), wr.sg_list->length);
  } else {
    ibv_wr_set_sge_list(qp, size_t(wr.num_sge), wr.sg_list);
  }
  return ibv_wr_complete(qp);
}

#endif

}  // namespace

ibv_cq* create_cq(int entries, ibv_comp_channel* channel) {
  return kExtended ? create_extended_cq(entries, channel)
                   : V(ibv_create_cq)(context, entries, nullptr, channel, 0);
}

ibv_qp* create_qp(ibv_qp_init_attr& attributes) {
  return kExtended ? create_extended_qp(attributes) : V(ibv_create_qp)(pd, &attributes);
}

int poll_cq(ibv_cq* plain, int entries, ibv_wc* wcs) {
  if (!kExtended) return ibv_poll_cq(plain, entries, wcs);
  if (entries == 0) return 0;
  auto* cq = reinterpret_cast<ibv_cq_ex*>(plain);  // both begin alike, as ibv_cq_ex_to_cq() has it
  ibv_poll_cq_attr attributes{};
  int rc = ibv_start_poll(cq, &attributes);
  if (rc != 0) return rc == ENOENT ? 0 : -rc;
  int count = 0;
  do {
    ibv_wc& wc = wcs[count++];
    wc = {};
    wc.wr_id = cq->wr_id;
    wc.status = cq->status;
    if (!kAsksForNothing) wc.qp_num = ibv_wc_read_qp_num(cq);
  } while (count < entries && (rc = ibv_next_poll(cq)) == 0);
  ibv_end_poll(cq);
  return count;
}

int post_send(ibv_qp* qp, ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  return kExtended ? post_extended(qp, wr) : ibv_post_send(qp, &wr, &bad);
}

}  // namespace agent
