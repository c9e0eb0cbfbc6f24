// SPDX-License-Identifier: Apache-2.0
#include "harness/conformance/endpoint.h"

#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace r2bench::conformance {
namespace {

using Clock = std::chrono::steady_clock;

bool is_ipv4_mapped(const ibv_gid& gid) {
  static const uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

}  // namespace

void require(bool ok, const std::string& what) {
  if (!ok) throw Broken(what + ": " + std::strerror(errno));
}

Device::Device(const std::string& name) : name_(name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i)
    if (name == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
  if (list != nullptr) ibv_free_device_list(list);
  if (context_ == nullptr) throw Broken("there is no device " + name + ", or it cannot be opened");
  require(ibv_query_device(context_, &limits_) == 0, "ibv_query_device");
  const int flags = fcntl(context_->async_fd, F_GETFL);
  fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  const ibv_port_attr attributes = port();
  for (int i = 0; i < std::min(attributes.gid_tbl_len, 32); ++i) {
    ibv_gid gid{};
    // RoCE v1 has the same address at another index: the later one is v2 with all providers that list both.
    if (ibv_query_gid(context_, 1, i, &gid) == 0 && is_ipv4_mapped(gid)) gid_index_ = i;
  }
}

Device::~Device() {
  if (context_ != nullptr) ibv_close_device(context_);
}

ibv_port_attr Device::port() const {
  ibv_port_attr attributes{};
  require(ibv_query_port(context_, 1, &attributes) == 0, "ibv_query_port");
  return attributes;
}

ibv_gid Device::gid() const {
  ibv_gid gid{};
  require(ibv_query_gid(context_, 1, gid_index_, &gid) == 0, "ibv_query_gid");
  return gid;
}

std::vector<std::string> Device::events(const std::string& until, std::chrono::milliseconds patience) const {
  std::vector<std::string> seen;
  const auto deadline = Clock::now() + patience;
  for (;;) {
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) == 0) {
      seen.push_back(event_name(event.event_type));
      ibv_ack_async_event(&event);
      if (!until.empty() && seen.back() == until) return seen;
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return seen;
    pollfd wait{context_->async_fd, POLLIN, 0};
    ::poll(&wait, 1, int(std::min<long>(left.count(), 100)));
  }
}

Endpoint::Endpoint(Device& device, const EndpointOptions& options)
    : device_(device), options_(options), memory_(options.bytes) {
  try {
    require((pd_ = ibv_alloc_pd(device.context())) != nullptr, "ibv_alloc_pd");
    if (options.channel)
      require((channel_ = ibv_create_comp_channel(device.context())) != nullptr, "ibv_create_comp_channel");
    require((cq_ = ibv_create_cq(device.context(), options.cq_depth, this, channel_, 0)) != nullptr,
            "ibv_create_cq");
    require((mr_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), int(options.access))) != nullptr,
            "ibv_reg_mr");
    if (options.shared_receive) {
      ibv_srq_init_attr init{};
      init.attr = {options.recv_depth, options.sge, 0};
      srq_ = ibv_create_srq(pd_, &init);
      if (srq_ == nullptr && errno == EOPNOTSUPP) throw NotOffered("SRQ");
      require(srq_ != nullptr, "ibv_create_srq");
    }
    ibv_qp_init_attr init{};
    init.qp_type = options.type;
    init.send_cq = init.recv_cq = cq_;
    init.srq = srq_;
    init.cap = {options.send_depth, srq_ != nullptr ? 0 : options.recv_depth, options.sge, options.sge,
                options.inline_bytes};
    qp_ = ibv_create_qp(pd_, &init);
    if (qp_ == nullptr && errno == EOPNOTSUPP) throw NotOffered("this type of queue pair");
    require(qp_ != nullptr, "ibv_create_qp");
  } catch (...) {
    release();
    throw;
  }
}

Endpoint::~Endpoint() { release(); }

void Endpoint::release() {
  destroy_qp();
  if (srq_ != nullptr) ibv_destroy_srq(srq_);
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
}

void Endpoint::destroy_qp() {
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  qp_ = nullptr;
}

int Endpoint::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (options_.type == IBV_QPT_UD) {
    attributes.qkey = 0x1234;
    mask |= IBV_QP_QKEY;
  } else {
    attributes.qp_access_flags = options_.qp_access;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  return ibv_modify_qp(qp_, &attributes, mask);
}

int Endpoint::to_rtr(const Endpoint& peer) {
  peer_ = &peer;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  if (options_.type == IBV_QPT_UD) return ibv_modify_qp(qp_, &attributes, IBV_QP_STATE);
  const ibv_port_attr port = device_.port();
  attributes.path_mtu = std::min(port.active_mtu, peer.device().port().active_mtu);
  attributes.dest_qp_num = peer.qp()->qp_num;
  attributes.rq_psn = 7;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = options_.min_rnr_timer;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.dlid = peer.device().port().lid;
  attributes.ah_attr.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 1 : 0;
  attributes.ah_attr.grh.dgid = peer.device().gid();
  attributes.ah_attr.grh.sgid_index = uint8_t(device_.gid_index());
  attributes.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (options_.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp_, &attributes, mask);
}

int Endpoint::to_rts() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 7;
  attributes.timeout = options_.timeout;
  attributes.retry_cnt = options_.retry;
  attributes.rnr_retry = options_.rnr_retry;
  attributes.max_rd_atomic = 1;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp_, &attributes, mask);
}

int Endpoint::to(ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return ibv_modify_qp(qp_, &attributes, IBV_QP_STATE);
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(qp_, &attributes, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
  return attributes.qp_state;
}

int Endpoint::post(const Work& work) {
  ibv_sge element{address(work.offset), uint32_t(work.bytes), work.lkey.value_or(mr_->lkey)};
  ibv_send_wr request{};
  request.wr_id = work.id;
  request.sg_list = &element;
  request.num_sge = work.bytes > 0 ? 1 : 0;
  request.opcode = work.opcode;
  request.send_flags = work.flags;
  request.imm_data = work.imm;
  if (work.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = peer_->address(work.remote_offset);
    request.wr.atomic.rkey = work.rkey.value_or(peer_->mr_->rkey);
    request.wr.atomic.compare_add = work.compare_add;
    request.wr.atomic.swap = work.swap;
  } else if (peer_ != nullptr) {
    request.wr.rdma.remote_addr = peer_->address(work.remote_offset);
    request.wr.rdma.rkey = work.rkey.value_or(peer_->mr_->rkey);
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &request, &bad);
}

int Endpoint::post_recv(uint64_t id, size_t offset, size_t bytes) {
  ibv_sge element{address(offset), uint32_t(bytes), mr_->lkey};
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &element;
  request.num_sge = bytes > 0 ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  return srq_ != nullptr ? ibv_post_srq_recv(srq_, &request, &bad) : ibv_post_recv(qp_, &request, &bad);
}

std::optional<ibv_wc> Endpoint::poll(std::chrono::milliseconds patience) {
  // Only time in which we really poll counts: a machine may let us stand still for minutes.
  constexpr std::chrono::milliseconds kStep{50};
  Clock::duration waited{};
  auto last = Clock::now();
  for (;;) {
    ibv_wc completion{};
    const int count = ibv_poll_cq(cq_, 1, &completion);
    if (count < 0) throw Broken("ibv_poll_cq failed");
    if (count == 1) return completion;
    if (waited >= patience) return std::nullopt;
    std::this_thread::yield();
    const auto now = Clock::now();
    waited += std::min<Clock::duration>(now - last, kStep);
    last = now;
  }
}

ibv_wc Endpoint::wait() {
  if (const auto completion = poll(kPatience)) return *completion;
  throw Broken("no completion within " + std::to_string(kPatience.count()) + " s");
}

Pair::Pair(Device& device_a, Device& device_b, const EndpointOptions& of_a, const EndpointOptions& of_b)
    : a(device_a, of_a), b(device_b, of_b) {
  for (Endpoint* end : {&a, &b}) {
    const int rc = end->to_init();
    if (rc != 0) throw Broken("ibv_modify_qp to INIT: " + errno_name(rc));
  }
  for (auto [end, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (const int rc = end->to_rtr(*other); rc != 0) throw Broken("ibv_modify_qp to RTR: " + errno_name(rc));
    if (const int rc = end->to_rts(); rc != 0) throw Broken("ibv_modify_qp to RTS: " + errno_name(rc));
  }
}

}  // namespace r2bench::conformance
