// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class DropCompletionTest : public Nodes {};

TEST_F(DropCompletionTest, the_work_is_done_and_its_completion_never_comes) {
  const uint32_t id = arm("{target: node0/nic0, kind: drop_completion, at: {wr: 2}}");
  start();
  for (int i = 1; i <= 3; i++) {
    a->must("set 0 " + std::to_string(100 + i));
    a->must("post 0 write " + std::to_string(i) + " 8 0 inline");
    if (i == 1) {
      EXPECT_EQ(a->poll(0, 1, 5000).at(0).wr_id, 1u);
    }
    if (i == 2) {
      EXPECT_TRUE(eventually([&] { return b->get(0) == 102; })) << "it was delivered";
      EXPECT_TRUE(a->poll(0, 1, 50).empty());
    }
  }
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 3u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(count(id, Effect::kWcDropped), 1u);
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_TRUE(eventually([&] { return witnessed(id, Effect::kNextSeen, "node0"); }))
      << "what the program saw next";
}

TEST_F(DropCompletionTest, of_receives_too_and_heal_ends_it) {
  const uint32_t id = arm("{target: node1/nic0, kind: drop_completion, queue: recv, count: all, at: now}");
  start(14, 1, 16, "split");
  for (int i = 1; i <= 3; i++) b->must("recv 0 " + std::to_string(i));
  for (int i = 1; i <= 2; i++) {
    a->must("post 0 imm " + std::to_string(i) + " 8 0");
    EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  }
  EXPECT_TRUE(b->poll(0, 1, 50, "recv").empty());
  EXPECT_EQ(count(id, Effect::kWcDropped), 2u);
  board.heal(id);
  a->must("post 0 imm 3 8 0");
  const auto wcs = b->poll(0, 1, 5000, "recv");
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 3u) << "those that were taken away do not come back";
}

TEST_F(DropCompletionTest, only_towards_that_peer) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: drop_completion, peer: node1/nic1, count: all, at: now}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
}

}  // namespace
}  // namespace faultinject::testing
