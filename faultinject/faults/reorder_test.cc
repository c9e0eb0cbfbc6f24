// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class ReorderTest : public Nodes {
 protected:
  // Two queue pairs write to one address, the second one last; what stands there in the end.
  uint64_t last_written() {
    a->must("set 0 111");
    a->must("post 0 write 1 8 0 inline");
    a->must("set 0 222");
    a->must("post 1 write 2 8 0 inline");
    EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
    EXPECT_EQ(a->poll(1, 1, 10000).at(0).status, kSuccess);
    return b->get(0);
  }
};

TEST_F(ReorderTest, sends_of_different_queue_pairs_change_places) {
  start(18, 7);
  a->make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  EXPECT_EQ(last_written(), 222u);
  const uint32_t id = arm("{target: node0/nic0, kind: reorder, depth: 2, window: 10 s, at: now}");
  ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kFired; }));
  a->must("create_cq");  // its process knows of the fault from here on
  EXPECT_EQ(last_written(), 111u);
  EXPECT_EQ(value(id, Effect::kReordered), 2u);
  board.heal(id);
  EXPECT_TRUE(eventually([&] { return last_written() == 222u; }));
}

TEST_F(ReorderTest, within_a_queue_pair_the_order_is_kept_and_the_window_bounds_the_wait) {
  start(18, 7);
  const uint32_t id = arm("{target: node0/nic0, kind: reorder, depth: 100, window: 20 ms, at: now}");
  for (int i = 0; i < 10; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  const auto wcs = a->poll(0, 10, 10000);
  ASSERT_EQ(wcs.size(), 10u);
  for (size_t i = 0; i < 10; i++) EXPECT_EQ(wcs[i].wr_id, i);
  EXPECT_EQ(board.state(id).t0_ns, 0u) << "one queue pair alone cannot be reordered";
}

TEST_F(ReorderTest, a_queue_pair_that_is_destroyed_holds_up_nobody) {
  start(18, 7);
  for (int i = 1; i < 3; i++) {
    a->make_qp(18, 7), b->make_qp(18, 7);
    ASSERT_NO_FATAL_FAILURE(connect(*a, i, *b, i));
  }
  arm("{target: node0/nic0, kind: reorder, depth: 3, window: 300 ms, at: {wr: 1}}");
  a->must("post 0 write 1 8 0");
  a->must("post 1 write 1 8 0");
  a->must("destroy 1");
  a->must("post 2 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
  EXPECT_EQ(a->poll(2, 1, 10000).at(0).status, kSuccess);
}

TEST_F(ReorderTest, two_holding_faults_on_one_port_do_not_wait_for_each_other) {
  start(18, 7);
  a->make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  arm("{target: node0/nic0, kind: throttle, rate: 100 Mbit/s, at: {wr: 1}}");
  arm("{target: node0/nic0, kind: delay, delay: 2 ms, jitter: 2 ms, at: {wr: 1}}");
  const uint32_t id = arm("{target: node0/nic0, kind: reorder, depth: 4, window: 10 s, at: {wr: 1}}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of all three from here on";
  for (int i = 0; i < 8; i++) {
    a->must("post 0 write " + std::to_string(i) + " 4096 0");
    a->must("post 1 write " + std::to_string(i) + " 4096 0");
  }
  for (int qp : {0, 1}) {
    const auto wcs = a->poll(qp, 8, 20000);
    ASSERT_EQ(wcs.size(), 8u);
    for (size_t i = 0; i < 8; i++) EXPECT_EQ(wcs[i].wr_id, i);
  }
  EXPECT_TRUE(witnessed(id, Effect::kReordered));
}

}  // namespace
}  // namespace faultinject::testing
