// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class PostFailTest : public Nodes {};

TEST_F(PostFailTest, the_wr_is_refused_those_before_it_go_and_those_behind_it_do_not) {
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, errno: EINVAL, at: {wr: 3}}");
  start();
  EXPECT_EQ(a->ask("chain 0 5"), "errno " + std::to_string(EINVAL) + " at 3");
  const auto wcs = a->poll(0, 3, 200);
  ASSERT_EQ(wcs.size(), 2u);
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(wcs[i].wr_id, i + 1);
    EXPECT_EQ(wcs[i].status, kSuccess);
  }
  EXPECT_EQ(fabric.counters("node1", 0).rx_messages, 2u);
  EXPECT_EQ(value(id, Effect::kPostRefused), uint64_t(EINVAL));
  EXPECT_EQ(a->ask("post 0 write 9 8 0"), "ok") << "one refusal, and no more";
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
}

TEST_F(PostFailTest, until_it_is_healed) {
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, count: all, at: now}");
  start();
  for (int i = 0; i < 5; i++) EXPECT_EQ(a->ask("post 0 write 1 8 0"), "errno " + std::to_string(ENOMEM));
  EXPECT_EQ(b->ask("post 0 write 1 8 0"), "ok") << "the other node is not the target";
  board.heal(id);
  EXPECT_TRUE(eventually([&] { return a->ask("post 0 write 1 8 0") == "ok"; }));
}

TEST_F(PostFailTest, of_receives) {
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, queue: recv, count: 2, at: now}");
  start();
  EXPECT_EQ(a->ask("post 0 write 1 8 0"), "ok");
  for (int i = 0; i < 2; i++) EXPECT_EQ(a->ask("recv 0 1"), "errno " + std::to_string(ENOMEM));
  EXPECT_EQ(a->ask("recv 0 1"), "ok");
  EXPECT_EQ(count(id, Effect::kPostRefused), 2u);
}

// Who ends the round of a dead process wakes the others: none of them knew when the next one is due.
TEST_F(PostFailTest, the_round_of_a_killed_process_is_followed_by_the_next_at_its_time) {
  start();
  a->must("post 0 write 1 8 0");
  a->poll(0, 1, 5000);
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, at: now, repeat: 2, every: 1 ms}");
  ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kFired; }));
  ::poll(nullptr, 0, 200);  // their threads sleep again
  take_first_strike(id);
  a->must("post 0 write 2 8 0");
  EXPECT_TRUE(second_round_fires_within(id, 5000));
}

TEST_F(PostFailTest, a_post_that_its_queue_pair_does_not_take_yet_is_not_struck) {
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, errno: ENOMEM, at: now}");
  start();
  a->make_qp();
  EXPECT_EQ(a->ask("post 1 write 1 8 0"), "errno " + std::to_string(EINVAL));
  EXPECT_EQ(count(id, Effect::kPostRefused), 0u);
  EXPECT_EQ(a->ask("post 0 write 2 8 0"), "errno " + std::to_string(ENOMEM));
  EXPECT_EQ(count(id, Effect::kPostRefused), 1u);
}

}  // namespace
}  // namespace faultinject::testing
