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

}  // namespace
}  // namespace faultinject::testing
