// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/waker.h"

#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

std::unique_ptr<Waker> Waker::make(ibv_pd* pd, ibv_cq* cq) {
  const auto create = FAULTINJECT_REAL(kCreateQp, ibv_create_qp);
  const auto modify = FAULTINJECT_REAL(kModifyQp, ibv_modify_qp);
  if (create == nullptr || modify == nullptr) return nullptr;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  ibv_qp* qp = create(pd, &wanted);
  if (qp == nullptr) return nullptr;
  std::unique_ptr<Waker> waker(new Waker(qp));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  if (modify(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    return nullptr;
  attributes.qp_state = IBV_QPS_ERR;
  return modify(qp, &attributes, IBV_QP_STATE) == 0 ? std::move(waker) : nullptr;
}

Waker::~Waker() {
  const auto destroy = FAULTINJECT_REAL(kDestroyQp, ibv_destroy_qp);
  if (destroy != nullptr) destroy(qp_);
}

bool Waker::wake(Post post_send) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  return post_send(qp_, &wr, &bad) == 0;
}

std::unique_ptr<ChannelWaker> ChannelWaker::make(ibv_pd* pd, ibv_comp_channel* channel) {
  const auto create = FAULTINJECT_REAL(kCreateCq, ibv_create_cq);
  if (create == nullptr || pd == nullptr) return nullptr;
  ibv_cq* cq = create(pd->context, 1, nullptr, channel, 0);
  if (cq == nullptr) return nullptr;
  std::unique_ptr<ChannelWaker> waker(new ChannelWaker(cq));
  waker->waker_ = Waker::make(pd, cq);
  return waker->waker_ != nullptr ? std::move(waker) : nullptr;
}

ChannelWaker::~ChannelWaker() {
  waker_.reset();
  const auto destroy = FAULTINJECT_REAL(kDestroyCq, ibv_destroy_cq);
  if (destroy != nullptr) destroy(cq_);
}

void ChannelWaker::wake(const Slot& slot) {
  ibv_wc wc;
  while (slot.poll_cq(cq_, 1, &wc) > 0) {
  }
  slot.req_notify_cq(cq_, 0);
  waker_->wake(slot.post_send);  // fails where the one before it is still on its way
}

}  // namespace faultinject
