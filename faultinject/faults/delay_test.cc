// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class DelayTest : public Nodes {
 protected:
  // Posts `count` writes and returns how long each took to complete.
  std::vector<uint64_t> times(int count) {
    std::vector<uint64_t> all;
    for (int i = 0; i < count; i++) {
      const uint64_t before = std::stoull(a->ask("now").substr(3));
      a->must("post 0 write " + std::to_string(i) + " 8 0");
      const auto wcs = a->poll(0, 1, 10000);
      if (wcs.size() != 1 || wcs[0].status != kSuccess) return {};
      all.push_back(wcs[0].at_ns - before);
    }
    return all;
  }
};

TEST_F(DelayTest, each_send_takes_longer_by_the_delay_at_least) {
  const uint32_t id = arm("{target: node0/nic0, kind: delay, delay: 20 ms, at: now}");
  start();
  const auto all = times(3);
  ASSERT_EQ(all.size(), 3u);
  for (const uint64_t time : all) EXPECT_GE(time, 20 * kMs);
  EXPECT_TRUE(witnessed(id, Effect::kWrWithheld, "node0"));
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

// Its post had succeeded, so its failure is a completion: here more is inline than the queue pair takes.
TEST_F(DelayTest, a_sleeping_program_is_woken_for_a_send_that_the_provider_refuses_in_the_end) {
  arm("{target: node0/nic0, kind: delay, delay: 100 ms, at: now}");
  start(14, 1, 16, "shared", "channel");
  a->must("post 0 write 7 128 0 inline");
  const auto wcs = a->sleep(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 7u);
  EXPECT_EQ(wcs[0].status, kQpOperation);
}

// Rounds are told apart by their records.
TEST_F(DelayTest, each_round_is_recorded) {
  start();
  const uint32_t id =
      arm("{target: node0/nic0, kind: delay, delay: 2 ms, at: now, for: 100 ms, repeat: 3, every: 200 ms}");
  uint64_t wr = 0;
  ASSERT_TRUE(eventually([&] {
    a->must("post 0 write " + std::to_string(wr++) + " 8 0");
    return a->poll(0, 1, 10000).size() == 1 && board.state(id).phase == FaultState::Phase::kHealed;
  }));
  EXPECT_EQ(board.state(id).rounds, 3u);
  EXPECT_EQ(count(id, Effect::kWrWithheld), 3u);
}

TEST_F(DelayTest, jitter_stays_within_its_bounds_and_order_is_kept) {
  arm("{target: node0/nic0, kind: delay, delay: 20 ms, jitter: 15 ms, at: now}");
  start();
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  for (int i = 0; i < 10; i++) a->must("post 0 write " + std::to_string(i) + " 8 0 inline");
  const auto wcs = a->poll(0, 10, 10000);
  ASSERT_EQ(wcs.size(), 10u);
  for (size_t i = 0; i < 10; i++) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, kSuccess);
    EXPECT_GE(wcs[i].at_ns - before, 5 * kMs);
  }
}

TEST_F(DelayTest, inline_data_is_what_it_was_when_it_was_posted) {
  arm("{target: node0/nic0, kind: delay, delay: 20 ms, at: now}");
  start();
  a->must("set 0 4242");
  a->must("post 0 write 1 8 0 inline");  // the agent clears its buffer right after the post
  ASSERT_EQ(a->poll(0, 1, 10000).size(), 1u);
  EXPECT_EQ(b->get(0), 4242u);
}

TEST_F(DelayTest, what_is_kept_back_fills_the_send_queue) {
  const uint32_t id = arm("{target: node0/nic0, kind: delay, delay: 10 s, at: now}");
  start(14, 7, 4);
  int posted = 0;
  std::string answer;
  while (posted < 1000 && (answer = a->ask("post 0 write " + std::to_string(posted) + " 8 0")) == "ok")
    posted++;
  EXPECT_EQ(answer, "errno " + std::to_string(ENOMEM));
  EXPECT_GE(posted, 4);
  EXPECT_LE(posted, 64);
  EXPECT_TRUE(a->poll(0, 1, 20).empty());
  board.heal(id);
  const auto wcs = a->poll(0, posted, 5000);
  ASSERT_EQ(wcs.size(), size_t(posted)) << "healed: all goes at once";
  for (size_t i = 0; i < wcs.size(); i++) EXPECT_EQ(wcs[i].wr_id, i);
  a->must("post 0 write 99 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).size(), 1u);
}

TEST_F(DelayTest, kept_back_work_is_flushed_when_the_program_moves_to_err) {
  arm("{target: node0/nic0, kind: delay, delay: 10 s, at: now}");
  start();
  for (int i = 0; i < 3; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  a->must("err 0");
  const auto wcs = a->poll(0, 3, 5000);
  ASSERT_EQ(wcs.size(), 3u);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, kFlushed);
  }
}

TEST_F(DelayTest, a_post_in_err_flushes_at_once) {
  arm("{target: node0/nic0, kind: delay, delay: 1 h, at: now}");
  start();
  a->must("err 0");
  a->must("post 0 write 1 8 0");
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kFlushed);
}

TEST_F(DelayTest, only_the_opcode_and_what_stands_behind_it) {
  const uint32_t id = arm("{target: node0/nic0, kind: delay, delay: 50 ms, opcode: read, at: now}");
  start();
  a->must("post 0 write 1 8 0");
  ASSERT_EQ(a->poll(0, 1, 10000).size(), 1u);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  a->must("post 0 read 2 8 0");
  a->must("post 0 write 3 8 0");
  const auto wcs = a->poll(0, 2, 10000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].wr_id, 2u);
  EXPECT_GE(wcs[0].at_ns - before, 50 * kMs);
}

}  // namespace
}  // namespace faultinject::testing
