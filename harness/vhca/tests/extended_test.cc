// SPDX-License-Identifier: Apache-2.0
// ibv_wr_*, extended CQs, draining, and devices with several ports.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::uint64_t kAllOfRc = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

class Extended : public ::testing::Test {
 protected:
  void run(const FabricHost& fabric, const std::function<void()>& body) {
    Process process(fabric, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  void run(const std::function<void()>& body) { run(fabric_, body); }
  FabricHost fabric_ = make_fabric(2, 2);
};

ibv_qp_ex* begin(Endpoint& e, std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(e.qp());
  VHCA_REQUIRE(qp != nullptr);
  ibv_wr_start(qp);
  qp->wr_id = id;
  qp->wr_flags = flags;
  return qp;
}

void set_piece(ibv_qp_ex* qp, const Endpoint& e, std::size_t offset, std::uint32_t bytes) {
  ibv_wr_set_sge(qp, e.mr()->lkey, reinterpret_cast<std::uintptr_t>(e.memory() + offset), bytes);
}

TEST_F(Extended, requests_built_piece_by_piece_are_posted_together) {
  run([] {
    Endpoint a({.nic = 0, .send_ops = kAllOfRc}), b({.nic = 1});
    connect(a, b);
    b.post_recv(50);
    std::memcpy(a.memory(), "written", 7);
    b.word(512) = 30;
    ibv_qp_ex* qp = begin(a, 1);
    ibv_wr_rdma_write(qp, a.peer().rkey, a.peer().memory + 64);
    set_piece(qp, a, 0, 7);
    qp->wr_id = 2;
    ibv_wr_rdma_write_imm(qp, a.peer().rkey, a.peer().memory + 128, htonl(5));
    ibv_sge pieces[2] = {{reinterpret_cast<std::uintptr_t>(a.memory()), 3, a.mr()->lkey},
                         {reinterpret_cast<std::uintptr_t>(a.memory() + 3), 4, a.mr()->lkey}};
    ibv_wr_set_sge_list(qp, 2, pieces);
    qp->wr_id = 3;
    ibv_wr_rdma_read(qp, a.peer().rkey, a.peer().memory + 64);
    set_piece(qp, a, 1024, 7);
    qp->wr_id = 4;
    ibv_wr_atomic_fetch_add(qp, a.peer().rkey, a.peer().memory + 512, 3);
    set_piece(qp, a, 2048, 8);
    qp->wr_id = 5;
    ibv_wr_atomic_cmp_swp(qp, a.peer().rkey, a.peer().memory + 512, 33, 99);
    set_piece(qp, a, 2056, 8);
    VHCA_REQUIRE(a.nothing_to_poll());
    VHCA_REQUIRE_EQ(b.word(512), 30);
    VHCA_REQUIRE_EQ(ibv_wr_complete(qp), 0);
    for (std::uint64_t id = 1; id <= 5; ++id) a.expect(IBV_WC_SUCCESS, id);
    VHCA_REQUIRE_EQ(ntohl(b.expect(IBV_WC_SUCCESS, 50).imm_data), 5);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory() + 64, "written", 7), 0);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory() + 128, "written", 7), 0);
    VHCA_REQUIRE_EQ(std::memcmp(a.memory() + 1024, "written", 7), 0);
    VHCA_REQUIRE_EQ(a.word(2048), 30);
    VHCA_REQUIRE_EQ(a.word(2056), 33);
    VHCA_REQUIRE_EQ(b.word(512), 99);
  });
}

TEST_F(Extended, inline_data_may_be_reused_at_once) {
  run([] {
    Endpoint a({.nic = 0, .send_ops = kAllOfRc}), b({.nic = 1});
    connect(a, b);
    b.post_recv(1, 0, 64);
    b.post_recv(2, 64, 64);
    char text[8] = "one";
    ibv_qp_ex* qp = begin(a, 7);
    ibv_wr_send(qp);
    ibv_wr_set_inline_data(qp, text, 3);
    std::memcpy(text, "two", 3);
    ibv_wr_send_imm(qp, htonl(8));
    const ibv_data_buf list[2] = {{text, 1}, {text + 1, 2}};
    ibv_wr_set_inline_data_list(qp, 2, list);
    std::memset(text, 0, sizeof text);
    VHCA_REQUIRE_EQ(ibv_wr_complete(qp), 0);
    VHCA_REQUIRE_EQ(b.expect(IBV_WC_SUCCESS, 1).byte_len, 3);
    VHCA_REQUIRE_EQ(ntohl(b.expect(IBV_WC_SUCCESS, 2).imm_data), 8);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory(), "one", 3), 0);
    VHCA_REQUIRE_EQ(std::memcmp(b.memory() + 64, "two", 3), 0);
  });
}

TEST_F(Extended, what_is_given_up_or_refused_was_never_posted) {
  run([] {
    Endpoint a({.nic = 0, .send_ops = kAllOfRc, .send_depth = 4}), b({.nic = 1});
    connect(a, b);
    ibv_qp_ex* qp = begin(a, 1);
    ibv_wr_rdma_write(qp, a.peer().rkey, a.peer().memory);
    set_piece(qp, a, 0, 8);
    ibv_wr_abort(qp);
    qp = begin(a, 2);
    for (int i = 0; i < 5; ++i) {  // one more than the queue holds
      ibv_wr_rdma_write(qp, a.peer().rkey, a.peer().memory);
      set_piece(qp, a, 0, 8);
    }
    VHCA_REQUIRE_EQ(ibv_wr_complete(qp), ENOMEM);
    qp = begin(a, 3);
    ibv_wr_rdma_write(qp, a.peer().rkey, a.peer().memory);
    char big[512] = {};
    ibv_wr_set_inline_data(qp, big, sizeof big);  // the QP takes 256
    VHCA_REQUIRE_EQ(ibv_wr_complete(qp), EINVAL);
    a.post({.id = 4, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 4);
    VHCA_REQUIRE(a.nothing_to_poll());
  });
}

TEST_F(Extended, datagrams_are_addressed_by_set_ud_addr) {
  run([] {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD, .send_ops = IBV_QP_EX_WITH_SEND}),
        b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    b.post_recv(1, 0, 256);
    ibv_qp_ex* qp = begin(a, 2);
    ibv_wr_send(qp);
    ibv_wr_set_ud_addr(qp, a.ah(), a.peer().qp_num, kQkey);
    set_piece(qp, a, 0, 16);
    VHCA_REQUIRE_EQ(ibv_wr_complete(qp), 0);
    a.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE_EQ(b.expect(IBV_WC_SUCCESS, 1).byte_len, 56);
  });
}

TEST_F(Extended, a_walked_cq_shows_each_completion_once) {
  run([] {
    Endpoint a({.nic = 0, .walked_fields = IBV_WC_STANDARD_FLAGS}),
        b({.nic = 1, .walked_fields = IBV_WC_STANDARD_FLAGS});
    connect(a, b);
    ibv_cq_ex* cq = b.walked_cq();
    ibv_poll_cq_attr none{};
    VHCA_REQUIRE_EQ(ibv_start_poll(cq, &none), ENOENT);
    for (std::uint64_t i = 0; i < 3; ++i) b.post_recv(10 + i, 64 * i, 64);
    for (std::uint64_t i = 0; i < 3; ++i) {
      a.post({.opcode = IBV_WR_SEND_WITH_IMM,
              .id = i,
              .bytes = 8 + i,
              .imm = htonl(static_cast<std::uint32_t>(i))});
      a.expect(IBV_WC_SUCCESS, i);  // the ordinary way works as well
    }
    VHCA_REQUIRE_EQ(ibv_start_poll(cq, &none), 0);
    for (std::uint64_t i = 0; i < 3; ++i) {
      VHCA_REQUIRE_EQ(cq->status, IBV_WC_SUCCESS);
      VHCA_REQUIRE_EQ(cq->wr_id, 10 + i);
      VHCA_REQUIRE_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
      VHCA_REQUIRE_EQ(ibv_wc_read_byte_len(cq), 8 + i);
      VHCA_REQUIRE_EQ(ntohl(ibv_wc_read_imm_data(cq)), i);
      VHCA_REQUIRE_EQ(ibv_wc_read_qp_num(cq), b.qp()->qp_num);
      VHCA_REQUIRE_EQ(ibv_wc_read_src_qp(cq), a.qp()->qp_num);
      VHCA_REQUIRE_EQ(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_IMM);
      VHCA_REQUIRE_EQ(ibv_next_poll(cq), i == 2 ? ENOENT : 0);
    }
    ibv_end_poll(cq);
    VHCA_REQUIRE_EQ(ibv_start_poll(cq, &none), ENOENT);
    b.post_recv(20, 0, 64);
    b.to_error();
    VHCA_REQUIRE_EQ(ibv_start_poll(cq, &none), 0);
    VHCA_REQUIRE_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
    VHCA_REQUIRE_EQ(cq->wr_id, 20);
    VHCA_REQUIRE(ibv_wc_read_vendor_err(cq) != 0);
    ibv_end_poll(cq);
  });
}

TEST_F(Extended, a_drained_send_queue_holds_back_what_is_posted_later) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    b.post_recv(1);
    a.post({.opcode = IBV_WR_SEND, .id = 1});
    a.expect(IBV_WC_SUCCESS, 1);
    b.expect(IBV_WC_SUCCESS, 1);
    a.post({.opcode = IBV_WR_SEND, .id = 2});  // waits for a receive request: not done when draining begins
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    a.post({.id = 3, .bytes = 8});
    ibv_qp_init_attr init;
    VHCA_REQUIRE_EQ(ibv_query_qp(a.qp(), &attr, IBV_QP_STATE, &init), 0);
    VHCA_REQUIRE_EQ(attr.qp_state, IBV_QPS_SQD);
    VHCA_REQUIRE_EQ(attr.sq_draining, 1);
    ibv_ah_attr path = attr.ah_attr;
    attr = {};
    attr.ah_attr = path;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_AV), EBUSY);
    b.post_recv(2);
    ibv_async_event event = wait_async(a);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    VHCA_REQUIRE(event.element.qp == a.qp());
    ibv_ack_async_event(&event);
    a.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE_EQ(ibv_query_qp(a.qp(), &attr, IBV_QP_STATE, &init), 0);
    VHCA_REQUIRE_EQ(attr.sq_draining, 0);
    VHCA_REQUIRE(a.nothing_to_poll());
    attr = {};
    attr.ah_attr = path;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_AV), 0);
    attr.qp_state = IBV_QPS_RTS;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE), 0);
    a.expect(IBV_WC_SUCCESS, 3);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_RTS);
  });
}

TEST_F(Extended, a_request_that_fails_while_draining_breaks_the_send_queue) {
  run(make_fabric(1, 2, 80'000'000), [] {  // 4000 bytes take 0.4 ms
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    connect(a, b);
    for (std::uint64_t i = 0; i < 50; ++i) a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 4000});
    a.post({.opcode = IBV_WR_SEND, .id = 50, .bytes = 4097});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE), 0);
    a.post({.opcode = IBV_WR_SEND, .id = 51, .bytes = 8});
    for (std::uint64_t i = 0; i < 50; ++i) a.expect(IBV_WC_SUCCESS, i);
    a.expect(IBV_WC_LOC_LEN_ERR, 50);
    a.expect(IBV_WC_WR_FLUSH_ERR, 51);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_SQE);
  });
}

TEST_F(Extended, a_device_may_have_several_ports_with_gids_and_counters_of_their_own) {
  FabricSpec spec = make_spec(1, 2);
  spec.ports_per_nic = 2;
  spec.mtu = 1024;
  const FabricHost fabric = FabricHost::create(spec);
  run(fabric, [] {
    Endpoint a({.nic = 0, .port = 2}), b({.nic = 1, .port = 1});
    connect(a, b);
    ibv_device_attr device;
    VHCA_REQUIRE_EQ(ibv_query_device(a.context(), &device), 0);
    VHCA_REQUIRE_EQ(device.phys_port_cnt, 2);
    ibv_port_attr port;
    VHCA_REQUIRE_EQ(ibv_query_port(a.context(), 2, &port), 0);
    VHCA_REQUIRE_EQ(port.active_mtu, IBV_MTU_1024);
    VHCA_REQUIRE_EQ(ibv_query_port(a.context(), 3, &port), EINVAL);
    ibv_gid_entry entries[8];
    VHCA_REQUIRE_EQ(ibv_query_gid_table(a.context(), entries, 8, 0), 4);
    VHCA_REQUIRE_EQ(ibv_query_gid_table(a.context(), entries, 4, 0), 4);
    VHCA_REQUIRE_EQ(ibv_query_gid_table(a.context(), entries, 3, 0), -EINVAL);
    VHCA_REQUIRE_EQ(ibv_query_gid_table(a.context(), entries, UINT16_MAX / sizeof *entries + 1, 0), -EINVAL);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < i; ++j)
        VHCA_REQUIRE(std::memcmp(&entries[i].gid, &entries[j].gid, sizeof(ibv_gid)) != 0);
    VHCA_REQUIRE_EQ(entries[3].port_num, 2);
    a.post({.id = 1, .bytes = 5000});
    a.expect(IBV_WC_SUCCESS, 1);
  });
  EXPECT_EQ(fabric.counters(0, 0, 2).tx_bytes, 5000u);
  EXPECT_EQ(fabric.counters(0, 0, 1).tx_bytes, 0u);
  EXPECT_EQ(fabric.counters(0, 1, 1).rx_bytes, 5000u);
  EXPECT_THROW(fabric.counters(0, 0, 3), std::out_of_range);
}

TEST_F(Extended, a_path_mtu_above_the_ports_is_refused) {
  FabricSpec spec = make_spec(1, 2);
  spec.mtu = 1024;
  run(FabricHost::create(spec), [] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_2048;
    attr.dest_qp_num = b.qp()->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = a.path_to(b.address());
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, mask), EINVAL);
    attr.path_mtu = IBV_MTU_1024;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, mask), 0);
  });
}

TEST_F(Extended, bad_shapes_of_a_fabric_are_refused) {
  FabricSpec spec = make_spec(1, 1);
  spec.mtu = 1500;
  EXPECT_THROW(FabricHost::create(spec), std::invalid_argument);
  spec.mtu = 4096;
  spec.ports_per_nic = 5;
  EXPECT_THROW(FabricHost::create(spec), std::invalid_argument);
}

}  // namespace
}  // namespace vhca::test
