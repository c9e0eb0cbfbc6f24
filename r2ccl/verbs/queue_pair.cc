// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/queue_pair.h"

#include <endian.h>
#include <algorithm>

#include <cerrno>
#include <cstring>

#include "r2ccl/verbs/port.h"

namespace r2ccl::verbs {
namespace {

Error failure(const char* call, const Device& device, int error) {
  return Error{error == ENOMEM ? ErrorCode::kOutOfResources : ErrorCode::kVerbs,
               std::string(call) + " on " + device.name() + ": " + std::strerror(error)};
}

Error refusal(const char* call, int error) {
  return Error{error == EIO ? ErrorCode::kDeviceGone : ErrorCode::kVerbs,
               std::string(call) + ": " + std::strerror(error)};
}

// Outstanding RDMA READs: only the prober reads, one at a time.
constexpr uint8_t kReads = 1;
// Encoded RNR timer, IBTA volume 1 table 45: 12 is 0.64 ms. The receive queue never runs dry by design.
constexpr uint8_t kRnrTimer = 12;
constexpr uint8_t kRnrRetry = 7;

}  // namespace

Result<QueuePair> QueuePair::create(const Device& device, const CompletionQueue& queue,
                                    const QueuePairLimits& limits) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue.get();
  attributes.recv_cq = queue.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = limits.send_work_requests;
  attributes.cap.max_recv_wr = limits.receive_work_requests;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = limits.inline_bytes;
  QueuePair pair;
  pair.pair_.reset(ibv_create_qp(device.pd(), &attributes));
  if (!pair.pair_ && limits.inline_bytes > 0) {  // some providers have no inline data
    attributes.cap.max_inline_data = 0;
    pair.pair_.reset(ibv_create_qp(device.pd(), &attributes));
  }
  if (!pair.pair_) return failure("ibv_create_qp", device, errno);
  pair.inline_bytes_ = std::min(attributes.cap.max_inline_data, limits.inline_bytes);
  return pair;
}

Result<void> QueuePair::to_init(const Device& device) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.pkey_index = device.pkey_index();
  init.port_num = device.port();
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error =
      ibv_modify_qp(pair_.get(), &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return failure("ibv_modify_qp to INIT", device, error);
  return {};
}

Result<void> QueuePair::to_rtr(const Device& device, const RemoteQueuePair& remote, const Config& config) {
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = ibv_mtu(std::min(device.address().mtu, remote.address.mtu));
  rtr.dest_qp_num = remote.number;
  rtr.rq_psn = remote.first_psn;
  rtr.max_dest_rd_atomic = kReads;
  rtr.min_rnr_timer = kRnrTimer;
  rtr.ah_attr = address_vector({device.port(), uint8_t(device.gid_index()), device.needs_global_route()},
                               device.address(), remote.address, config);
  const int error = ibv_modify_qp(pair_.get(), &rtr,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return failure("ibv_modify_qp to RTR", device, error);
  return {};
}

Result<void> QueuePair::to_rts(const Device& device, uint32_t our_psn, const Config& config) {
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = uint8_t(config.ib_timeout);
  rts.retry_cnt = uint8_t(config.ib_retry_count);
  rts.rnr_retry = kRnrRetry;
  rts.sq_psn = our_psn;
  rts.max_rd_atomic = kReads;
  const int error = ibv_modify_qp(pair_.get(), &rts,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return failure("ibv_modify_qp to RTS", device, error);
  return {};
}

Result<void> QueuePair::to_error() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  const int error = ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
  if (error != 0) return refusal("ibv_modify_qp to ERR", error);
  return {};
}

Result<void> QueuePair::destroy() noexcept {
  if (const int error = ibv_destroy_qp(pair_.get()); error != 0) return refusal("ibv_destroy_qp", error);
  pair_.release();
  return {};
}

// Only what these opcodes have is set: to clear the whole request would take as long as the rest of this
// function.
int QueuePair::post(uint64_t id, ibv_wr_opcode opcode, unsigned flags, ibv_sge piece, uint64_t remote,
                    uint32_t rkey, uint32_t immediate) noexcept {
  ibv_send_wr request;
  request.wr_id = id;
  request.next = nullptr;
  request.sg_list = &piece;
  request.num_sge = piece.length > 0 ? 1 : 0;
  request.opcode = opcode;
  request.send_flags = flags;
  request.imm_data = htobe32(immediate);
  request.wr.rdma.remote_addr = remote;
  request.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair_.get(), &request, &bad);
}

int QueuePair::post_write_imm(uint64_t id, const void* data, uint32_t bytes, uint32_t lkey, uint64_t remote,
                              uint32_t rkey, uint32_t immediate) noexcept {
  return post(id, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, {uint64_t(data), bytes, lkey}, remote, rkey,
              immediate);
}

int QueuePair::post_write(uint64_t id, const void* data, uint32_t bytes, uint32_t lkey, uint64_t remote,
                          uint32_t rkey, bool signaled) noexcept {
  const unsigned flags = (signaled ? unsigned(IBV_SEND_SIGNALED) : 0u) |
                         (bytes <= inline_bytes_ ? unsigned(IBV_SEND_INLINE) : 0u);
  return post(id, IBV_WR_RDMA_WRITE, flags, {uint64_t(data), bytes, lkey}, remote, rkey);
}

int QueuePair::post_empty_write(uint64_t id, uint64_t remote, uint32_t rkey) noexcept {
  return post(id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {}, remote, rkey);
}

int QueuePair::post_read(uint64_t id, void* data, uint32_t bytes, uint32_t lkey, uint64_t remote,
                         uint32_t rkey) noexcept {
  return post(id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {uint64_t(data), bytes, lkey}, remote, rkey);
}

int QueuePair::post_receives(uint64_t id, uint32_t count) noexcept {
  ibv_recv_wr requests[kReceiveBatch];
  for (uint32_t i = 0; i < count; ++i)
    requests[i] = {
        .wr_id = id, .next = i + 1 < count ? &requests[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair_.get(), requests, &bad);
}

}  // namespace r2ccl::verbs
