// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class BlackholeTest : public Nodes {};

TEST_F(BlackholeTest, traffic_is_lost_and_nobody_is_told) {
  start(12, 1);
  const uint32_t id = arm("{target: node1/nic0, kind: blackhole, at: now}");
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  a->must("set 64 99");
  a->must("post 0 write 1 8 64");
  const auto wcs = a->poll(0, 1, 10000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_GE(wcs[0].at_ns - board.state(id).t0_ns, retry_window_ns(12, 1));
  EXPECT_EQ(b->get(64), 0u);
  for (Agent* each : {a, b}) {
    EXPECT_EQ(each->port_state(), kPortActive);
    EXPECT_EQ(each->ask("event 0"), "none");
  }
}

TEST_F(BlackholeTest, in_what_the_port_sends_arrives_and_is_never_acknowledged) {
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  start(14, 1);
  a->must("set 0 4711");
  a->must("post 0 write 1 8 0");
  a->must("post 0 write 2 8 8 unsignaled");
  ASSERT_TRUE(eventually([&] { return b->get(0) == 4711u; })) << "its requests go out";
  EXPECT_EQ(a->qp_state(0), kRts);
  const auto wcs = a->poll(0, 2, 10000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].wr_id, 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_EQ(wcs[1].status, kFlushed) << "delivered or not, it was not acknowledged";
  EXPECT_GE(wcs[0].at_ns - board.state(id).t0_ns, retry_window_ns(14, 1) - 5 * kMs);
  EXPECT_TRUE(witnessed(id, Effect::kWcWithheld, "node0"));
  EXPECT_FALSE(witnessed(id, Effect::kWrWithheld, "node0"));
  b->must("set 64 99");
  b->must("post 0 write 3 8 64");
  EXPECT_EQ(b->poll(0, 1, 10000).at(0).status, kRetryExceeded) << "and what is sent to it does not arrive";
  EXPECT_EQ(a->get(64), 0u);
}

TEST_F(BlackholeTest, out_what_is_sent_to_the_port_arrives_and_is_never_acknowledged) {
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, direction: out, at: now}");
  start(14, 1);
  b->must("set 64 815");
  b->must("post 0 write 1 8 64");
  ASSERT_TRUE(eventually([&] { return a->get(64) == 815u; }));
  EXPECT_EQ(b->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  a->must("set 0 4711");
  a->must("post 0 write 2 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  EXPECT_EQ(b->get(0), 0u) << "what it sends is lost";
  EXPECT_TRUE(witnessed(id, Effect::kWrWithheld, "node0"));
}

TEST_F(BlackholeTest, a_read_over_a_way_without_a_way_back_fetches_nothing) {
  arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  start(12, 1);
  b->must("set 0 4711");
  a->must("post 0 read 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  EXPECT_EQ(a->get(0), 0u);
}

TEST_F(BlackholeTest, healed_within_the_retries_one_direction_loses_nothing) {
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  start(20, 7);  // 34 s
  a->must("set 0 4711");
  a->must("post 0 write 1 8 0");
  b->must("post 0 write 2 8 64");
  EXPECT_TRUE(a->poll(0, 1, 50).empty());
  EXPECT_TRUE(b->poll(0, 1, 50).empty());
  EXPECT_TRUE(witnessed(id, Effect::kWcWithheld, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kWrWithheld, "node1"));
  board.heal(id);
  for (Agent* each : {a, b}) EXPECT_EQ(each->poll(0, 1, 10000).at(0).status, kSuccess);
  EXPECT_EQ(b->get(0), 4711u);
}

// What was delivered and never acknowledged is older than what waits for its answer still.
TEST_F(BlackholeTest, in_a_queue_pair_that_its_program_ends_flushes_in_order) {
  arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  start(20, 7);  // 34 s
  a->must("set 0 4711");
  a->must("post 0 write 1 8 0");
  a->must("post 0 write 2 8 8 unsignaled");
  a->must("post 0 write 3 8 16");
  a->must("post 0 read 4 8 32");
  a->must("post 0 write 5 8 24");
  ASSERT_TRUE(eventually([&] { return b->get(0) == 4711u; }));
  EXPECT_TRUE(a->poll(0, 1, 50).empty());
  a->must("err 0");
  const auto wcs = a->poll(0, 5, 2000);
  ASSERT_EQ(wcs.size(), 5u);
  for (size_t i = 0; i < wcs.size(); i++) {
    EXPECT_EQ(wcs[i].wr_id, i + 1);
    EXPECT_EQ(wcs[i].status, kFlushed);
  }
}

TEST_F(BlackholeTest, only_towards_one_peer) {
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, peer: node1/nic1, at: now}");
  start(10, 0);
  Agent& c = agent("node1", "2");
  ASSERT_NO_FATAL_FAILURE(c.open(1));
  a->make_qp(10, 0), c.make_qp(10, 0);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, c, 0));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
  a->must("post 1 write 2 8 0");
  EXPECT_EQ(a->poll(1, 1, 10000).at(0).status, kRetryExceeded);
  EXPECT_EQ(count(id, Effect::kQpConnectedDead), 2u);
}

TEST_F(BlackholeTest, healing_one_direction_touches_no_queue_pair_of_the_program) {
  start(20, 7, 16, "shared", "channel no_access");
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  ASSERT_TRUE(eventually([&] {  // delivered, and the acknowledgement lost
    b->must("recv 0 1");        // one for each: many may pass before the fault takes effect
    a->must("post 0 send 1 8 0");
    EXPECT_EQ(b->poll(0, 1, 10000, "recv").size(), 1u);
    return a->sleep(0, 1, 100).empty() && witnessed(id, Effect::kWcWithheld, "node0");
  }));
  a->tell("sleep 0 send 1 20000");
  EXPECT_TRUE(a->is_silent(50));
  board.heal(id);
  EXPECT_EQ(a->hear().substr(0, 5), "ok 1:");
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(b->qp_state(0), kRts);
  EXPECT_EQ(b->ask("event 0"), "none");
}

// It took effect when the first send was posted whose acknowledgement was lost; that is known when the
// retries are exhausted.
TEST_F(BlackholeTest, in_a_program_that_signals_no_send_notices_when_its_retries_are_exhausted) {
  start(14, 1);
  const uint32_t id = arm("{target: node0/nic0, kind: blackhole, direction: in, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the fault from here on";
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  a->must("post 0 write 1 8 0 unsignaled");
  const auto wcs = a->poll(0, 1, 10000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_FALSE(witnessed(id, Effect::kWrWithheld));
  EXPECT_GE(board.state(id).t0_ns, before);
  EXPECT_GE(wcs[0].at_ns, board.state(id).t0_ns + retry_window_ns(14, 1));
}

}  // namespace
}  // namespace faultinject::testing
