// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: requests go to whichever QP needs one first, none is lost or used twice, whoever is
// killed.
#include <gtest/gtest.h>

#include <set>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

class SharedReceive : public ::testing::Test {
 protected:
  void run(const std::function<void()>& body) {
    Process process(fabric_, "node0", [&](const Wire&) { body(); });
    EXPECT_EQ(process.wait(), 0);
  }
  FabricHost fabric_ = make_fabric(4, 2);
};

TEST_F(SharedReceive, requests_are_taken_in_order_by_whichever_qp_needs_one) {
  run([] {
    Endpoint server({.nic = 0, .srq_wr = 16});
    Endpoint second({.share = &server});
    Endpoint a({.nic = 1}), b({.nic = 1});
    connect(a, server);
    connect(b, second);
    for (std::uint64_t i = 0; i < 4; ++i) server.post_recv(100 + i, 64 * i, 64);
    Endpoint* order[] = {&a, &b, &b, &a};
    for (std::uint64_t i = 0; i < 4; ++i) {
      order[i]->memory()[0] = static_cast<char>('a' + i);
      order[i]->post({.opcode = IBV_WR_SEND, .id = i, .bytes = 1 + i});
      order[i]->expect(IBV_WC_SUCCESS, i);
      const ibv_wc wc = server.wait();
      VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
      VHCA_REQUIRE_EQ(wc.wr_id, 100 + i);
      VHCA_REQUIRE_EQ(wc.byte_len, 1 + i);
      VHCA_REQUIRE_EQ(wc.qp_num, order[i] == &a ? server.qp()->qp_num : second.qp()->qp_num);
      VHCA_REQUIRE_EQ(server.memory()[64 * i], 'a' + static_cast<int>(i));
    }
    VHCA_REQUIRE_EQ(ibv_destroy_srq(server.srq()), EBUSY);
    ibv_recv_wr wr{}, *bad;
    VHCA_REQUIRE_EQ(ibv_post_recv(server.qp(), &wr, &bad), EINVAL);
  });
}

TEST_F(SharedReceive, an_empty_queue_is_not_ready_and_a_full_one_takes_no_more) {
  run([] {
    Endpoint server({.nic = 0, .srq_wr = 4}), a({.nic = 1});
    connect(a, server);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    VHCA_REQUIRE(server.nothing_to_poll() && a.nothing_to_poll());
    for (std::uint64_t i = 0; i < 4; ++i) server.post_recv(i, 0, 64);
    server.expect(IBV_WC_SUCCESS, 0);
    a.expect(IBV_WC_SUCCESS, 1);
    server.post_recv(4, 0, 64);  // the one that was polled made room
    VHCA_REQUIRE_EQ(server.try_post_recv(5, 0, 64), ENOMEM);
  });
}

TEST_F(SharedReceive, requests_come_in_order_round_and_round_the_ring) {
  run([] {
    Endpoint server({.nic = 0, .srq_wr = 4}), a({.nic = 1});
    connect(a, server);
    for (std::uint64_t i = 0; i < 4; ++i) server.post_recv(i, 0, 64);
    for (std::uint64_t i = 0; i < 20; ++i) {
      a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 8});
      a.expect(IBV_WC_SUCCESS, i);
      server.expect(IBV_WC_SUCCESS, i);
      server.post_recv(i + 4, 0, 64);
    }
  });
}

TEST_F(SharedReceive, the_limit_is_told_once) {
  run([] {
    Endpoint server({.nic = 0, .srq_wr = 16}), a({.nic = 1});
    connect(a, server);
    for (std::uint64_t i = 0; i < 6; ++i) server.post_recv(i, 0, 64);
    ibv_srq_attr attr{0, 0, 4};
    VHCA_REQUIRE_EQ(ibv_modify_srq(server.srq(), &attr, IBV_SRQ_LIMIT), 0);
    VHCA_REQUIRE_EQ(ibv_query_srq(server.srq(), &attr), 0);
    VHCA_REQUIRE_EQ(attr.srq_limit, 4);
    VHCA_REQUIRE_EQ(attr.max_wr, 16);
    for (std::uint64_t i = 0; i < 5; ++i) {
      a.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 8});
      a.expect(IBV_WC_SUCCESS, i);
    }
    ibv_async_event event = wait_async(server);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    VHCA_REQUIRE(event.element.srq == server.srq());
    ibv_ack_async_event(&event);
    VHCA_REQUIRE_EQ(ibv_query_srq(server.srq(), &attr), 0);
    VHCA_REQUIRE_EQ(attr.srq_limit, 0);
    pollfd fd{server.context()->async_fd, POLLIN, 0};
    VHCA_REQUIRE_EQ(::poll(&fd, 1, 0), 0);
    attr.max_wr = 32;
    VHCA_REQUIRE_EQ(ibv_modify_srq(server.srq(), &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  });
}

TEST_F(SharedReceive, a_broken_qp_says_that_it_takes_no_more_and_leaves_the_requests_to_others) {
  run([] {
    Endpoint server({.nic = 0, .srq_wr = 8});
    Endpoint second({.share = &server});
    Endpoint a({.nic = 1}), b({.nic = 1});
    connect(a, server);
    connect(b, second);
    server.post_recv(1, 0, 64);
    server.to_error();
    ibv_async_event event = wait_async(server);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    VHCA_REQUIRE(event.element.qp == server.qp());
    ibv_ack_async_event(&event);
    VHCA_REQUIRE(server.nothing_to_poll());
    b.post({.opcode = IBV_WR_SEND, .id = 2, .bytes = 8});
    b.expect(IBV_WC_SUCCESS, 2);
    VHCA_REQUIRE_EQ(server.wait().wr_id, 1);
  });
}

// Three processes send through one SRQ of eight requests, and are killed in the middle, again and again. In
// the end every request must still be there: all of them can be posted anew exactly when all were polled.
TEST_F(SharedReceive, no_request_is_lost_when_senders_are_killed) {
  constexpr int kRounds = 12;
  constexpr std::uint64_t kRequests = 8;
  Process server(fabric_, "node0", [](const Wire& wire) {
    Endpoint first({.srq_wr = kRequests});
    for (std::uint64_t i = 0; i < kRequests; ++i) first.post_recv(i, 64 * i, 64);
    std::uint64_t received = 0;
    std::set<std::uint64_t> out;  // requests that are posted
    for (std::uint64_t i = 0; i < kRequests; ++i) out.insert(i);
    const auto drain = [&](Endpoint& e) {
      ibv_wc wc;
      while (ibv_poll_cq(e.cq(), 1, &wc) == 1) {
        VHCA_REQUIRE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
        VHCA_REQUIRE_EQ(out.erase(wc.wr_id), 1);
        received += wc.status == IBV_WC_SUCCESS;
        first.post_recv(wc.wr_id, 64 * wc.wr_id, 64);
        out.insert(wc.wr_id);
      }
    };
    for (int round = 0; round < kRounds; ++round) {
      Endpoint a({.share = &first}), b({.share = &first});
      a.connect_over(wire);
      b.connect_over(wire);
      char word = 0;
      while (::recv(wire.fd(), &word, 1, MSG_DONTWAIT) != 1) drain(a);
      a.to_error();
      b.to_error();
      drain(a);
      for (int i = 0; i < 2; ++i) {
        ibv_async_event event = wait_async(first);
        ibv_ack_async_event(&event);
      }
    }
    VHCA_REQUIRE(received > 0);
    // Whole again: a last sender finds all eight and not one more.
    Endpoint last({.share = &first});
    last.connect_over(wire);
    wire.receive<char>();
    std::uint64_t left = 0;
    ibv_wc wc;
    while (ibv_poll_cq(first.cq(), 1, &wc) == 1) ++left;
    VHCA_REQUIRE_EQ(left, kRequests);
  });
  const auto flood = [](const Wire& wire) {
    Endpoint me({.timeout = 8, .retry = 1});
    me.connect_over(wire);
    wire.send('s');
    for (std::uint64_t i = 0;; ++i) {
      if (me.try_post({.opcode = IBV_WR_SEND, .id = i, .bytes = 32}) != 0) me.wait();
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    Process a(fabric_, "node1", flood);
    introduce(server, a);
    Process b(fabric_, "node2", flood);
    introduce(server, b);
    a.wire().receive<char>();
    b.wire().receive<char>();
    const timespec while_they_send{0, 3'000'000 + round * 700'000};
    ::nanosleep(&while_they_send, nullptr);
    a.signal(SIGKILL);
    b.signal(SIGKILL);
    EXPECT_EQ(a.wait(), 128 + SIGKILL);
    EXPECT_EQ(b.wait(), 128 + SIGKILL);
    server.wire().send('k');
  }
  Process last(fabric_, "node3", [](const Wire& wire) {
    Endpoint me({.rnr_retry = 0});
    me.connect_over(wire);
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      me.post({.opcode = IBV_WR_SEND, .id = i, .bytes = 32});
      me.expect(IBV_WC_SUCCESS, i);
    }
    me.post({.opcode = IBV_WR_SEND, .id = 99, .bytes = 32});
    me.expect(IBV_WC_RNR_RETRY_EXC_ERR, 99);
  });
  introduce(server, last);
  EXPECT_EQ(last.wait(), 0);
  server.wire().send('e');
  EXPECT_EQ(server.wait(), 0);
}

TEST_F(SharedReceive, leaves_nothing_behind) {
  Process killed(fabric_, "node0", [](const Wire& wire) {
    Endpoint server({.srq_wr = 64});
    wire.send('r');
    wire.receive<char>();
  });
  killed.wire().receive<char>();
  EXPECT_EQ(fabric_.usage().shared_receive_queues, 1u);
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_EQ(fabric_.usage().shared_receive_queues, 0u);
  EXPECT_EQ(fabric_.usage().arena_bytes, 0u);
  run([] { Endpoint server({.srq_wr = 64}); });
  EXPECT_EQ(fabric_.usage().shared_receive_queues, 0u);
  EXPECT_EQ(fabric_.usage().arena_bytes, 0u);
}

}  // namespace
}  // namespace vhca::test
