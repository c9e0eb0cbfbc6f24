// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <string>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class FreezeTest : public Nodes {};

TEST_F(FreezeTest, no_call_fails_nothing_comes_and_heal_brings_everything) {
  start(18, 7, 4);
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("set 0 4711");
  for (int i = 1; i <= 4; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  EXPECT_EQ(a->ask("post 0 write 5 8 0"), "errno " + std::to_string(ENOMEM))
      << "the send queue is full, as ever";
  EXPECT_TRUE(a->poll(0, 1, 100).empty());
  EXPECT_EQ(b->get(0), 0u);
  EXPECT_TRUE(witnessed(id, Effect::kFrozen, "node0"));
  board.heal(id);
  const auto wcs = a->poll(0, 4, 10000);
  ASSERT_EQ(wcs.size(), 4u);
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(wcs[i].wr_id, i + 1);
    EXPECT_EQ(wcs[i].status, kSuccess);
  }
  EXPECT_EQ(b->get(0), 4711u);
  EXPECT_TRUE(witnessed(id, Effect::kThawed, "node0"));
}

TEST_F(FreezeTest, what_was_completed_before_is_shown_after_the_heal) {
  start();
  a->must("post 0 write 1 8 0");
  ASSERT_TRUE(eventually([&] { return fabric.counters("node1", 0).rx_messages == 1; }));
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_TRUE(a->poll(0, 1, 50).empty());
  board.heal(id);
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).wr_id, 1u);
}

TEST_F(FreezeTest, modify_and_destroy_block_until_the_heal) {
  start();
  a->make_qp();
  for (const char* command : {"err 0", "destroy 1", "create_cq", "resize_cq 0 32", "register", "state 0"}) {
    const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
    ASSERT_TRUE(took_effect_within(id, 5000));
    a->tell(command);
    EXPECT_TRUE(a->is_silent(150)) << command;
    board.heal(id);
    EXPECT_EQ(a->hear().substr(0, 2), "ok") << command;
  }
}

TEST_F(FreezeTest, a_process_that_blocks_in_it_can_be_ended) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->tell("err 0");
  EXPECT_TRUE(a->is_silent(50));
  a->kill_it();
  EXPECT_TRUE(eventually([&] { return board.processes() == 1; }));
}

TEST_F(FreezeTest, its_peer_waits_within_its_retries_and_fails_beyond_them) {
  start(20, 7);                        // 34 s
  a->make_qp(8, 0), b->make_qp(8, 0);  // 1 ms
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_TRUE(eventually([&] {  // when it has reached that process, too
    b->must("post 1 write 1 8 0");
    const auto wcs = b->poll(1, 1, 10000);
    return wcs.size() == 1 && wcs[0].status == kRetryExceeded;
  }));
  b->must("set 0 815");
  b->must("post 0 write 2 8 0");
  EXPECT_TRUE(b->poll(0, 1, 100).empty());
  EXPECT_EQ(a->get(0), 0u);
  board.heal(id);
  const auto wcs = b->poll(0, 1, 10000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(a->get(0), 815u);
}

TEST_F(FreezeTest, events_of_another_fault_on_a_frozen_port_come_after_the_heal) {
  start(8, 0);
  const uint32_t freeze = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(freeze, 5000));
  const uint32_t down = arm("{target: node0/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(down, Effect::kQpToErr, "node0"); }));
  EXPECT_EQ(a->ask("event 50"), "none");
  a->must("post 0 write 1 8 0");
  EXPECT_TRUE(a->poll(0, 1, 100).empty()) << "a frozen device reports no failure either";
  board.heal(freeze);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  board.heal(down);
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortActive));
}

TEST_F(FreezeTest, a_program_asleep_on_its_channel_is_woken_by_the_heal) {
  start(18, 7, 16, "shared", "channel");
  a->must("post 0 write 1 8 0");
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->tell("sleep 0 send 1 20000");
  EXPECT_TRUE(a->is_silent(100));
  board.heal(id);
  const std::string answer = a->hear();
  EXPECT_EQ(answer.substr(0, 7), "ok 1:0:") << answer;
}

// Such a queue pair dies of any write, at both ends.
TEST_F(FreezeTest, healing_wakes_a_sleeper_and_touches_no_queue_pair_of_the_program) {
  start(18, 7, 16, "split", "channel no_access");
  for (int i = 1; i <= 4; i++) b->must("recv 0 " + std::to_string(i));
  for (int round = 1; round <= 3; round++) {
    const uint32_t id = arm("{target: '*/nic0', kind: freeze, at: now}");
    ASSERT_TRUE(eventually(
        [&] { return witnessed(id, Effect::kFrozen, "node0") && witnessed(id, Effect::kFrozen, "node1"); }));
    a->must("post 0 send " + std::to_string(round) + " 8 0");
    a->tell("sleep 0 send 1 20000");
    b->tell("sleep 0 recv 1 20000");
    EXPECT_TRUE(a->is_silent(50));
    board.heal(id);
    const std::string sent = a->hear(), received = b->hear();
    const std::string done = "ok " + std::to_string(round) + ":" + std::to_string(kSuccess);
    EXPECT_EQ(sent.substr(0, done.size()), done);
    EXPECT_EQ(received.substr(0, done.size()), done);
  }
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(b->qp_state(0), kRts);
  EXPECT_EQ(a->ask("event 0"), "none");
  EXPECT_EQ(b->ask("event 0"), "none");
  EXPECT_EQ(a->ask("close"), "ok");
}

// The event of what was completed before it froze is taken during the freeze: after the heal none comes by
// itself. The first heal makes the queue pair that wakes the sleeper, the others use it.
TEST_F(FreezeTest, healing_wakes_a_sleeper_whose_send_was_completed_before) {
  start(18, 7, 16, "split", "channel no_access");
  for (int round = 1; round <= 3; round++) {
    b->must("recv 0 " + std::to_string(round));
    a->tell("sleep 0 send 0 0");  // armed
    a->hear();
    const uint32_t id = arm("{target: node0/nic0, kind: freeze}");
    a->must("post 0 send " + std::to_string(round) + " 8 0");
    ASSERT_EQ(b->poll(0, 1, 10000, "recv").size(), 1u);
    ASSERT_TRUE(eventually([&] { return a->ask("signalled 0") == "ok 1"; }));
    board.fire(id);
    ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kFrozen, "node0"); }));
    a->tell("sleep 0 send 1 20000");
    EXPECT_TRUE(a->is_silent(100));
    board.heal(id);
    const std::string done = "ok " + std::to_string(round) + ":" + std::to_string(kSuccess);
    EXPECT_EQ(a->hear().substr(0, done.size()), done);
  }
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(a->ask("close"), "ok");
}

// A program may have as much work under way as its completion queue has entries.
class FullQueueTest : public FreezeTest {
 protected:
  void fill(int first) {
    for (int i = first; i < first + 16; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
    ASSERT_TRUE(eventually([&] { return fabric.counters("node1", 0).rx_messages == uint64_t(first + 15); }));
  }
  void healed_beside_a_full_queue() {
    for (int round = 0; round < 3; round++) {
      ASSERT_NO_FATAL_FAILURE(fill(32 * round + 1));
      const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
      ASSERT_TRUE(took_effect_within(id, 5000));
      a->tell("sleep 0 send 16 20000");
      EXPECT_TRUE(a->is_silent(50));
      board.heal(id);
      const std::string last = " " + std::to_string(32 * round + 16) + ":" + std::to_string(kSuccess) + ":";
      EXPECT_NE(a->hear().find(last), std::string::npos);
      ASSERT_NO_FATAL_FAILURE(fill(32 * round + 17));
      EXPECT_EQ(a->ask("event 50"), "none");
      const auto wcs = a->poll(0, 16, 10000);
      ASSERT_EQ(wcs.size(), 16u);
      for (int i = 0; i < 16; i++) {
        EXPECT_EQ(wcs[size_t(i)].wr_id, uint64_t(32 * round + 17 + i));
        EXPECT_EQ(wcs[size_t(i)].status, kSuccess);
      }
    }
    EXPECT_EQ(a->qp_state(0), kRts);
    EXPECT_EQ(a->ask("close"), "ok");
  }
};

TEST_F(FullQueueTest, healing_leaves_the_program_every_entry_of_its_completion_queue) {
  start(18, 7, 16, "shared", "channel access 16");
  healed_beside_a_full_queue();
}

TEST_F(FullQueueTest, healing_leaves_the_program_every_entry_of_a_resized_completion_queue) {
  start(18, 7, 16, "shared", "channel access 64");
  a->must("resize_cq 0 16");
  healed_beside_a_full_queue();
}

TEST_F(FullQueueTest, a_queue_of_any_size_that_the_device_has_is_made_and_no_other) {
  start(18, 7, 16, "shared", "channel");
  a->must("create_cq 1 0");
  const int most = std::stoi(a->ask("max_cqe").substr(3));
  ASSERT_GT(most, 16);
  a->must("create_cq " + std::to_string(most) + " 0");
  for (const int entries : {-1, 0, most + 1})
    EXPECT_EQ(a->ask("create_cq " + std::to_string(entries) + " 0"), "errno " + std::to_string(EINVAL))
        << entries;
}

// What was received before it froze is shown after the heal, though no completion comes any more.
TEST_F(FreezeTest, healing_wakes_a_sleeper_on_a_receive_queue_of_its_own) {
  start(18, 7, 16, "split", "channel no_access");
  b->must("recv 0 1");
  b->tell("sleep 0 recv 0 0");  // armed, and the queue is empty
  b->hear();
  const uint32_t id = arm("{target: node1/nic0, kind: freeze}");
  a->must("post 0 send 1 8 0");
  ASSERT_EQ(a->poll(0, 1, 10000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kFrozen, "node1"); }));
  b->tell("sleep 0 recv 1 20000");
  EXPECT_TRUE(b->is_silent(50));
  board.heal(id);
  EXPECT_EQ(b->hear().substr(0, 4), "ok 1");
  EXPECT_EQ(b->qp_state(0), kRts);
  EXPECT_EQ(b->ask("close"), "ok");
}

// Its global objects end when the injector's thread has ended.
TEST_F(FreezeTest, a_program_that_leaves_goes_on_when_it_is_over) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now, for: 400 ms}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("at_exit destroy 0");
  EXPECT_EQ(a->wait_for_exit(), 7);
  EXPECT_EQ(board.state(id).phase, FaultState::Phase::kHealed);
}

TEST_F(FreezeTest, a_program_that_leaves_goes_on_when_it_is_healed) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("at_exit destroy 0");
  a->tell("quit");
  EXPECT_TRUE(a->is_silent(150));
  board.heal(id);
  EXPECT_EQ(a->wait_for_exit(false), 7);
}

TEST_F(FreezeTest, what_was_posted_goes_though_the_program_is_leaving) {
  start();
  const uint32_t id = arm("{target: node0/nic0, kind: freeze, at: now, for: 400 ms}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  a->must("set 0 4711");
  a->must("post 0 write 1 8 0");
  a->must("at_exit poll 0");
  EXPECT_EQ(a->wait_for_exit(), 7);
  EXPECT_EQ(b->get(0), 4711u);
}

}  // namespace
}  // namespace faultinject::testing
