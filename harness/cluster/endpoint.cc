// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster/endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace r2bench {
namespace {

constexpr size_t kBytes = 64u << 10;
constexpr uint8_t kTimeout = 14, kRetries = 3;  // 4 * 67 ms until a transfer is given up

[[noreturn]] void fail(const std::string& call, int error) {
  throw std::runtime_error(call + ": " + strerror(error));
}

void fill(std::vector<uint8_t>& memory, uint64_t seed) {
  for (size_t i = 0; i < memory.size(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    memory[i] = uint8_t(seed >> 56);
  }
}

std::string hex(const ibv_gid& gid) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : gid.raw) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

ibv_gid gid_of(const std::string& text) {
  ibv_gid gid{};
  if (text.size() != 2 * sizeof(gid.raw)) throw std::runtime_error("'" + text + "' is no GID");
  for (size_t i = 0; i < sizeof(gid.raw); ++i)
    gid.raw[i] = uint8_t(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return gid;
}

}  // namespace

struct Endpoint::Verbs {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  ~Verbs() {
    if (qp) ibv_destroy_qp(qp);
    if (mr) ibv_dereg_mr(mr);
    if (cq) ibv_destroy_cq(cq);
    if (pd) ibv_dealloc_pd(pd);
    if (context) ibv_close_device(context);
  }
};

Endpoint::Endpoint(const std::string& device, int port, int gid_index)
    : verbs_(std::make_unique<Verbs>()), memory_(kBytes), number_(port), gid_index_(gid_index) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list && i < count && !verbs_->context; ++i)
    if (device == ibv_get_device_name(list[i])) verbs_->context = ibv_open_device(list[i]);
  if (list) ibv_free_device_list(list);
  if (!verbs_->context) throw std::runtime_error(device + " cannot be opened (is /dev/infiniband readable?)");
  if (const int error = ibv_query_port(verbs_->context, uint8_t(port), &port_)) fail("ibv_query_port", error);
  if (gid_index >= 0 && ibv_query_gid(verbs_->context, uint8_t(port), gid_index, &gid_) != 0)
    fail("ibv_query_gid", errno);
  if (!(verbs_->pd = ibv_alloc_pd(verbs_->context))) fail("ibv_alloc_pd", errno);
  if (!(verbs_->cq = ibv_create_cq(verbs_->context, 16, nullptr, nullptr, 0))) fail("ibv_create_cq", errno);
  verbs_->mr = ibv_reg_mr(verbs_->pd, memory_.data(), memory_.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!verbs_->mr) fail("ibv_reg_mr (is locked memory limited? ulimit -l unlimited)", errno);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = verbs_->cq;
  init.cap.max_send_wr = init.cap.max_recv_wr = 4;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  if (!(verbs_->qp = ibv_create_qp(verbs_->pd, &init))) fail("ibv_create_qp", errno);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = uint8_t(port);
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if (const int error = ibv_modify_qp(verbs_->qp, &attr,
                                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    fail("ibv_modify_qp to INIT", error);
}

Endpoint::~Endpoint() = default;

nlohmann::json Endpoint::info() const {
  return {{"qp", verbs_->qp->qp_num},   {"lid", port_.lid},
          {"gid", hex(gid_)},           {"mtu", int(port_.active_mtu)},
          {"key", verbs_->mr->rkey},    {"address", uint64_t(reinterpret_cast<uintptr_t>(memory_.data()))},
          {"active_mtu", active_mtu()}, {"max_mtu", max_mtu()}};
}

void Endpoint::connect(const nlohmann::json& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = ibv_mtu(std::min(int(port_.active_mtu), peer.at("mtu").get<int>()));
  attr.dest_qp_num = peer.at("qp");
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = uint8_t(number_);
  attr.ah_attr.dlid = peer.at("lid");
  if (gid_index_ >= 0) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = gid_of(peer.at("gid"));
    attr.ah_attr.grh.sgid_index = uint8_t(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
  }
  if (const int error = ibv_modify_qp(verbs_->qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    fail("ibv_modify_qp to RTR (no route to the other address?)", error);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = kTimeout;
  attr.retry_cnt = kRetries;
  attr.rnr_retry = 3;
  attr.max_rd_atomic = 1;
  if (const int error = ibv_modify_qp(verbs_->qp, &attr,
                                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
    fail("ibv_modify_qp to RTS", error);
  peer_address_ = peer.at("address");
  peer_key_ = peer.at("key");
}

void Endpoint::write(uint64_t seed, std::chrono::milliseconds limit) {
  fill(memory_, seed);
  ibv_sge sge{uint64_t(reinterpret_cast<uintptr_t>(memory_.data())), uint32_t(memory_.size()),
              verbs_->mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = peer_address_;
  wr.wr.rdma.rkey = peer_key_;
  if (const int error = ibv_post_send(verbs_->qp, &wr, &bad)) fail("ibv_post_send", error);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  ibv_wc wc{};
  for (int n = 0; n == 0; usleep(50)) {
    n = ibv_poll_cq(verbs_->cq, 1, &wc);
    if (n < 0) throw std::runtime_error("ibv_poll_cq failed");
    if (n == 0 && std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("no completion within " + std::to_string(limit.count()) + " ms");
  }
  if (wc.status != IBV_WC_SUCCESS)
    throw std::runtime_error(std::string("the transfer failed: ") + ibv_wc_status_str(wc.status));
}

bool Endpoint::holds(uint64_t seed) const {
  std::vector<uint8_t> wanted(memory_.size());
  fill(wanted, seed);
  return std::equal(wanted.begin(), wanted.end(), memory_.begin());
}

}  // namespace r2bench
