// SPDX-License-Identifier: Apache-2.0
// What a NIC refuses although the bytes could be moved: ends that were
// connected with different values, completion queues that are too small, memory
// that is not there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

class Refusals : public ::testing::Test {
protected:
  // Runs the body in a process of its own on node0, with NICs 0 and 1.
  void run(const std::function<void()> &body) {
    Process process(fabric_, "node0", [&](const Wire &) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(1, 2);
};

TEST_F(Refusals,
       a_peer_that_expects_other_sequence_numbers_ends_in_retry_exhaustion) {
  run([] {
    constexpr std::uint32_t kBeyond24Bits = 1u << 24;
    Endpoint a(
        {.nic = 0, .retry = 1, .sq_psn = kBeyond24Bits + 5, .rq_psn = 9}),
        b({.nic = 1, .retry = 1, .sq_psn = 8, .rq_psn = 5});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 1);
    b.post({.id = 2, .bytes = 8});
    b.expect(IBV_WC_RETRY_EXC_ERR, 2);
    VHCA_REQUIRE_EQ(a.state(), IBV_QPS_RTS);
  });
}

TEST_F(Refusals,
       packets_longer_than_the_peers_path_mtu_are_an_invalid_request) {
  for (const bool sender_has_the_larger : {true, false})
    run([sender_has_the_larger] {
      Endpoint a(
          {.nic = 0,
           .path_mtu = sender_has_the_larger ? IBV_MTU_2048 : IBV_MTU_1024}),
          b({.nic = 1,
             .path_mtu = sender_has_the_larger ? IBV_MTU_1024 : IBV_MTU_2048});
      connect(a, b);
      a.post({.id = 1, .bytes = 1024});
      a.expect(IBV_WC_SUCCESS, 1);
      a.word(0) = 7;
      a.post({.id = 2, .bytes = 1 << 20});
      a.expect(IBV_WC_REM_INV_REQ_ERR, 2);
      VHCA_REQUIRE_EQ(b.state(), IBV_QPS_ERR);
      VHCA_REQUIRE_EQ(b.word(0), 0);
    });
}

TEST_F(Refusals, a_queue_pair_without_responder_resources_serves_no_reads) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .dest_reads = 0});
    connect(a, b);
    a.post({.id = 1, .bytes = 8});
    a.expect(IBV_WC_SUCCESS, 1);
    a.post({.opcode = IBV_WR_RDMA_READ, .id = 2, .bytes = 8});
    a.expect(IBV_WC_REM_INV_REQ_ERR, 2);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    VHCA_REQUIRE_EQ(ibv_query_qp(b.qp(), &attr, IBV_QP_ACCESS_FLAGS, &init), 0);
    VHCA_REQUIRE((attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) != 0);
  });
}

void expect_overrun(Endpoint &e) {
  ibv_async_event event = wait_async(e);
  VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  VHCA_REQUIRE(event.element.cq == e.cq());
  ibv_ack_async_event(&event);
  VHCA_REQUIRE_EQ(e.state(), IBV_QPS_ERR);
}

TEST_F(Refusals, sends_and_receives_share_the_room_of_a_completion_queue) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .cq_depth = 8});
    connect(a, b);
    for (std::uint64_t i = 0; i < 8; ++i)
      b.post_recv(i);
    for (std::uint64_t i = 0; i < 4; ++i)
      b.post({.id = i, .bytes = 8});
    for (std::uint64_t i = 0; i < 4; ++i) {
      a.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i});
      a.expect(IBV_WC_SUCCESS, i);
    }
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS); // it is full
    a.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 4});
    expect_overrun(b);
  });
}

TEST_F(Refusals, what_was_polled_leaves_its_room_in_the_completion_queue) {
  run([] {
    Endpoint a({.nic = 0}), b({.nic = 1, .cq_depth = 8});
    connect(a, b);
    for (std::uint64_t round = 0; round < 100; ++round) {
      for (std::uint64_t i = 0; i < 4; ++i)
        b.post_recv(10 + i);
      for (std::uint64_t i = 0; i < 4; ++i)
        b.post({.id = i, .bytes = 8});
      for (std::uint64_t i = 0; i < 4; ++i) {
        a.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i});
        a.expect(IBV_WC_SUCCESS, i);
      }
      for (std::uint64_t i = 0; i < 4; ++i)
        b.expect(IBV_WC_SUCCESS, i);
      for (std::uint64_t i = 0; i < 4; ++i)
        b.expect(IBV_WC_SUCCESS, 10 + i);
      if (round % 10 != 9)
        continue;
      // Flushed ones too, polled or not.
      for (std::uint64_t i = 0; i < 8; ++i)
        b.post_recv(20 + i);
      b.to_error();
      for (std::uint64_t i = 0; i < round % 9; ++i)
        b.expect(IBV_WC_WR_FLUSH_ERR, 20 + i);
      a.to_init_again();
      b.to_init_again();
      connect(a, b);
    }
    VHCA_REQUIRE_EQ(b.state(), IBV_QPS_RTS);
  });
}

TEST_F(Refusals, receives_that_are_flushed_take_room_in_the_completion_queue) {
  for (const bool polls : {true, false})
    run([polls] {
      Endpoint a({.nic = 0}), b({.nic = 1, .cq_depth = 4});
      connect(a, b);
      for (std::uint64_t i = 0; i < 4; ++i)
        b.post_recv(i);
      b.to_error();
      b.expect(IBV_WC_WR_FLUSH_ERR, 0);
      b.post_recv(4);
      if (polls)
        b.expect(IBV_WC_WR_FLUSH_ERR, 1);
      pollfd fd{b.context()->async_fd, POLLIN, 0};
      VHCA_REQUIRE_EQ(
          ::poll(&fd, 1, 300),
          0); // five, of which one was polled before the last was posted
      b.post_recv(5);
      b.post_recv(6);
      if (polls)
        b.expect(IBV_WC_WR_FLUSH_ERR, 2);
      expect_overrun(b);
    });
}

TEST_F(Refusals, memory_that_is_not_there_is_not_registered) {
  run([] {
    Endpoint a({.nic = 0});
    constexpr std::size_t kPages = 4096 * 3,
                          kPage = 4096; // more than is looked at at once
    auto *const memory = static_cast<char *>(
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    VHCA_REQUIRE_EQ(::munmap(memory + (kPages - 1) * kPage, kPage), 0);
    const auto is_refused = [&](char *address, std::size_t bytes) {
      ibv_mr *const mr =
          ibv_reg_mr(a.pd(), address, bytes, IBV_ACCESS_LOCAL_WRITE);
      const int error = errno;
      if (mr)
        VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
      return mr == nullptr && error == EFAULT;
    };
    VHCA_REQUIRE(!is_refused(memory, (kPages - 1) * kPage));
    VHCA_REQUIRE(!is_refused(memory + 5, 1));
    VHCA_REQUIRE(is_refused(memory, kPages * kPage));
    VHCA_REQUIRE(is_refused(memory, (kPages - 1) * kPage + 1));
    VHCA_REQUIRE(is_refused(memory + (kPages - 1) * kPage + 100, 1));
    VHCA_REQUIRE(is_refused(nullptr, 8));
  });
}

} // namespace
} // namespace vhca::test
