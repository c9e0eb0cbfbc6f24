// SPDX-License-Identifier: Apache-2.0
// Completion channels and async events, across processes.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

bool readable(int fd, int timeout_ms) {
  pollfd state{fd, POLLIN, 0};
  return ::poll(&state, 1, timeout_ms) == 1;
}

void take_event(Endpoint& e) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  VHCA_REQUIRE_EQ(ibv_get_cq_event(e.channel(), &cq, &context), 0);
  VHCA_REQUIRE(cq == e.cq() && context == &e);
  ibv_ack_cq_events(cq, 1);
}

TEST(Events, a_channel_wakes_a_sleeper_once_per_arming) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me({.channel = true});
    for (std::uint64_t i = 0; i < 100; ++i) me.post_recv(i);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(me.cq(), 0), 0);
    me.connect_over(wire);
    for (std::uint64_t i = 0; i < 50; ++i) {
      wire.send('n');
      take_event(me);  // blocks
      me.expect(IBV_WC_SUCCESS, i);
      VHCA_REQUIRE(!readable(me.channel()->fd, 0));
      VHCA_REQUIRE_EQ(ibv_req_notify_cq(me.cq(), 0), 0);
    }
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (std::uint64_t i = 0; i < 50; ++i) {
      wire.receive<char>();
      me.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = i});
      me.expect(IBV_WC_SUCCESS, i);
    }
  });
  introduce(target, initiator);
  for (int i = 0; i < 50; ++i) initiator.wire().send(target.wire().receive<char>());
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(initiator.wait(), 0);
}

TEST(Events, solicited_arming_fires_for_solicited_messages_and_errors_only) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0}), b({.nic = 1, .channel = true});
    connect(a, b);
    for (std::uint64_t i = 0; i < 4; ++i) b.post_recv(i);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(b.cq(), 1), 0);
    a.post({.opcode = IBV_WR_SEND, .id = 1});
    a.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE(!readable(b.channel()->fd, 50));
    a.post({.opcode = IBV_WR_SEND, .id = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED});
    VHCA_REQUIRE(readable(b.channel()->fd, 10'000));
    take_event(b);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(b.cq(), 1), 0);
    b.to_error();
    VHCA_REQUIRE(readable(b.channel()->fd, 10'000));
    take_event(b);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Events, send_completions_wake_the_poster_of_a_paced_port) {
  const auto fabric = make_fabric(1, 2, 1'000'000'000);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0, .channel = true}), b({.nic = 1});
    connect(a, b);
    for (std::uint64_t i = 0; i < 10; ++i) {
      VHCA_REQUIRE_EQ(ibv_req_notify_cq(a.cq(), 0), 0);
      a.post({.id = i, .bytes = 125'000});
      take_event(a);
      a.expect(IBV_WC_SUCCESS, i);
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

// As ibv_get_cq_event(3) prescribes: arm, poll once more, and wait. That poll says nothing of polls to come,
// so the engine must not leave the work to them.
TEST(Events, the_last_poll_before_the_wait_delays_nothing) {
  constexpr std::size_t kRounds = 40, kBytes = 6'250;  // 50 us of the port
  const auto fabric = make_fabric(1, 2, 1'000'000'000);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0, .channel = true}), b({.nic = 1});
    connect(a, b);
    std::vector<std::uint64_t> took[2];  // ns from the post to the event: without and with that poll
    while (took[1].size() < kRounds) {
      for (const bool polls : {false, true}) {
        const std::uint64_t start = now_ns();
        a.post({.id = 1, .bytes = kBytes});
        VHCA_REQUIRE_EQ(ibv_req_notify_cq(a.cq(), 0), 0);
        if (polls && !a.nothing_to_poll()) {
          take_event(a);  // we were kept from the core for so long
          continue;
        }
        take_event(a);
        took[polls].push_back(now_ns() - start);
        a.expect(IBV_WC_SUCCESS, 1);
      }
    }
    for (auto& times : took)
      std::nth_element(times.begin(), times.begin() + kRounds / 4, times.begin() + kRounds);
    const std::uint64_t without = took[0][kRounds / 4], with = took[1][kRounds / 4];
    std::printf("quarter of the waits: %lu us, with a last poll %lu us\n", without / 1000, with / 1000);
    VHCA_REQUIRE(with < 2 * without);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Events, a_descriptor_that_does_not_block_says_so) {
  const auto fabric = make_fabric(1, 1);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.channel = true});
    for (const int fd : {a.channel()->fd, a.context()->async_fd})
      VHCA_REQUIRE_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    ibv_cq* cq;
    void* context;
    VHCA_REQUIRE_EQ(ibv_get_cq_event(a.channel(), &cq, &context), -1);
    VHCA_REQUIRE_EQ(errno, EAGAIN);
    ibv_async_event event;
    VHCA_REQUIRE_EQ(ibv_get_async_event(a.context(), &event), -1);
    VHCA_REQUIRE_EQ(errno, EAGAIN);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Events, a_remote_access_error_reaches_the_targets_process) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    ibv_async_event event;
    VHCA_REQUIRE(readable(me.context()->async_fd, 10'000));
    VHCA_REQUIRE_EQ(ibv_get_async_event(me.context(), &event), 0);
    VHCA_REQUIRE_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    VHCA_REQUIRE(event.element.qp == me.qp());
    ibv_ack_async_event(&event);
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    me.post({.id = 1, .bytes = 8, .rkey = 0x55555555});
    me.expect(IBV_WC_REM_ACCESS_ERR, 1);
  });
  introduce(target, initiator);
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(initiator.wait(), 0);
}

// Its own requests are flushed by the engine: the program sleeps on the channel.
TEST(Events, a_qp_that_its_peer_broke_flushes_what_it_was_sending) {
  const auto fabric = make_fabric(1, 2, 1'000'000);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0}), b({.nic = 1, .channel = true});
    connect(a, b);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(b.cq(), 0), 0);
    b.post({.id = 1, .bytes = 1 << 20});  // more than 8 s at 1 Mbit/s
    a.post({.id = 2, .bytes = 8, .rkey = 0x55555555});
    a.expect(IBV_WC_REM_ACCESS_ERR, 2);
    VHCA_REQUIRE(readable(b.channel()->fd, 5'000));
    take_event(b);
    b.expect(IBV_WC_WR_FLUSH_ERR, 1);
  });
  EXPECT_EQ(process.wait(), 0);
}

// The QP's next async event; none: IBV_EVENT_CLIENT_REREGISTER, which nobody raises here.
ibv_event_type next_event(const Endpoint& e, int timeout_ms) {
  if (!readable(e.context()->async_fd, timeout_ms)) return IBV_EVENT_CLIENT_REREGISTER;
  ibv_async_event event;
  VHCA_REQUIRE_EQ(ibv_get_async_event(e.context(), &event), 0);
  VHCA_REQUIRE(event.element.qp == e.qp());
  ibv_ack_async_event(&event);
  return event.event_type;
}
constexpr ibv_event_type kNoEvent = IBV_EVENT_CLIENT_REREGISTER;

void is_established_once(ibv_qp_type type) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint me({.type = type});
    wire.send(me.address());
    me.to_rtr(wire.receive<Address>());
    VHCA_REQUIRE_EQ(next_event(me, 0), kNoEvent);
    wire.send('r');
    VHCA_REQUIRE_EQ(next_event(me, 20'000), IBV_EVENT_COMM_EST);  // of the first of three
    wire.receive<char>();
    VHCA_REQUIRE_EQ(next_event(me, 200), kNoEvent);
    me.to_rts();
    wire.send('r');
    wire.receive<char>();
    VHCA_REQUIRE_EQ(next_event(me, 200), kNoEvent);
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    Endpoint me({.type = type});
    wire.send(me.address());
    me.connect(wire.receive<Address>());
    for (const int messages : {3, 1}) {
      wire.receive<char>();
      for (int i = 0; i < messages; ++i) {
        me.post({.id = 1, .bytes = 8});
        me.expect(IBV_WC_SUCCESS, 1);
      }
      wire.send('s');
    }
  });
  const auto address = target.wire().receive<Address>();
  target.wire().send(initiator.wire().receive<Address>());
  initiator.wire().send(address);
  for (int i = 0; i < 2; ++i) {
    initiator.wire().send(target.wire().receive<char>());
    target.wire().send(initiator.wire().receive<char>());
  }
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(initiator.wait(), 0);
}

TEST(Events, the_first_message_in_rtr_establishes_a_reliable_connection) { is_established_once(IBV_QPT_RC); }
TEST(Events, the_first_message_in_rtr_establishes_an_unreliable_connection) {
  is_established_once(IBV_QPT_UC);
}

TEST(Events, datagrams_establish_nothing_and_nor_do_messages_in_rts) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0, .type = IBV_QPT_UD}), b({.nic = 1, .type = IBV_QPT_UD});
    a.connect(b.address());
    b.to_rtr(a.address());
    b.post_recv(1, 0, 100);
    a.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 8});
    b.expect(IBV_WC_SUCCESS, 1);
    Endpoint c({.nic = 0}), d({.nic = 1});
    connect(c, d);
    c.post({.id = 1, .bytes = 8});
    c.expect(IBV_WC_SUCCESS, 1);
    VHCA_REQUIRE_EQ(next_event(b, 200), kNoEvent);
    VHCA_REQUIRE_EQ(next_event(d, 0), kNoEvent);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Events, each_life_of_a_qp_is_established_anew_and_before_it_breaks) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint b({.nic = 1});
    for (int life = 0; life < 3; ++life) {
      Endpoint a({.nic = 0});
      a.connect(b.address());
      b.to_rtr(a.address());
      // The very message that establishes it breaks it.
      a.post({.id = 1, .bytes = 8, .rkey = 0x55555555});
      a.expect(IBV_WC_REM_ACCESS_ERR, 1);
      VHCA_REQUIRE_EQ(next_event(b, 20'000), IBV_EVENT_COMM_EST);
      VHCA_REQUIRE_EQ(next_event(b, 20'000), IBV_EVENT_QP_ACCESS_ERR);
      b.to_init_again();
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Events, destroying_a_queue_removes_its_unread_events) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [](const Wire&) {
    Endpoint a({.nic = 0}), b({.nic = 1});
    ibv_comp_channel* channel = ibv_create_comp_channel(a.context());
    ibv_cq* cq = ibv_create_cq(a.context(), 16, nullptr, channel, 0);
    VHCA_REQUIRE_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(a.pd(), &init);
    VHCA_REQUIRE(qp != nullptr);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    VHCA_REQUIRE_EQ(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_ERR;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    ibv_destroy_qp(qp);
    VHCA_REQUIRE(readable(channel->fd, 10'000));
    VHCA_REQUIRE_EQ(ibv_destroy_cq(cq), 0);
    VHCA_REQUIRE(!readable(channel->fd, 0));
    VHCA_REQUIRE_EQ(ibv_destroy_comp_channel(channel), 0);
  });
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
