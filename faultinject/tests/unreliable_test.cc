// SPDX-License-Identifier: Apache-2.0
// What a dead port does to those that no acknowledgement tells of it: datagrams and unreliable connections,
// whose sends succeed and vanish, and a queue pair that only receives.
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

constexpr int kRtr = 2;
constexpr int kSilenceMs = 200;

class UnreliableTest : public Nodes, public ::testing::WithParamInterface<const char*> {
 protected:
  // Sends are received by then: `wr_id` of what each end has got, one receive posted for it.
  void expect_arrives(Agent& from, Agent& to, int wr_id) {
    from.must("post 0 send " + std::to_string(wr_id) + " 8 0");
    const auto sent = from.poll(0, 1, 10000), got = to.poll(0, 1, 10000, "recv");
    ASSERT_EQ(sent.size(), 1u);
    ASSERT_EQ(got.size(), 1u) << wr_id;
    EXPECT_EQ(sent[0].status, kSuccess);
    EXPECT_EQ(got[0].status, kSuccess);
    to.must("recv 0 0");
  }
  // Three go, one of them unsignaled; they complete as ever, and none arrives.
  void expect_vanishes(uint32_t fault, Agent& from, Agent& to) {
    const size_t before = count(fault, Effect::kDatagramLost);
    from.must("post 0 send 101 8 0");
    from.must("post 0 send 102 8 0 unsignaled");
    from.must("post 0 send 103 8 0");
    const auto sent = from.poll(0, 2, 10000);
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].wr_id, 101u);
    EXPECT_EQ(sent[1].wr_id, 103u);
    for (const auto& wc : sent) EXPECT_EQ(wc.status, kSuccess);
    EXPECT_TRUE(to.poll(0, 1, kSilenceMs, "recv").empty());
    EXPECT_EQ(count(fault, Effect::kDatagramLost), before + 3);
    EXPECT_EQ(from.qp_state(0), kRts);
  }
  void open_both() {
    start(14, 1, 16, "split", GetParam());
    a->must("recv 0 0");
    b->must("recv 0 0");
    expect_arrives(*a, *b, 1);
    expect_arrives(*b, *a, 2);
  }
  void strike(uint32_t fault) {
    board.fire(fault);
    for (Agent* each : {a, b}) EXPECT_EQ(each->ask("create_cq"), "ok") << "its process has heard of it";
  }
  void heal(uint32_t fault) {
    board.heal(fault);
    for (Agent* each : {a, b}) EXPECT_EQ(each->ask("create_cq"), "ok");
  }
};

TEST_P(UnreliableTest, nothing_leaves_a_dead_port_and_nothing_reaches_it) {
  open_both();
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  strike(id);
  expect_vanishes(id, *a, *b);
  expect_vanishes(id, *b, *a);
  EXPECT_EQ(b->port_state(), kPortDown);
  heal(id);
  expect_arrives(*a, *b, 3);
  expect_arrives(*b, *a, 4);
}

TEST_P(UnreliableTest, what_a_queue_pair_sends_first_does_not_reach_it_either) {
  start(14, 1, 16, "split", GetParam());
  for (Agent* each : {a, b}) each->must("recv 0 0");
  expect_arrives(*b, *a, 1);
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  strike(id);
  expect_vanishes(id, *a, *b);
}

TEST_P(UnreliableTest, a_port_of_another_nic_is_no_concern) {
  open_both();
  const uint32_t id = arm("{target: 'node*/nic1', kind: port_down}");
  strike(id);
  expect_arrives(*a, *b, 3);
  expect_arrives(*b, *a, 4);
  EXPECT_EQ(count(id, Effect::kDatagramLost), 0u);
}

TEST_P(UnreliableTest, one_direction_alone_is_lost) {
  open_both();
  uint32_t id = arm("{target: node1/nic0, kind: blackhole, direction: in}");
  strike(id);
  expect_vanishes(id, *a, *b);
  expect_arrives(*b, *a, 3);
  heal(id);
  id = arm("{target: node1/nic0, kind: blackhole, direction: out}");
  strike(id);
  expect_vanishes(id, *b, *a);
  expect_arrives(*a, *b, 4);
}

TEST_P(UnreliableTest, a_flap_loses_what_is_sent_while_the_link_is_down) {
  open_both();
  const uint32_t id = arm("{target: node0/nic0, kind: port_flap, down: 1 h, up: 1 ms, count: 1}");
  strike(id);
  expect_vanishes(id, *a, *b);
  heal(id);
  expect_arrives(*a, *b, 3);
}

INSTANTIATE_TEST_SUITE_P(Both, UnreliableTest, ::testing::Values("ud", "uc"),
                         [](const auto& info) { return std::string(info.param); });

using UnreliableConnectionTest = UnreliableTest;

TEST_P(UnreliableConnectionTest, a_write_leaves_the_memory_alone) {
  start(14, 1, 16, "split", GetParam());
  a->must("set 64 4711");
  const uint32_t id = arm("{target: node1/nic0, kind: blackhole}");
  strike(id);
  a->must("post 0 write 1 8 64");
  ASSERT_EQ(a->poll(0, 1, 10000).size(), 1u);
  EXPECT_EQ(b->get(64), 0u);
  EXPECT_EQ(count(id, Effect::kDatagramLost), 1u);
  heal(id);
  a->must("post 0 write 2 8 64");
  ASSERT_EQ(a->poll(0, 1, 10000).size(), 1u);
  EXPECT_EQ(b->get(64), 4711u);
}

INSTANTIATE_TEST_SUITE_P(Uc, UnreliableConnectionTest, ::testing::Values("uc"));

class ReceiverTest : public Nodes {
 protected:
  // node1 stays in RTR; node0, which has no injector, sends.
  void open_both() {
    a = &agent("node0", "0", false);
    b = &agent("node1", "1");
    for (Agent* each : {a, b}) {
      each->open();
      each->make_qp(12, 1);
    }
    EXPECT_EQ(b->ask("connect 0 " + std::to_string(a->numbers[0]) + " " + a->gid + " " + a->address + " " +
                     a->key + " receive"),
              "ok");
    EXPECT_EQ(
        a->ask("connect 0 " + std::to_string(b->numbers[0]) + " " + b->gid + " " + b->address + " " + b->key),
        "ok");
    a->must("post 0 write 1 8 0");
    ASSERT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
    ASSERT_EQ(b->qp_state(0), kRtr);
  }
};

TEST_F(ReceiverTest, one_that_only_receives_is_cut_too_and_notices_nothing) {
  open_both();
  b->must("recv 0 50");
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node1"); }));
  a->must("post 0 write 2 8 0");
  const auto wcs = a->poll(0, 1, 20000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded) << "a sender that no injector knows finds nobody there";
  EXPECT_EQ(b->qp_state(0), kRtr);
  EXPECT_TRUE(b->poll(0, 1, kSilenceMs, "recv").empty());
}

TEST_F(ReceiverTest, it_reaches_rts_over_the_dead_port_and_its_first_send_runs_out_of_retries) {
  open_both();
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node1"); }));
  EXPECT_EQ(b->ask("rts 0"), "ok");
  EXPECT_EQ(b->qp_state(0), kRts);
  b->must("post 0 write 7 8 0");
  const auto wcs = b->poll(0, 1, 20000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 7u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
}

}  // namespace
}  // namespace faultinject::testing
