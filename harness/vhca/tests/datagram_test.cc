// SPDX-License-Identifier: Apache-2.0
// UD and UC: what arrives arrives whole, and what cannot is dropped, counted, and no error of the sender.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::size_t kGrh = 40;

class Datagrams : public ::testing::Test {
 protected:
  void run(const FabricHost& fabric, const std::function<void()>& body) {
    Process process(fabric, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(2, 2);
};

TEST_F(Datagrams, arrive_behind_a_grh_that_names_the_sender) {
  run(fabric_, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    std::memcpy(a.memory(), "datagram", 8);
    b.post_recv(5, 0, kGrh + 4096);
    a.post({.opcode = IBV_WR_SEND_WITH_IMM, .id = 1, .bytes = 8, .imm = htonl(9)});
    VHCA_REQUIRE_EQ(a.expect(IBV_WC_SUCCESS, 1).opcode, IBV_WC_SEND);
    ibv_wc wc = b.expect(IBV_WC_SUCCESS, 5);
    VHCA_REQUIRE_EQ(wc.byte_len, kGrh + 8);
    VHCA_REQUIRE_EQ(wc.src_qp, a.qp()->qp_num);
    VHCA_REQUIRE_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    VHCA_REQUIRE_EQ(ntohl(wc.imm_data), 9);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory() + kGrh, "datagram", 8), 0);
    auto* grh = reinterpret_cast<ibv_grh*>(b.memory());
    const Address from = a.address(), to = b.address();
    VHCA_REQUIRE_EQ(std::memcmp(&grh->sgid, &from.gid, sizeof from.gid), 0);
    VHCA_REQUIRE_EQ(std::memcmp(&grh->dgid, &to.gid, sizeof to.gid), 0);
    // An answer to whoever sent it, by an address handle made of nothing but the completion.
    ibv_ah* back = ibv_create_ah_from_wc(b.pd(), &wc, grh, 1);
    VHCA_REQUIRE(back != nullptr);
    a.post_recv(6, 8192, kGrh + 4096);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(b.memory() + kGrh), 8, b.mr()->lkey};
    ibv_send_wr answer{}, *bad;
    answer.wr_id = 7;
    answer.sg_list = &piece;
    answer.num_sge = 1;
    answer.opcode = IBV_WR_SEND;
    answer.wr.ud = {back, wc.src_qp, kQkey};
    VHCA_REQUIRE_EQ(ibv_post_send(b.qp(), &answer, &bad), 0);
    b.expect(IBV_WC_SUCCESS, 7);
    a.expect(IBV_WC_SUCCESS, 6);
    VHCA_REQUIRE_EQ(std::memcmp(a.memory() + 8192 + kGrh, "datagram", 8), 0);
    VHCA_REQUIRE_EQ(ibv_destroy_ah(back), 0);
  });
}

TEST_F(Datagrams, with_a_wrong_key_or_without_a_receive_are_dropped_and_counted) {
  run(fabric_, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});  // no receive request
    a.expect(IBV_WC_SUCCESS, 1);
    b.post_recv(5, 0, kGrh + 64);
    a.post({.opcode = IBV_WR_SEND, .id = 2, .bytes = 8, .qkey = 0x77});
    a.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE(b.nothing_to_poll());
    // The highest bit stands for the sender's own key, which is the right one here.
    a.post({.opcode = IBV_WR_SEND, .id = 3, .bytes = 8, .qkey = 0x80000000});
    a.expect(IBV_WC_SUCCESS, 3);
    b.expect(IBV_WC_SUCCESS, 5);
  });
  EXPECT_EQ(fabric_.counters(0, 0).dropped, 2u);
  EXPECT_EQ(fabric_.counters(0, 1).rx_messages, 1u);
  EXPECT_EQ(fabric_.counters(0, 0).tx_messages, 3u);
}

TEST_F(Datagrams, longer_than_the_mtu_break_the_send_queue_alone) {
  run(fabric_, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 4097});
    a.expect(IBV_WC_LOC_LEN_ERR, 1);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_SQE);
    a.post({.opcode = IBV_WR_SEND, .id = 2, .bytes = 8});
    a.expect(IBV_WC_WR_FLUSH_ERR, 2);
    // It still receives, and sends again when it is told to.
    a.post_recv(3, 0, kGrh + 64);
    b.post({.opcode = IBV_WR_SEND, .id = 4, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 3);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.cur_qp_state = IBV_QPS_SQE;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    b.expect(IBV_WC_SUCCESS, 4);
    b.post_recv(5, 0, kGrh + 64);
    a.post({.opcode = IBV_WR_SEND, .id = 6, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 6);
    b.expect(IBV_WC_SUCCESS, 5);
  });
}

TEST_F(Datagrams, do_nothing_but_send) {
  run(fabric_, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    VHCA_REQUIRE_EQ(a.try_post({.opcode = IBV_WR_RDMA_WRITE, .bytes = 8}), EINVAL);
    Endpoint c({.nic = 0, .type = IBV_QPT_UC}), d({.nic = 1, .type = IBV_QPT_UC});
    connect(c, d);
    VHCA_REQUIRE_EQ(c.try_post({.opcode = IBV_WR_RDMA_READ, .bytes = 8}), EINVAL);
    VHCA_REQUIRE_EQ(c.try_post({.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .bytes = 8}), EINVAL);
  });
}

TEST_F(Datagrams, find_an_infiniband_port_by_its_lid) {
  FabricSpec spec = make_spec(1, 2);
  spec.link_layer = LinkLayer::kInfiniBand;
  run(FabricHost::create(spec), [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD, .gid_index = -1}),
        b({.nic = 1, .type = IBV_QPT_UD, .gid_index = -1});
    connect(a, b);
    std::memcpy(a.memory(), "by lid", 6);
    b.post_recv(5, 0, kGrh + 64);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 6});
    a.expect(IBV_WC_SUCCESS, 1);
    ibv_wc wc = b.expect(IBV_WC_SUCCESS, 5);
    VHCA_REQUIRE_EQ(wc.wc_flags, 0);
    VHCA_REQUIRE_EQ(wc.slid, a.address().lid);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory() + kGrh, "by lid", 6), 0);
    // The connected services too; a LID that nobody has is no error until the retries run out.
    Endpoint c({.nic = 0, .gid_index = -1}), d({.nic = 1, .gid_index = -1});
    connect(c, d);
    c.post({.id = 2, .bytes = 100'000});
    c.expect(IBV_WC_SUCCESS, 2);
    Endpoint lost({.nic = 0, .gid_index = -1, .timeout = 8, .retry = 1});
    Address nobody = d.address();
    nobody.lid = 999;
    lost.connect(nobody);
    lost.post({.id = 3, .bytes = 8});
    lost.expect(IBV_WC_RETRY_EXC_ERR, 3);
  });
}

TEST_F(Datagrams, uc_writes_and_sends_arrive_and_what_finds_no_receive_is_dropped) {
  run(fabric_, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UC}), b({.nic = 1, .type = IBV_QPT_UC});
    connect(a, b);
    for (std::size_t i = 0; i < 700'000; ++i) a.memory()[i] = static_cast<char>(i * 7);
    a.post({.id = 1, .bytes = 700'000, .remote_offset = 100});
    VHCA_REQUIRE_EQ(a.expect(IBV_WC_SUCCESS, 1).opcode, IBV_WC_RDMA_WRITE);
    VHCA_REQUIRE_EQ(std::memcmp(a.memory(), b.memory() + 100, 700'000), 0);
    a.post({.opcode = IBV_WR_SEND, .id = 2, .bytes = 64});
    a.expect(IBV_WC_SUCCESS, 2);
    a.post({.id = 3, .bytes = 8, .rkey = 0xdeadbeef});
    a.expect(IBV_WC_SUCCESS, 3);
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS);
    b.post_recv(9, 0, 64);
    a.post({.opcode = IBV_WR_SEND, .id = 4, .offset = 1000, .bytes = 64});
    a.expect(IBV_WC_SUCCESS, 4);
    VHCA_REQUIRE_EQ(b.expect(IBV_WC_SUCCESS, 9).byte_len, 64);
    VHCA_REQUIRE_EQ(std::memcmp(a.memory() + 1000, b.memory(), 64), 0);
  });
  EXPECT_EQ(fabric_.counters(0, 0).dropped, 2u);
}

TEST_F(Datagrams, keep_to_the_rate_of_the_port) {
  const FabricHost fabric = make_fabric(1, 2, 80'000'000);  // 10 MB/s
  run(fabric, [] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < 100; ++i) a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 4000});
    for (std::uint64_t i = 0; i < 100; ++i) a.expect(IBV_WC_SUCCESS, i);
    VHCA_REQUIRE(now_ns() - start > 38'000'000);  // 400 kB at 10 MB/s: 40 ms; never sooner
  });
}

}  // namespace
}  // namespace vhca::test
