// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class PortFlapTest : public Nodes {};

TEST_F(PortFlapTest, the_link_goes_down_and_up_so_often_and_the_node_is_told_each_time) {
  start(20, 7);
  const uint32_t id =
      arm("{target: node1/nic0, kind: port_flap, down: 400 ms, up: 400 ms, count: 3, at: now}");
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(b->ask("event 10000"), "event " + std::to_string(kEventPortErr)) << i;
    EXPECT_EQ(b->ask("event 10000"), "event " + std::to_string(kEventPortActive)) << i;
  }
  EXPECT_EQ(a->ask("event 0"), "none");
  EXPECT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kHealed; }))
      << "it ends by itself";
  EXPECT_EQ(b->port_state(), kPortActive);
  EXPECT_EQ(count(id, Effect::kLinkDown), 3u);
  EXPECT_EQ(count(id, Effect::kLinkUp), 3u);
}

TEST_F(PortFlapTest, an_outage_shorter_than_the_retries_is_only_late) {
  start(20, 7);  // 34 s
  const uint32_t id = arm("{target: node1/nic0, kind: port_flap, down: 300 ms, up: 1 s, count: 1, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kLinkDown, "node1"); }));
  // Posted over and over: the outage may be over before a post on a busy machine.
  bool held = false;
  for (int i = 1; i <= 2000 && !held; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    const auto wcs = a->poll(0, 1, 20000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kSuccess);
    held = witnessed(id, Effect::kWrWithheld, "node0");
    if (board.state(id).phase == FaultState::Phase::kHealed) break;
  }
  EXPECT_TRUE(held);
  EXPECT_EQ(a->qp_state(0), kRts);
}

TEST_F(PortFlapTest, an_outage_longer_than_the_retries_ends_in_a_retry_error) {
  start(8, 1);  // 2 ms
  const uint32_t id = arm("{target: node1/nic0, kind: port_flap, down: 60 s, up: 1 s, count: 1, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kLinkDown, "node1"); }));
  int status = kSuccess;
  for (int i = 1; i <= 1000 && status == kSuccess; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    const auto wcs = a->poll(0, 1, 20000);
    ASSERT_EQ(wcs.size(), 1u);
    status = wcs[0].status;
    if (status != kSuccess) {
      EXPECT_GE(wcs[0].at_ns - board.state(id).t0_ns, retry_window_ns(8, 1));
    }
  }
  EXPECT_EQ(status, kRetryExceeded);
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
  EXPECT_EQ(b->port_state(), kPortDown);
  board.heal(id);
  EXPECT_TRUE(eventually([&] { return b->port_state() == kPortActive; }));
}

TEST_F(PortFlapTest, two_faults_on_one_port_both_must_let_a_send_go) {
  const uint32_t flap = arm("{target: node0/nic0, kind: port_flap, down: 60 s, up: 1 s, count: 1, at: now}");
  const uint32_t late = arm("{target: node0/nic0, kind: delay, delay: 200 ms, at: now}");
  start(20, 7);
  ASSERT_TRUE(eventually([&] { return witnessed(flap, Effect::kLinkDown, "node0"); }));
  a->must("post 0 write 1 8 0");
  ASSERT_TRUE(eventually(
      [&] { return witnessed(late, Effect::kWrWithheld) && witnessed(flap, Effect::kWrWithheld); }));
  board.heal(late);
  EXPECT_TRUE(a->poll(0, 1, 100).empty()) << "the link is still down";
  board.heal(flap);
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
}

TEST_F(PortFlapTest, a_port_that_the_nic_does_not_have_flaps_nowhere) {
  start();
  const uint32_t id =
      arm("{target: node0/nic0/port:2, kind: port_flap, down: 10 ms, up: 1 ms, count: 2, at: now}");
  EXPECT_EQ(a->ask("event 100"), "none");
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  EXPECT_TRUE(board.witnesses(id).empty());
}

}  // namespace
}  // namespace faultinject::testing
