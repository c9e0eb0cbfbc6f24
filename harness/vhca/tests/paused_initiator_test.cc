// SPDX-License-Identifier: Apache-2.0
// Processes that use verbs, one of which is stopped or killed at a stated point of its send: what that costs
// the others.
#include "harness/vhca/testing/fabric_view.h"  // before objects.h, which undefines macros of verbs.h
#include "harness/vhca/testing/pause_at.h"
#include "harness/vhca/testing/shared_page.h"

#include "../responder/receive_signal.cc"
#include "../responder/responder.cc"

#include <gtest/gtest.h>

#include "harness/vhca/queues/runtime.h"

namespace vhca::test {
namespace {

// So slow that datagrams of 4 KiB keep it busy under a sanitizer, too.
constexpr std::uint64_t kRate = 100'000'000;
constexpr std::size_t kDatagram = 4096;
constexpr std::size_t kGrh = 40;
// 6.4 MiB, half a second of the port: so much its port serves for a queue pair that cannot send.
constexpr std::uint32_t kDepth = 1638;

struct Stage {
  Address target;
  std::atomic<bool> target_is_ready;
  std::atomic<std::uint64_t> killed_ns;
};

void pass(std::uint64_t ms) {
  const timespec t{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  ::nanosleep(&t, nullptr);
}

void receive_datagrams(Stage& stage) {
  Endpoint me({.type = IBV_QPT_UD, .recv_depth = kDepth, .cq_depth = 2 * kDepth});
  me.connect(me.address());  // to nobody
  for (std::uint32_t i = 0; i < kDepth; ++i) me.post_recv(i, 0, kGrh + kDatagram);
  stage.target = me.address();
  stage.target_is_ready.store(true);
  for (;; pass(1)) {
    ibv_wc wc[64];
    for (int got; (got = ibv_poll_cq(me.cq(), 64, wc)) > 0;)
      for (int i = 0; i < got; ++i) me.post_recv(wc[i].wr_id, 0, kGrh + kDatagram);
  }
}

// Keeps its send queue full.
void send_without_end(Endpoint& me, const Endpoint::Work& work, std::uint32_t outstanding) {
  for (std::uint32_t posted = 0;; pass(1)) {
    for (; posted < outstanding; ++posted) me.post(work);
    ibv_wc wc[64];
    for (int got; (got = ibv_poll_cq(me.cq(), 64, wc)) > 0;)
      for (int i = 0; i < got; ++i, --posted) VHCA_REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
  }
}

// Of a port that the others of this test use, too; in parts of its rate. Over so long that a process which
// waits for a core for a twentieth of a second does not matter.
struct Rates {
  double port;   // all that leaves node0
  double other;  // what arrives at node3, of it
};
Rates rates_over(const FabricHost& fabric, std::uint64_t ms) {
  const std::uint64_t t0 = now_ns();
  const std::uint64_t out = fabric.counters("node0", 0).tx_bytes, in = fabric.counters("node3", 0).rx_bytes;
  pass(ms);
  const std::uint64_t out_end = fabric.counters("node0", 0).tx_bytes;
  const std::uint64_t in_end = fabric.counters("node3", 0).rx_bytes;
  const double most = static_cast<double>(now_ns() - t0) * static_cast<double>(kRate) / 8e9;
  return {static_cast<double>(out_end - out) / most, static_cast<double>(in_end - in) / most};
}

// Two queue pairs share the port of node0, and one of them waits for a UD target that an initiator holds
// which was stopped in the middle of its datagram.
TEST(PausedInitiator,
     whoever_waits_for_the_target_that_it_holds_leaves_the_port_to_others_and_catches_nothing_up) {
  const auto fabric = make_fabric(4, 1, kRate);
  const FabricView view(fabric);
  SharedPage<Stage> stage;
  const Process target(fabric, "node1", [&](const Wire&) { receive_datagrams(*stage.operator->()); });
  ASSERT_TRUE(eventually([&] { return stage->target_is_ready.load(); }));
  const Process waiting(fabric, "node0", [&](const Wire&) {
    Endpoint me({.type = IBV_QPT_UD, .send_depth = kDepth, .cq_depth = 2 * kDepth});
    me.connect(stage->target);
    send_without_end(me, {.opcode = IBV_WR_SEND, .bytes = kDatagram}, kDepth);
  });
  const Process other_target(fabric, "node3", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (;;) ::pause();
  });
  const Process other(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    send_without_end(me, {.bytes = 16384}, 128);
  });
  introduce(other_target, other);
  pass(200);
  const Rates before = rates_over(fabric, 1'000);
  EXPECT_NEAR(before.port, 1.0, 0.1);
  EXPECT_NEAR(before.other, 0.5, 0.1);

  Process stopped(fabric, "node2", [&](const Wire&) {
    at_next("copied", [] { ::raise(SIGSTOP); });
    Endpoint me({.type = IBV_QPT_UD});
    me.connect(stage->target);
    me.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = kDatagram});
    me.expect(IBV_WC_SUCCESS, 1);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(stopped.pid(), &status, WUNTRACED), stopped.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_TRUE(view.is_held(stage->target.qp_num));
  pass(20);
  const Rates during = rates_over(fabric, 1'400);  // in which the port could serve all that waits
  EXPECT_NEAR(during.port, 1.0, 0.1);
  EXPECT_NEAR(during.other, during.port, 0.05);

  stopped.signal(SIGCONT);
  const Rates after = rates_over(fabric, 1'000);
  EXPECT_NEAR(after.port, 1.0, 0.1);
  EXPECT_NEAR(after.other, 0.5, 0.1);
  EXPECT_EQ(stopped.wait(), 0);
}

// It waits for an initiator that holds it, up to two seconds for one that runs.
TEST(PausedInitiator, a_queue_pair_whose_owner_is_killed_while_it_destroys_it_leaves_no_flow_behind) {
  const auto fabric = make_fabric(2, 1, kRate);
  const FabricView view(fabric);
  Process owner(fabric, "node1", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    wire.send(me.qp()->qp_num);
    wire.receive<char>();
    me.destroy_qp();
  });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    at_next("copied", [] {
      for (;;) ::pause();
    });
    Endpoint me;
    me.connect_over(wire);
    me.post({.bytes = 64});
    me.wait();
  });
  introduce(owner, initiator);
  const auto number = owner.wire().receive<std::uint32_t>();
  ASSERT_TRUE(eventually([&] { return view.is_held(number); }));
  owner.wire().send('d');
  ASSERT_TRUE(eventually([&] { return view.queue_pair(number).number.load() != number; }));
  for (Process* each : {&owner, &initiator}) {
    each->signal(SIGKILL);
    EXPECT_EQ(each->wait(), 128 + SIGKILL);
  }
  EXPECT_EQ(fabric.usage().queue_pairs, 0u);
  for (std::size_t port = 0; port < view->port_count; ++port)
    for (const RateServer* server : {&view->ports[port].tx, &view->ports[port].rx})
      for (std::size_t flow = 0; flow < kFlowsPerServer; ++flow)
        ASSERT_EQ(server->flow_owner[flow].load(), 0u) << "port " << port << ", flow " << flow;
}

// From the death of an initiator, at that point, until the receiver has the event in its hands.
void wait_for_event_of_the_dead(const char* point, std::uint64_t& took_ns) {
  const auto fabric = make_fabric(2, 1);
  SharedPage<Stage> stage;
  Process receiver(fabric, "node1", [](const Wire& wire) {
    Endpoint me({.channel = true});
    me.post_recv(7, 0, 64);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(me.cq(), 0), 0);
    me.connect_over(wire);
    pollfd fd{me.channel()->fd, POLLIN, 0};
    VHCA_REQUIRE_EQ(::poll(&fd, 1, 20'000), 1);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    VHCA_REQUIRE_EQ(ibv_get_cq_event(me.channel(), &cq, &context), 0);
    const std::uint64_t got = now_ns();
    VHCA_REQUIRE(cq == me.cq());
    ibv_ack_cq_events(cq, 1);
    me.expect(IBV_WC_SUCCESS, 7);
    wire.send(got);
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    at_next(point, [&] {
      stage->killed_ns.store(now_ns());
      ::kill(::getpid(), SIGKILL);
    });
    Endpoint me;
    me.connect_over(wire);
    me.post({.opcode = IBV_WR_SEND, .id = 1, .bytes = 64});
    me.expect(IBV_WC_SUCCESS, 1);
  });
  introduce(receiver, initiator);
  EXPECT_EQ(initiator.wait(), 128 + SIGKILL);
  std::uint64_t got = 0;
  ASSERT_EQ(::recv(receiver.wire().fd(), &got, sizeof got, MSG_WAITALL), 8) << "the receiver was not woken";
  EXPECT_EQ(receiver.wait(), 0);
  ASSERT_NE(stage->killed_ns.load(), 0u);
  took_ns = got - stage->killed_ns.load();
}

// It has completed the receive and told nobody; or has taken the arm of the receiver's queue, and has not
// rung for its engine.
class KilledInitiator : public ::testing::TestWithParam<const char*> {};

// The median of five, because a busy machine may wake the engine late.
TEST_P(KilledInitiator, an_event_that_it_left_behind_comes_within_two_heartbeats) {
  std::array<std::uint64_t, 5> took{};
  for (std::uint64_t& ns : took) ASSERT_NO_FATAL_FAILURE(wait_for_event_of_the_dead(GetParam(), ns));
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[2], 2 * kHeartbeatNs);
}
INSTANTIATE_TEST_SUITE_P(At, KilledInitiator, ::testing::Values("receive_completed", "disarmed"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace vhca::test
