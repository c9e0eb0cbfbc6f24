// SPDX-License-Identifier: Apache-2.0
// Shared receive queues, unreliable connections and datagrams, where the device has them.
#include <cstring>

#include "harness/conformance/cases.h"

namespace r2bench::conformance {
namespace {

constexpr size_t kGrh =
    40;  // bytes in front of each received datagram (IBTA volume 1, 8.3; RoCE keeps the room)

void shared_receive_queue(Device& device_a, Device& device_b, Notes& notes) {
  if (device_b.limits().max_srq == 0) throw NotOffered("SRQ");
  EndpointOptions shared;
  shared.shared_receive = true;
  Pair pair(device_a, device_b, {}, shared);
  device_b.events();
  for (uint64_t id = 1; id <= 4; ++id) require(pair.b.post_recv(id, id * 4096) == 0, "ibv_post_srq_recv");
  ibv_srq_attr attributes{};
  attributes.srq_limit = 3;
  notes.expect("arming the limit", "0", errno_name(ibv_modify_srq(pair.b.srq(), &attributes, IBV_SRQ_LIMIT)));
  std::string order;
  for (int i = 0; i < 3; ++i) {
    require(pair.a.post({.opcode = IBV_WR_SEND, .id = uint64_t(i), .bytes = 32}) == 0, "post");
    const ibv_wc received = pair.b.wait();
    order += std::to_string(received.wr_id);
    if (i == 0) {
      notes.expect("status", "SUCCESS", status_name(received.status));
      notes.expect_true("qp_num is the receiving queue pair's", received.qp_num == pair.b.qp()->qp_num);
    }
    pair.a.wait();
  }
  notes.expect("in order", "123", order);
  const auto events = device_b.events("SRQ_LIMIT_REACHED", std::chrono::seconds(5));
  notes.expect("event below the limit", "SRQ_LIMIT_REACHED", events.empty() ? "none" : events.back());
  require(pair.b.to(IBV_QPS_ERR) == 0, "ERR");
  const auto last = device_b.events("QP_LAST_WQE_REACHED", std::chrono::seconds(5));
  notes.expect("event of a queue pair in ERR", "QP_LAST_WQE_REACHED", last.empty() ? "none" : last.back());
}

void unreliable_connection(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.type = IBV_QPT_UC;
  options.qp_access = IBV_ACCESS_REMOTE_WRITE;
  Pair pair(device_a, device_b, options, options);
  std::memset(pair.a.memory(), 'u', 5000);
  require(pair.b.post_recv(1, 8192, 8192) == 0, "post_recv");
  require(pair.a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 5000}) == 0, "post");
  notes.expect("send", "SUCCESS", status_name(pair.a.wait().status));
  const auto received = pair.b.poll(std::chrono::seconds(20));
  notes.expect("receive", "SUCCESS", received ? status_name(received->status) : "none");
  notes.expect_true("data", std::memcmp(pair.a.memory(), pair.b.memory() + 8192, 5000) == 0);
  const int rc = pair.a.post({.opcode = IBV_WR_RDMA_READ, .id = 2, .bytes = 8});
  std::string told = errno_name(rc);
  if (rc == 0) {
    const auto completion = pair.a.poll(std::chrono::seconds(5));
    told = completion ? status_name(completion->status) : "never completes";
  }
  notes.expect("a READ is refused", "EINVAL|LOC_QP_OP_ERR", told);
}

void nobody_listens_to_uc(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.type = IBV_QPT_UC;
  Pair pair(device_a, device_b, options, options);
  pair.b.destroy_qp();
  require(pair.a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 64}) == 0, "post");
  notes.expect("an unreliable send to nobody", "SUCCESS", status_name(pair.a.wait().status));
}

/// Sends from `a` to `b` with `qkey`; the status at the sender.
std::string send_datagram(Endpoint& a, Endpoint& b, size_t bytes, uint32_t qkey) {
  ibv_ah_attr to{};
  to.is_global = 1;
  to.port_num = 1;
  to.dlid = b.device().port().lid;
  to.grh.dgid = b.device().gid();
  to.grh.sgid_index = uint8_t(a.device().gid_index());
  to.grh.hop_limit = 64;
  ibv_ah* handle = ibv_create_ah(a.pd(), &to);
  if (handle == nullptr && errno == EOPNOTSUPP) throw NotOffered("address handles");
  require(handle != nullptr, "ibv_create_ah");
  ibv_sge element{a.address(), uint32_t(bytes), a.mr()->lkey};
  ibv_send_wr request{};
  request.wr_id = 1;
  request.sg_list = &element;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = b.qp()->qp_num;
  request.wr.ud.remote_qkey = qkey;
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(a.qp(), &request, &bad);
  const std::string told = rc != 0 ? errno_name(rc) : status_name(a.wait().status);
  ibv_destroy_ah(handle);
  return told;
}

void datagram(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.type = IBV_QPT_UD;
  Pair pair(device_a, device_b, options, options);
  std::memset(pair.a.memory(), 'd', 1000);
  require(pair.b.post_recv(1, 4096, 8192) == 0, "post_recv");
  notes.expect("send", "SUCCESS", send_datagram(pair.a, pair.b, 1000, 0x1234));
  const auto received = pair.b.poll(std::chrono::seconds(20));
  notes.expect("receive", "SUCCESS", received ? status_name(received->status) : "none");
  if (received) {
    notes.expect("byte_len, GRH included", "1040", std::to_string(received->byte_len));
    notes.expect_true("flagged IBV_WC_GRH", (received->wc_flags & IBV_WC_GRH) != 0);
    notes.expect_true("src_qp", received->src_qp == pair.a.qp()->qp_num);
    notes.expect_true("data behind the GRH",
                      std::memcmp(pair.a.memory(), pair.b.memory() + 4096 + kGrh, 1000) == 0);
  }
  require(pair.b.post_recv(2, 4096, 8192) == 0, "post_recv");
  notes.expect("send with a wrong Q_Key", "SUCCESS", send_datagram(pair.a, pair.b, 100, 0x9999));
  notes.expect_true("is dropped at the receiver", !pair.b.poll(std::chrono::milliseconds(500)));
  notes.expect("send without a receive", "SUCCESS", send_datagram(pair.a, pair.b, 100, 0x1234));
}

void datagram_beyond_the_mtu(Device& device_a, Device& device_b, Notes& notes) {
  EndpointOptions options;
  options.type = IBV_QPT_UD;
  Pair pair(device_a, device_b, options, options);
  const size_t mtu = size_t(128) << int(device_a.port().active_mtu);
  require(pair.b.post_recv(1, 4096, 2 * mtu + kGrh) == 0, "post_recv");
  // IBTA volume 1, C10-93.1.1: nothing may leave the port, and that alone is no error. NICs tell it all the
  // same.
  notes.expect("a datagram of active_mtu + 1", "SUCCESS|EINVAL|LOC_LEN_ERR|EMSGSIZE",
               send_datagram(pair.a, pair.b, mtu + 1, 0x1234));
  notes.expect_true("it does not arrive", !pair.b.poll(std::chrono::milliseconds(500)));
}

}  // namespace

std::vector<Case> datagram_cases() {
  return {{"others.shared_receive_queue", shared_receive_queue},
          {"others.unreliable_connection", unreliable_connection},
          {"others.nobody_listens_to_uc", nobody_listens_to_uc},
          {"others.datagram", datagram},
          {"others.datagram_beyond_the_mtu", datagram_beyond_the_mtu}};
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& part :
       {state_cases(), transfer_cases(), error_cases(), event_cases(), limit_cases(), datagram_cases()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace r2bench::conformance
