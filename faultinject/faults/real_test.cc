// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class OutsideTest : public Nodes {};

TEST_F(OutsideTest, is_triggered_by_the_program_and_takes_effect_only_when_it_is_reported) {
  const uint32_t id = arm("{target: node0/nic0, kind: real_link_down, at: {wr: 2}}");
  start();
  for (int i = 1; i <= 2; i++) {
    EXPECT_EQ(board.state(id).phase, FaultState::Phase::kArmed) << i;
    EXPECT_EQ(a->ask("post 0 write " + std::to_string(i) + " 8 0"), "ok");
    const auto wcs = a->poll(0, 1, 5000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kSuccess) << "the injector itself changes nothing";
  }
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(board.state(id).t0_ns, 0u);

  board.report(id, 4711, 0, 0, Effect::kKernelLinkDown);
  board.report(id, 4712, 0, 0, Effect::kPutBack);
  EXPECT_EQ(board.state(id).t0_ns, 4711u);
  const auto witnesses = board.witnesses(id);
  ASSERT_EQ(witnesses.size(), 2u);
  EXPECT_EQ(witnesses[0].node, "node0");
  EXPECT_EQ(witnesses[0].effect, Effect::kKernelLinkDown);
  EXPECT_EQ(witnesses[1].what, "put back");
  EXPECT_THROW(board.report(id, 1, 99, 0, Effect::kPutBack), std::out_of_range);
}

TEST_F(OutsideTest, putting_back_alone_is_no_effect) {
  const uint32_t id = arm("{target: node0/nic0, kind: real_tc, loss: 1 %, at: now}");
  board.report(id, 4711, 0, 0, Effect::kPutBack);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
}

}  // namespace
}  // namespace faultinject::testing
