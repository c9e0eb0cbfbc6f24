// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class NoopTest : public Nodes {};

TEST_F(NoopTest, is_witnessed_and_changes_nothing) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: now}");
  start();
  a->must("set 0 77");
  EXPECT_EQ(a->ask("post 0 write 1 8 0"), "ok");
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(b->get(0), 77u);
  EXPECT_NE(board.state(id).t0_ns, 0u);
  EXPECT_TRUE(witnessed(id, Effect::kWrSeen, "node0"));
}

TEST_F(NoopTest, without_traffic_on_the_target_nothing_is_witnessed) {
  const uint32_t id = arm("{target: node0/nic1, kind: noop, at: now}");
  start();
  EXPECT_EQ(a->ask("post 0 write 1 8 0"), "ok");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  EXPECT_EQ(board.state(id).witnesses, 0u);
}

TEST_F(NoopTest, the_nth_wr_triggers_and_earlier_ones_do_not) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: {wr: 3}}");
  start();
  for (int i = 1; i <= 3; i++) {
    EXPECT_EQ(board.state(id).phase, FaultState::Phase::kArmed) << i;
    EXPECT_EQ(a->ask("post 0 write " + std::to_string(i) + " 8 0"), "ok");
    ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  }
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(NoopTest, a_wr_that_a_full_queue_refuses_is_not_the_nth) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: {wr: 5}}");
  start(14, 1, 2);
  for (int i = 1; i <= 3; i += 2) {
    for (int wr = i; wr <= i + 1; wr++)
      EXPECT_EQ(a->ask("post 0 write " + std::to_string(wr) + " 8 0"), "ok");
    for (int again = 0; again < 5 && i == 1; again++)
      EXPECT_EQ(a->ask("post 0 write 3 8 0"), "errno " + std::to_string(ENOMEM));
    ASSERT_EQ(a->poll(0, 2, 5000).size(), 2u);
  }
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kArmed);
  EXPECT_EQ(a->ask("post 0 write 5 8 0"), "ok");
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(NoopTest, the_nth_byte_triggers) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: {bytes: 10 KiB}}");
  start();
  for (int i = 1; i <= 3; i++) {
    EXPECT_EQ(board.state(id).t0_ns, 0u) << i;
    EXPECT_EQ(a->ask("post 0 write " + std::to_string(i) + " 4096 0"), "ok");
    ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  }
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(NoopTest, an_event_of_the_program_triggers) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, on: {event: checkpoint, value: 3}}");
  start();
  EXPECT_EQ(a->ask("raise checkpoint 2"), "ok");
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kArmed);
  EXPECT_EQ(b->ask("raise checkpoint 3"), "ok") << "any process may raise it";
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kFired);
  EXPECT_EQ(a->ask("post 0 write 1 8 0"), "ok");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  EXPECT_TRUE(eventually([&] { return board.state(id).t0_ns != 0 || a->ask("post 0 write 1 8 0") != "ok"; }));
}

TEST_F(NoopTest, time_since_the_first_operation_triggers_in_a_process_that_does_nothing_more) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: {time: 20 ms, since: first_op}}");
  start();
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kArmed);
  EXPECT_EQ(a->ask("post 0 write 1 8 0"), "ok");
  EXPECT_TRUE(eventually([&] { return board.state(id).triggered_ns != 0; }));
}

TEST_F(NoopTest, a_process_without_a_device_raises_events_too) {
  const uint32_t id = arm("{target: node0/nic0, kind: noop, on: {event: go, value: 2}}");
  Agent& other = agent("node0", "9");
  other.must("raise go 1");
  EXPECT_EQ(board.state(id).triggered_ns, 0u);
  other.must("raise go 2");
  EXPECT_NE(board.state(id).triggered_ns, 0u);
  const uint32_t later = arm("{target: node0/nic0, kind: noop, on: go}");
  ASSERT_NO_FATAL_FAILURE(other.open());
  other.must("raise go 1");
  EXPECT_NE(board.state(later).triggered_ns, 0u);
}

}  // namespace
}  // namespace faultinject::testing
