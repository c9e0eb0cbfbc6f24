// SPDX-License-Identifier: Apache-2.0
// What fails must fail as on hardware: with the right status, on the right side, and with everything behind
// it flushed in order.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

class Errors : public ::testing::Test {
 protected:
  // Runs the body in a process of its own on node0, with NICs 0 and 1.
  void run(const std::function<void()>& body) {
    Process process(fabric_, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(2, 2);
};

void expect_access_error(Endpoint& a, Endpoint& b, Endpoint::Work bad) {
  b.post_recv(70);
  bad.id = 1;
  a.post({.id = 0, .bytes = 8});
  a.post(bad);
  if (a.try_post({.id = 2, .bytes = 8}) == 0) {
    a.expect(IBV_WC_SUCCESS, 0);
    a.expect(IBV_WC_REM_ACCESS_ERR, 1);
    a.expect(IBV_WC_WR_FLUSH_ERR, 2);
  }
  VHCA_REQUIRE_EQ(a.state(), IBV_QPS_ERR);
  VHCA_REQUIRE_EQ(b.state(), IBV_QPS_ERR);
  b.expect(IBV_WC_WR_FLUSH_ERR, 70);
  ibv_async_event event = wait_async(b);
  VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  VHCA_REQUIRE(event.element.qp == b.qp());
  ibv_ack_async_event(&event);
}

TEST_F(Errors, a_bad_rkey_is_a_remote_access_error_and_breaks_both_ends) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    expect_access_error(a, b, {.bytes = 8, .rkey = 0xdeadbeef});
  });
}
TEST_F(Errors, a_range_that_leaves_the_region_is_a_remote_access_error) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    expect_access_error(a, b, {.bytes = 16, .remote_offset = (1 << 20) - 8});
  });
}
TEST_F(Errors, a_region_without_the_right_is_a_remote_access_error) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
    connect(a, b);
    expect_access_error(a, b, {.opcode = IBV_WR_RDMA_READ, .bytes = 8});
  });
}
TEST_F(Errors, a_key_of_another_protection_domain_is_a_remote_access_error) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1}), c({.nic = 1});
    connect(a, b);
    expect_access_error(a, b, {.bytes = 8, .rkey = c.mr()->rkey});
  });
}
TEST_F(Errors, a_deregistered_key_is_a_remote_access_error) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    ibv_mr* mr = ibv_reg_mr(b.pd(), b.memory(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    const std::uint32_t rkey = mr->rkey;
    a.post({.id = 5, .bytes = 8, .rkey = rkey});
    a.expect(IBV_WC_SUCCESS, 5);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
    expect_access_error(a, b, {.bytes = 8, .rkey = rkey});
  });
}
TEST_F(Errors, a_region_registered_at_another_iova_is_addressed_by_it) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    ibv_mr* mr =
        ibv_reg_mr_iova(b.pd(), b.memory(), 4096, 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    VHCA_REQUIRE(mr != nullptr);
    const std::uint64_t memory = a.peer().memory;
    a.peer().memory = 0x1000;
    std::strcpy(a.memory(), "iova");
    a.post({.id = 1, .bytes = 5, .remote_offset = 100, .rkey = mr->rkey});
    a.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE(std::strcmp(b.memory() + 100, "iova") == 0);
    a.peer().memory = memory;
    expect_access_error(a, b, {.bytes = 5, .rkey = mr->rkey});
    ibv_dereg_mr(mr);
  });
}
TEST_F(Errors, an_operation_that_the_qp_does_not_allow_is_a_remote_invalid_request) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .qp_access = IBV_ACCESS_REMOTE_READ});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_REM_INV_REQ_ERR, 1);
  });
}
TEST_F(Errors, a_bad_lkey_is_a_local_protection_error_and_leaves_the_peer_alone) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    a.post({.id = 1, .bytes = 8, .lkey = 0x1234567});
    a.expect(IBV_WC_LOC_PROT_ERR, 1);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_ERR);
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS);
  });
}
TEST_F(Errors, a_message_too_long_for_the_receive_fails_on_both_sides) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    b.post_recv(7, 0, 16);
    b.post_recv(8, 0, 16);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 17});
    a.expect(IBV_WC_REM_INV_REQ_ERR, 1);
    b.expect(IBV_WC_LOC_LEN_ERR, 7);
    b.expect(IBV_WC_WR_FLUSH_ERR, 8);
  });
}
TEST_F(Errors, a_receive_with_a_bad_key_fails_on_both_sides) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(b.memory()), 64, 0x7654321};
    ibv_recv_wr wr{};
    wr.wr_id = 7;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    VHCA_REQUIRE_EQ(ibv_post_recv(b.qp(), &wr, &bad), 0);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    a.expect(IBV_WC_REM_OP_ERR, 1);
    b.expect(IBV_WC_LOC_PROT_ERR, 7);
  });
}

TEST_F(Errors, moving_to_err_flushes_both_queues_in_order_and_later_posts_too) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    for (std::uint64_t i = 0; i < 3; ++i) a.post_recv(100 + i, 0, 8);
    for (std::uint64_t i = 0; i < 5; ++i)
      a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 8});  // nobody receives: RNR
    a.to_error();
    std::uint64_t next_send = 0, next_recv = 100;
    for (int i = 0; i < 8; ++i) {
      const ibv_wc wc = a.wait();
      VHCA_REQUIRE_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
      VHCA_REQUIRE_EQ(wc.wr_id, wc.wr_id >= 100 ? next_recv++ : next_send++);
    }
    a.post_recv(200, 0, 8);
    a.expect(IBV_WC_WR_FLUSH_ERR, 200);
    a.post({.id = 201, .bytes = 8});
    a.expect(IBV_WC_WR_FLUSH_ERR, 201);
    VHCA_REQUIRE(a.nothing_to_poll());
  });
}

TEST_F(Errors, what_was_received_before_the_error_is_polled_before_the_flushes) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    for (std::uint64_t i = 0; i < 4; ++i) b.post_recv(i, 0, 8);
    for (std::uint64_t i = 0; i < 2; ++i) a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 8});
    b.to_error();
    b.expect(IBV_WC_SUCCESS, 0);
    b.expect(IBV_WC_SUCCESS, 1);
    b.expect(IBV_WC_WR_FLUSH_ERR, 2);
    b.expect(IBV_WC_WR_FLUSH_ERR, 3);
  });
}

TEST_F(Errors, a_reset_qp_forgets_and_can_be_connected_again) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    a.post_recv(1, 0, 8);
    a.to_error();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    VHCA_REQUIRE_EQ(ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE), 0);
    VHCA_REQUIRE(a.nothing_to_poll());
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    VHCA_REQUIRE_EQ(
        ibv_modify_qp(a.qp(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    a.connect(b.address());
    b.post({.id = 9, .bytes = 8});
    b.expect(IBV_WC_SUCCESS, 9);
  });
}

TEST_F(Errors, no_receive_ends_in_rnr_after_the_stated_retries) {
  run([] {
    // min_rnr_timer 16: 2.56 ms; 3 retries.
    Endpoint a({.nic = 0, .rnr_retry = 3}), b({.nic = 1, .min_rnr_timer = 16});
    connect(a, b);
    const std::uint64_t start = now_ns();
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    a.expect(IBV_WC_RNR_RETRY_EXC_ERR, 1);
    VHCA_REQUIRE(now_ns() - start >= 3 * 2'560'000);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_ERR);
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS);
  });
  EXPECT_EQ(fabric_.counters("node0", 0).rnr_naks, 4u);
}
TEST_F(Errors, rnr_retry_7_waits_until_a_receive_comes) {
  run([this] {
    Endpoint a({.nic = 0, .rnr_retry = 7}), b({.nic = 1});
    connect(a, b);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    while (fabric_.counters("node0", 0).rnr_naks <= 10) VHCA_REQUIRE(a.nothing_to_poll());
    b.post_recv(2, 0, 8);
    a.expect(IBV_WC_SUCCESS, 1);
    b.expect(IBV_WC_SUCCESS, 2);
  });
}

TEST_F(Errors, a_peer_that_is_not_ready_to_receive_ends_in_retry_exhaustion_at_the_stated_time) {
  run([] {
    // timeout 12: 16.8 ms; (3 + 1) of them.
    Endpoint a({.nic = 0, .timeout = 12, .retry = 3}), b({.nic = 1});
    a.connect(b.address());
    const std::uint64_t start = now_ns();
    a.post({.id = 1, .bytes = 8});
    a.post({.id = 2, .bytes = 8});
    a.expect(IBV_WC_RETRY_EXC_ERR, 1);
    VHCA_REQUIRE(now_ns() - start >= 4 * (4096ull << 12));
    a.expect(IBV_WC_WR_FLUSH_ERR, 2);
  });
  EXPECT_EQ(fabric_.counters("node0", 0).retry_exhausted, 1u);
}
TEST_F(Errors, a_peer_in_err_ends_in_retry_exhaustion) {
  run([] {
    Endpoint a({.nic = 0, .timeout = 8}), b({.nic = 1});
    connect(a, b);
    b.to_error();
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_RETRY_EXC_ERR, 1);
  });
}
TEST_F(Errors, a_peer_that_becomes_ready_before_the_retries_end_gets_the_message) {
  run([] {
    Endpoint a({.nic = 0, .timeout = 14, .retry = 7}), b({.nic = 1});
    a.connect(b.address());
    a.post({.id = 1, .bytes = 8});
    VHCA_REQUIRE(a.nothing_to_poll());
    b.connect(a.address());
    a.expect(IBV_WC_SUCCESS, 1);
  });
}
TEST_F(Errors, a_qp_answers_only_the_peer_it_was_connected_to) {
  run([] {
    Endpoint a({.nic = 0, .timeout = 8}), b({.nic = 1}), stranger({.nic = 0, .timeout = 8});
    connect(a, b);
    stranger.connect(b.address());
    stranger.post({.id = 1, .bytes = 8});
    stranger.expect(IBV_WC_RETRY_EXC_ERR, 1);
    a.post({.id = 2, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 2);
  });
}

TEST_F(Errors, a_completion_queue_that_runs_over_is_an_event_and_breaks_its_qps) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .cq_depth = 4});
    connect(a, b);
    for (std::uint64_t i = 0; i < 6; ++i) b.post_recv(i);
    for (std::uint64_t i = 0; i < 6; ++i) a.try_post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i});
    ibv_async_event event = wait_async(b);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    VHCA_REQUIRE(event.element.cq == b.cq());
    ibv_ack_async_event(&event);
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_ERR);
  });
}

TEST_F(Errors, a_completion_queue_can_be_resized_to_what_it_holds_and_not_below) {
  run([] {
    Endpoint a({.nic = 0, .cq_depth = 16}), b({.nic = 1});
    connect(a, b);
    for (std::uint64_t i = 0; i < 4; ++i) a.post_recv(100 + i, 0, 8);
    for (std::uint64_t i = 0; i < 4; ++i) {
      b.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 8});
      b.expect(IBV_WC_SUCCESS, i);
    }
    for (std::uint64_t i = 0; i < 4; ++i) a.post({.id = i, .bytes = 8});
    for (const int too_small : {0, -1, 3, 7}) VHCA_REQUIRE_EQ(ibv_resize_cq(a.cq(), too_small), EINVAL);
    VHCA_REQUIRE_EQ(a.cq()->cqe, 16);
    VHCA_REQUIRE_EQ(ibv_resize_cq(a.cq(), 8), 0);
    VHCA_REQUIRE_EQ(a.cq()->cqe, 8);
    for (std::uint64_t i = 0; i < 4; ++i) a.expect(IBV_WC_SUCCESS, i);
    for (std::uint64_t i = 0; i < 4; ++i) a.expect(IBV_WC_SUCCESS, 100 + i);
    VHCA_REQUIRE_EQ(ibv_resize_cq(a.cq(), 100), 0);
    for (std::uint64_t i = 0; i < 100; ++i) a.post({.id = i, .bytes = 8});
    for (std::uint64_t i = 0; i < 100; ++i) a.expect(IBV_WC_SUCCESS, i);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_RTS);
  });
}

TEST_F(Errors, a_partition_key_that_the_port_does_not_have_is_refused) {
  for (const LinkLayer link : {LinkLayer::kEthernet, LinkLayer::kInfiniBand}) {
    FabricSpec spec;
    spec.nodes = {{"node0", {PortSpec{}}}};
    spec.link_layer = link;
    fabric_ = FabricHost::create(spec);
    run([keys = link == LinkLayer::kInfiniBand ? 2 : 1] {
      Endpoint a({.nic = 0});
      ibv_port_attr port{};
      VHCA_REQUIRE_EQ(ibv_query_port(a.context(), 1, &port), 0);
      VHCA_REQUIRE_EQ(int(port.pkey_tbl_len), keys);
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = a.cq();
      init.qp_type = IBV_QPT_RC;
      ibv_qp* qp = ibv_create_qp(a.pd(), &init);
      VHCA_REQUIRE(qp != nullptr);
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = 1;
      constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      attr.pkey_index = uint16_t(keys);
      VHCA_REQUIRE_EQ(ibv_modify_qp(qp, &attr, kInit), EINVAL);
      __be16 key = 0;
      VHCA_REQUIRE_EQ(ibv_query_pkey(a.context(), 1, keys, &key), -1);
      for (int index = 0; index < keys; ++index) {
        VHCA_REQUIRE_EQ(ibv_query_pkey(a.context(), 1, index, &key), 0);
        VHCA_REQUIRE_EQ(ibv_get_pkey_index(a.context(), 1, key), index);
        attr.pkey_index = uint16_t(index);
        VHCA_REQUIRE_EQ(ibv_modify_qp(qp, &attr, kInit), 0);
      }
      VHCA_REQUIRE_EQ(ibv_destroy_qp(qp), 0);
    });
  }
}

TEST_F(Errors, what_is_not_served_says_so) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    VHCA_REQUIRE_EQ(a.try_post({.opcode = IBV_WR_SEND_WITH_INV, .bytes = 8}), EOPNOTSUPP);
    ibv_qp_init_attr raw{};
    raw.send_cq = raw.recv_cq = a.cq();
    raw.qp_type = IBV_QPT_RAW_PACKET;
    VHCA_REQUIRE(ibv_create_qp(a.pd(), &raw) == nullptr && errno == EOPNOTSUPP);
    ibv_ah_attr multicast{};
    multicast.is_global = 1;
    multicast.port_num = 1;
    multicast.grh.dgid.raw[0] = 0xff;
    VHCA_REQUIRE(ibv_create_ah(a.pd(), &multicast) == nullptr && errno == EOPNOTSUPP);
    ibv_cq_init_attr_ex cq{};
    cq.cqe = 8;
    cq.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    VHCA_REQUIRE(ibv_create_cq_ex(a.context(), &cq) == nullptr && errno == EOPNOTSUPP);
    ibv_qp_init_attr_ex ex{};
    ex.send_cq = ex.recv_cq = a.cq();
    ex.pd = a.pd();
    ex.qp_type = IBV_QPT_UD;
    ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    VHCA_REQUIRE(ibv_create_qp_ex(a.context(), &ex) == nullptr && errno == EOPNOTSUPP);
    VHCA_REQUIRE(ibv_qp_to_qp_ex(a.qp()) == nullptr);
  });
}

TEST_F(Errors, a_completion_queue_has_one_of_the_devices_vectors) {
  run([] {
    Endpoint a({.nic = 0});
    const int vectors = a.context()->num_comp_vectors;
    for (const int vector : {-1, vectors}) {
      VHCA_REQUIRE(ibv_create_cq(a.context(), 8, nullptr, nullptr, vector) == nullptr && errno == EINVAL);
      ibv_cq_init_attr_ex ex{};
      ex.cqe = 8;
      ex.comp_vector = static_cast<std::uint32_t>(vector);
      VHCA_REQUIRE(ibv_create_cq_ex(a.context(), &ex) == nullptr && errno == EINVAL);
    }
    for (const int vector : {0, vectors - 1}) {
      ibv_cq* const cq = ibv_create_cq(a.context(), 8, nullptr, nullptr, vector);
      VHCA_REQUIRE(cq != nullptr);
      VHCA_REQUIRE_EQ(ibv_destroy_cq(cq), 0);
    }
  });
}

// As harness/vhca/README.md says: a late packet for an old number would reach the new QP only then.
TEST_F(Errors, a_qp_number_is_used_again_after_510_other_uses_of_its_slot) {
  run([] {
    Endpoint a({.nic = 0});
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = a.cq();
    init.qp_type = IBV_QPT_RC;
    std::map<std::uint32_t, std::vector<std::uint32_t>> lives;  // by slot, the low bits of a number
    for (std::size_t most = 0; most < 3 * 511;) {
      ibv_qp* const qp = ibv_create_qp(a.pd(), &init);
      VHCA_REQUIRE(qp != nullptr);
      VHCA_REQUIRE(qp->qp_num > 1 && qp->qp_num < 1u << 24);
      std::vector<std::uint32_t>& numbers = lives[qp->qp_num & ((1u << 15) - 1)];
      numbers.push_back(qp->qp_num);
      most = std::max(most, numbers.size());
      VHCA_REQUIRE_EQ(ibv_destroy_qp(qp), 0);
    }
    for (const auto& [slot, numbers] : lives) {
      const std::size_t first = std::min<std::size_t>(511, numbers.size());
      VHCA_REQUIRE_EQ(std::set(numbers.begin(), numbers.begin() + std::ptrdiff_t(first)).size(), first);
      for (std::size_t i = first; i < numbers.size(); ++i) VHCA_REQUIRE_EQ(numbers[i], numbers[i - 511]);
    }
  });
}

TEST_F(Errors, objects_in_use_cannot_be_destroyed) {
  run([] {
    Endpoint a({.nic = 0});
    VHCA_REQUIRE_EQ(ibv_dealloc_pd(a.pd()), EBUSY);
    VHCA_REQUIRE_EQ(ibv_destroy_cq(a.cq()), EBUSY);
  });
}

int devices_seen(const char* fabric, const char* node, std::string& said, const char* memory = nullptr) {
  int out[2];
  if (::pipe(out) != 0) return -1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], STDERR_FILENO);
    ::setenv("VHCA_FABRIC", fabric, 1);
    if (node)
      ::setenv("VHCA_NODE", node, 1);
    else
      ::unsetenv("VHCA_NODE");
    if (memory) ::setenv("VHCA_MEMORY_NODE", memory, 1);
    int count = -1;
    ibv_device** list = ibv_get_device_list(&count);
    ::_exit(list ? count : 99);
  }
  ::close(out[1]);
  char text[2048];
  const ssize_t got = ::read(out[0], text, sizeof text);
  said.assign(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  ::close(out[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(Errors, a_bad_environment_names_the_variable_and_shows_no_devices) {
  std::string said;
  EXPECT_EQ(devices_seen("/nonexistent/fabric", "node0", said), 0);
  EXPECT_NE(said.find("VHCA_FABRIC=/nonexistent/fabric"), std::string::npos) << said;
  EXPECT_EQ(devices_seen("/dev/null", "node0", said), 0);
  EXPECT_NE(said.find("VHCA_FABRIC=/dev/null"), std::string::npos) << said;
  EXPECT_EQ(devices_seen(fabric_.path().c_str(), "nodeX", said), 0);
  EXPECT_NE(said.find("VHCA_NODE=nodeX"), std::string::npos) << said;
  EXPECT_EQ(devices_seen(fabric_.path().c_str(), nullptr, said), 0);
  EXPECT_NE(said.find("VHCA_NODE"), std::string::npos) << said;
  EXPECT_EQ(devices_seen("", "node0", said), 0);
  EXPECT_EQ(said, "");
  EXPECT_EQ(devices_seen(fabric_.path().c_str(), "node1", said), 2);
  EXPECT_EQ(said, "");
  for (const char* bad : {"64", "-1", "1x", ""}) {
    EXPECT_EQ(devices_seen(fabric_.path().c_str(), "node1", said, bad), 0);
    EXPECT_NE(said.find(std::string("VHCA_MEMORY_NODE=") + bad), std::string::npos) << said;
  }
  EXPECT_EQ(devices_seen(fabric_.path().c_str(), "node1", said, "63"), 2);
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace vhca::test
