#include "faultinject/tests/nodes.h"

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

TEST_F(BlackholeTest, what_arrived_before_it_stays_a_success) {
  start();
  a->must("post 0 write 1 8 0");
  // Delivered, but not yet polled when the fault strikes.
  ASSERT_TRUE(eventually([&] { return fabric.counters("node1", 0).rx_messages >= 1; }));
  a->must("state 0");
  const uint32_t id = arm("{target: node1/nic0, kind: blackhole}");
  const auto first = a->poll(0, 1, 5000);
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].status, kSuccess);
}

}  // namespace
}  // namespace faultinject::testing
