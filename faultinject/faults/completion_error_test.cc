// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <map>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class CompletionErrorTest : public Nodes {};

TEST_F(CompletionErrorTest, the_wr_fails_with_the_status_and_what_is_behind_it_is_flushed) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 3}}");
  start();
  a->must("set 0 4711");
  EXPECT_EQ(a->ask("chain 0 5"), "ok");
  const auto wcs = a->poll(0, 5, 10000);
  ASSERT_EQ(wcs.size(), 5u);
  for (size_t i = 0; i < 5; i++) EXPECT_EQ(wcs[i].wr_id, i + 1);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(wcs[1].status, kSuccess);
  EXPECT_EQ(wcs[2].status, kRemoteAccess);
  EXPECT_EQ(wcs[3].status, kFlushed);
  EXPECT_EQ(wcs[4].status, kFlushed);
  EXPECT_EQ(fabric.counters("node1", 0).rx_messages, 2u) << "nothing of the third or behind it has left";
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_EQ(value(id, Effect::kWcRewritten), uint64_t(kRemoteAccess));
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(CompletionErrorTest, an_unsignaled_wr_fails_too_and_earlier_unsignaled_ones_stay_silent) {
  const uint32_t id = arm("{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, at: {wr: 3}}");
  start();
  for (int i = 1; i <= 4; i++) a->must("post 0 write " + std::to_string(i) + " 8 0 unsignaled");
  const auto wcs = a->poll(0, 2, 10000);
  ASSERT_EQ(wcs.size(), 2u) << "the struck one, and the flush of the one behind it";
  EXPECT_EQ(wcs[0].wr_id, 3u);
  EXPECT_EQ(wcs[0].status, 11);
  EXPECT_EQ(wcs[1].wr_id, 4u);
  EXPECT_EQ(wcs[1].status, kFlushed);
  EXPECT_TRUE(a->poll(0, 1, 50).empty());
  EXPECT_EQ(fabric.counters("node1", 0).rx_messages, 2u) << "the silent ones did arrive";
  EXPECT_TRUE(witnessed(id, Effect::kWrSpoiled, "node0"));
}

TEST_F(CompletionErrorTest, work_request_ids_may_all_be_the_same) {
  arm("{target: node0/nic0, kind: completion_error, status: LOC_LEN_ERR, at: {wr: 2}}");
  start();
  a->must("post 0 write 0 8 0 unsignaled");
  a->must("post 0 write 0 8 0 unsignaled");
  a->must("post 0 write 0 8 0");
  const auto wcs = a->poll(0, 2, 10000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].status, 1);
  EXPECT_EQ(wcs[1].status, kFlushed);
}

TEST_F(CompletionErrorTest, only_the_opcode_and_only_so_many) {
  const uint32_t id = arm(
      "{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, opcode: read, count: 2, at: now}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  for (int qp : {0, 1}) {
    a->must("post " + std::to_string(qp) + " read 2 8 64");
    EXPECT_EQ(a->poll(qp, 1, 5000).at(0).status, 11);
  }
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 2, *b, 2));
  a->must("post 2 read 3 8 64");
  EXPECT_EQ(a->poll(2, 1, 5000).at(0).status, kSuccess) << "both strikes are taken";
  EXPECT_EQ(count(id, Effect::kWcRewritten), 2u);
}

TEST_F(CompletionErrorTest, a_receive_fails_and_the_queue_pair_with_it) {
  const uint32_t id =
      arm("{target: node1/nic0, kind: completion_error, status: LOC_LEN_ERR, queue: recv, at: now}");
  start(14, 1, 16, "split");
  for (int i = 1; i <= 3; i++) b->must("recv 0 " + std::to_string(i));
  a->must("post 0 imm 7 8 0");
  const auto wcs = b->poll(0, 3, 10000, "recv");
  ASSERT_EQ(wcs.size(), 3u);
  EXPECT_EQ(wcs[0].status, 1);
  EXPECT_EQ(wcs[1].status, kFlushed);
  EXPECT_EQ(wcs[2].status, kFlushed);
  EXPECT_EQ(b->qp_state(0), kErr);
  EXPECT_TRUE(witnessed(id, Effect::kWcRewritten, "node1"));
}

TEST_F(CompletionErrorTest, a_probability_strikes_again_and_again) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, at: {probability: 1}, repeat: 2, "
          "every: 1 ms}");
  start();
  for (int round = 0; round < 2; round++) {
    int status = kSuccess;
    // The second round begins when the injector's thread gets a CPU.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (status == kSuccess && std::chrono::steady_clock::now() < deadline) {
      a->must("post " + std::to_string(round) + " write 1 8 0");
      status = a->poll(round, 1, 5000).at(0).status;
    }
    EXPECT_EQ(status, 11) << round;
    a->make_qp(), b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, round + 1, *b, round + 1));
  }
  EXPECT_EQ(board.state(id).rounds, 2u);
  EXPECT_EQ(count(id, Effect::kWcRewritten), 2u);
}

TEST_F(CompletionErrorTest, each_record_says_the_round_that_struck_its_wr_whichever_fails_first) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 1}, repeat: 2}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 write 1 8 0");
  a->must("post 1 write 2 8 0");
  ASSERT_EQ(board.state(id).rounds, 2u);
  for (int qp : {1, 0}) {
    const auto wcs = a->poll(qp, 1, 10000);
    ASSERT_EQ(wcs.size(), 1u) << qp;
    EXPECT_EQ(wcs[0].status, kRemoteAccess) << qp;
  }
  for (const Effect effect : {Effect::kWrSpoiled, Effect::kWcRewritten}) {
    std::map<uint32_t, uint32_t> rounds;  // by queue pair
    for (const Witness& witness : board.witnesses(id))
      if (witness.effect == effect) rounds[witness.qp_num] = witness.round;
    EXPECT_EQ(rounds, (std::map<uint32_t, uint32_t>{{a->numbers[0], 0}, {a->numbers[1], 1}}))
        << to_string(effect);
  }
}

// As post_fail's.
TEST_F(CompletionErrorTest, the_round_of_a_killed_process_is_followed_by_the_next_at_its_time) {
  start();
  a->must("post 0 write 1 8 0");
  a->poll(0, 1, 5000);
  const uint32_t id = arm(
      "{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, at: now, repeat: 2, every: 1 ms}");
  ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kFired; }));
  ::poll(nullptr, 0, 200);  // their threads sleep again
  take_first_strike(id);
  a->must("post 0 write 2 8 0");
  EXPECT_TRUE(second_round_fires_within(id, 5000));
}

// Its queue was full; the next life of the queue pair knows nothing of that.
TEST_F(CompletionErrorTest, a_strike_that_the_provider_refused_is_gone_with_a_reset) {
  start(14, 1, 4);
  arm("{target: node0/nic0, kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 5}}");
  for (int i = 1; i <= 4; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  EXPECT_EQ(a->ask("post 0 write 5 8 0"), "errno " + std::to_string(ENOMEM));
  for (Agent* each : {a, b}) each->must("reset 0");
  ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, 0));
  a->must("post 0 write 6 8 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
}

}  // namespace
}  // namespace faultinject::testing
