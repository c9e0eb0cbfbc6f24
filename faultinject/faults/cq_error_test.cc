// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class CqErrorTest : public Nodes {};

TEST_F(CqErrorTest, the_queue_shows_nothing_any_more_and_its_queue_pairs_fail) {
  start(14, 1, 16, "split");
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  for (int i = 1; i <= 2; i++) a->must("recv 0 " + std::to_string(i));
  const uint32_t id = arm("{target: node0/nic0/qp:0, kind: cq_error}");
  board.fire(id);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventCqErr));
  EXPECT_EQ(a->ask("event 5000"),
            "event " + std::to_string(kEventQpFatal) + " " + std::to_string(a->numbers[0]));
  EXPECT_EQ(a->qp_state(0), kErr);
  a->must("post 0 write 7 8 0");
  EXPECT_TRUE(a->poll(0, 1, 100).empty()) << "not even its flush";
  const auto receives = a->poll(0, 2, 5000, "recv");
  ASSERT_EQ(receives.size(), 2u) << "the other queue shows its flushes";
  EXPECT_EQ(receives[0].status, kFlushed);
  a->must("post 1 write 1 8 0");
  EXPECT_EQ(a->poll(1, 1, 5000).at(0).status, kSuccess) << "another queue pair with queues of its own";
  EXPECT_TRUE(witnessed(id, Effect::kCqDead, "node0"));
  board.heal(id);
  ASSERT_TRUE(eventually([&] {
    a->must("post 0 write 8 8 0");
    return !a->poll(0, 1, 50).empty();
  })) << "it shows again what comes from then on";
  a->must("close");
}

TEST_F(CqErrorTest, the_busiest_by_default_and_its_receive_queue_where_asked) {
  start(14, 1, 16, "split");
  const uint32_t id = arm("{target: node0/nic0, kind: cq_error, queue: recv, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the fault from here on";
  EXPECT_EQ(a->ask("event 50"), "none") << "none has posted";
  a->must("recv 0 1");
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventCqErr));
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kFlushed) << "it failed before that WR";
  EXPECT_TRUE(a->poll(0, 1, 50, "recv").empty());
  EXPECT_EQ(count(id, Effect::kCqDead), 1u);
}

TEST_F(CqErrorTest, the_receive_queue_of_the_busiest_by_opcode) {
  start(14, 1, 16, "split");
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  const uint32_t id = arm("{target: node0/nic0, kind: cq_error, queue: recv, opcode: write}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the fault from here on";
  a->must("post 1 write 1 8 0");
  ASSERT_EQ(a->poll(1, 1, 5000).size(), 1u);
  a->must("post 0 read 1 4096 0");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(a->qp_state(1), kErr);
}

TEST_F(CqErrorTest, each_round_lasts_for_its_time) {
  const uint32_t id = arm("{target: node0/nic0, kind: cq_error, at: {wr: 2}, repeat: 2, for: 400 ms}");
  start();
  for (int i = 1; i <= 2; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  ASSERT_TRUE(took_effect_within(id, 5000));
  const uint64_t t0 = board.state(id).t0_ns;
  ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; }));
  EXPECT_GE(std::stoull(a->ask("now").substr(3)), t0 + 400 * kMs);
}

// The provider gives a new completion queue the address of the one before it: at once, on the virtual HCA.
TEST_F(CqErrorTest, a_newer_completion_queue_at_the_address_of_a_dead_one_is_left_alone) {
  start();
  const uint32_t id = arm("{target: node0/nic0/qp:0, kind: cq_error}");
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("destroy 0");
  a->must("destroy_cq 0");
  const int newer_a = a->make_qp(), newer_b = b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, newer_a, *b, newer_b));
  for (int i = 1; i <= 2; i++) {
    a->must("post " + std::to_string(newer_a) + " write " + std::to_string(i) + " 8 0");
    const auto seen = a->poll(newer_a, 1, 5000);
    ASSERT_EQ(seen.size(), 1u) << (i == 1 ? "before the heal" : "after the heal");
    EXPECT_EQ(seen[0].status, kSuccess);
    board.heal(id);
    EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the heal from here on";
  }
}

}  // namespace
}  // namespace faultinject::testing
