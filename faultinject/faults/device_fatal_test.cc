// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class DeviceFatalTest : public Nodes {};

TEST_F(DeviceFatalTest, everything_flushes_nothing_new_can_be_made_and_heal_ends_that) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: device_fatal}");
  for (int i = 1; i <= 2; i++) a->must("recv 0 " + std::to_string(i));
  board.fire(id);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventDeviceFatal));
  EXPECT_EQ(a->port_state(), kPortDown);
  EXPECT_EQ(a->qp_state(0), kErr);
  a->must("post 0 write 7 8 0");
  const auto wcs = a->poll(0, 3, 5000);
  ASSERT_EQ(wcs.size(), 3u);
  for (const Completion& wc : wcs) EXPECT_EQ(wc.status, kFlushed);
  const std::string refused = "errno " + std::to_string(EIO);
  EXPECT_EQ(a->ask("register"), refused);
  EXPECT_EQ(a->ask("create_cq"), refused);
  EXPECT_EQ(a->ask("qp 14 1 16 shared"), "error create_qp " + std::to_string(EIO));
  EXPECT_EQ(b->ask("event 0"), "none");
  EXPECT_TRUE(witnessed(id, Effect::kEventDelivered, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kCreateRefused, "node0"));
  board.heal(id);
  ASSERT_TRUE(eventually([&] { return a->port_state() == kPortActive; }));
  EXPECT_EQ(a->ask("register"), "ok");
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 1 write 1 8 0");
  EXPECT_EQ(a->poll(1, 1, 5000).at(0).status, kSuccess);
  EXPECT_EQ(a->qp_state(0), kErr) << "the old one stays where it is";
}

TEST_F(DeviceFatalTest, a_queue_pair_that_is_not_connected_yet_flushes_too) {
  start();
  a->make_qp(), a->make_qp();
  a->must("init 1");
  a->must("recv 1 5");
  EXPECT_EQ(a->qp_state(1), kInit);
  const uint32_t id = arm("{target: node0/nic0, kind: device_fatal, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventDeviceFatal));
  const auto wcs = a->poll(1, 1, 10000, "recv");
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kFlushed);
  EXPECT_EQ(a->qp_state(1), kErr);
  EXPECT_EQ(a->qp_state(2), kReset) << "there is nothing to break in RESET";
  EXPECT_EQ(count(id, Effect::kQpToErr), 2u) << "the connected one, and that one";
  board.heal(id);
  ASSERT_TRUE(eventually([&] { return a->port_state() == kPortActive; }));
  a->must("reset 1");
  b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 1 write 1 8 0");
  EXPECT_EQ(a->poll(1, 1, 10000).at(0).status, kSuccess);
}

TEST_F(DeviceFatalTest, its_peer_runs_into_its_own_retries) {
  start(10, 1);
  const uint32_t id = arm("{target: node0/nic0, kind: device_fatal, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  b->must("post 0 write 1 8 0");
  EXPECT_EQ(b->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  EXPECT_FALSE(witnessed(id, Effect::kQpToErr, "node1"));
}

}  // namespace
}  // namespace faultinject::testing
