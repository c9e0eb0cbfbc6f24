// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class QpErrorTest : public Nodes {};

TEST_F(QpErrorTest, shows_qp_fatal_and_flushes_at_once) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error}");
  start();
  a->must("post 0 write 1 8 0");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  for (int i = 10; i < 13; i++) a->must("recv 0 " + std::to_string(i));
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(a->ask("event 5000"),
            "event " + std::to_string(kEventQpFatal) + " " + std::to_string(a->numbers[0]));
  const auto wcs = a->poll(0, 3, 5000);
  ASSERT_EQ(wcs.size(), 3u);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(wcs[size_t(i)].wr_id, uint64_t(10 + i));
    EXPECT_EQ(wcs[size_t(i)].status, kFlushed);
    EXPECT_GE(wcs[size_t(i)].at_ns, board.state(id).t0_ns);
  }
  EXPECT_EQ(a->ask("field 0"), "ok " + std::to_string(kRts)) << "ibv_qp::state is what the program made it";
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_EQ(a->ask("field 0"), "ok " + std::to_string(kErr)) << "a query writes what it found";
  EXPECT_TRUE(witnessed(id, Effect::kQpToErr, "node0"));
  EXPECT_TRUE(witnessed(id, Effect::kQpFatalDelivered, "node0"));
}

TEST_F(QpErrorTest, a_thread_that_reads_the_state_meanwhile_never_finds_err) {
  constexpr int kPairs = 48;
  start();
  for (int i = 1; i < kPairs; i++) {
    a->make_qp(), b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, i, *b, i));
  }
  a->must("gaze");
  for (int i = 0; i < kPairs; i++) {
    const uint32_t id = arm("{target: 'node0/nic0/qp:" + std::to_string(i) + "', kind: qp_error, at: now}");
    ASSERT_TRUE(took_effect_within(id, 5000)) << i;
  }
  a->expect_no_err_gazed();
  for (int i = 0; i < kPairs; i++) EXPECT_EQ(a->qp_state(i), kErr) << i;
}

TEST_F(QpErrorTest, the_peer_is_not_touched_and_runs_into_its_own_retries) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error}");
  start(10, 1);
  a->must("post 0 write 1 8 0");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(b->qp_state(0), kRts);
  b->must("post 0 write 2 8 0");
  const auto wcs = b->poll(0, 1, 10000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_FALSE(witnessed(id, Effect::kQpToErr, "node1"));
}

TEST_F(QpErrorTest, strikes_the_queue_pair_with_the_most_traffic) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 1 write 1 4096 0");
  ASSERT_EQ(a->poll(1, 1, 5000).size(), 1u);
  a->must("post 0 write 1 8 0");  // a heartbeat, and the latest post
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(a->qp_state(1), kErr);
}

TEST_F(QpErrorTest, counts_only_the_sends_of_its_opcodes) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, opcode: write}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 1 write 1 8 0");
  ASSERT_EQ(a->poll(1, 1, 5000).size(), 1u);
  a->must("post 0 read 1 4096 0");  // a probe
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(a->qp_state(0), kRts);
  EXPECT_EQ(a->qp_state(1), kErr);
}

TEST_F(QpErrorTest, without_a_send_of_its_opcodes_it_waits_for_the_first) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, opcode: write}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 read 1 4096 0");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  a->must("create_cq");  // its process knows that it fired from here on
  a->must("post 0 read 2 4096 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  a->must("post 1 write 1 8 0");
  EXPECT_EQ(a->poll(1, 1, 5000).at(0).status, kFlushed);
  EXPECT_TRUE(took_effect_within(id, 5000));
}

TEST_F(QpErrorTest, without_traffic_it_waits_for_the_first_queue_pair_that_posts) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: now}");
  start();
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  a->must("post 0 write 1 8 0");
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kFlushed);
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(QpErrorTest, a_target_by_number_and_all_of_them) {
  start();
  for (int i = 1; i < 4; i++) {
    a->make_qp(), b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, i, *b, i));
  }
  const uint32_t one = arm("{target: node0/nic0/qp:2, kind: qp_error, at: now}");
  ASSERT_TRUE(took_effect_within(one, 5000));
  EXPECT_TRUE(eventually([&] { return a->qp_state(2) == kErr; }));
  for (int other : {0, 1, 3}) EXPECT_EQ(a->qp_state(other), kRts) << other;
  const uint32_t all = arm("{target: node0/nic0, qp: all, kind: qp_error, at: now}");
  EXPECT_TRUE(eventually([&] { return count(all, Effect::kQpToErr) == 3; }));
  for (int each = 0; each < 4; each++) EXPECT_EQ(a->qp_state(each), kErr) << each;
}

TEST_F(QpErrorTest, at_the_nth_wr_that_wr_itself_is_flushed) {
  arm("{target: node0/nic0, kind: qp_error, at: {wr: 4}}");
  start();
  for (int i = 1; i <= 5; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    const auto wcs = a->poll(0, 1, 5000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, i < 4 ? kSuccess : kFlushed) << i;
  }
}

TEST_F(QpErrorTest, the_remote_side_fails_and_the_target_runs_into_its_own_retries) {
  const uint32_t id = arm("{target: node1/nic0, kind: qp_error, side: remote, at: {wr: 1}}");
  start(10, 1);
  b->must("post 0 write 1 8 0");  // the target's own end knows which is meant
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  EXPECT_EQ(a->ask("event 5000"),
            "event " + std::to_string(kEventQpFatal) + " " + std::to_string(a->numbers[0]));
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_EQ(b->qp_state(0), kRts);
  EXPECT_FALSE(witnessed(id, Effect::kQpToErr, "node1"));
  ASSERT_EQ(b->poll(0, 1, 10000).size(), 1u);
  b->must("post 0 write 2 8 0");
  EXPECT_NE(b->poll(0, 1, 10000).at(0).status, kSuccess);
}

TEST_F(QpErrorTest, a_target_that_only_receives_is_known_by_the_posts_of_its_peers) {
  const uint32_t remote = arm("{target: node1/nic0, kind: qp_error, side: remote, at: now}");
  start();
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kFlushed);
  EXPECT_TRUE(witnessed(remote, Effect::kQpToErr, "node0"));
  EXPECT_EQ(b->ask("event 50"), "none");
}

TEST_F(QpErrorTest, both_sides_fail_at_one_time) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, side: both, at: now}");
  start();
  EXPECT_EQ(b->ask("event 0"), "none");
  a->must("post 0 write 1 8 0");
  for (Agent* each : {a, b}) {
    EXPECT_EQ(each->ask("event 10000"),
              "event " + std::to_string(kEventQpFatal) + " " + std::to_string(each->numbers[0]));
    EXPECT_EQ(each->qp_state(0), kErr);
  }
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kFlushed);
  EXPECT_EQ(count(id, Effect::kQpToErr), 2u);
}

TEST_F(QpErrorTest, the_far_end_of_a_queue_pair_by_its_number) {
  start();
  for (int i = 1; i < 3; i++) {
    a->make_qp(), b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, i, *b, i));
  }
  const uint32_t id = arm("{target: node0/nic0/qp:1, kind: qp_error, side: remote, at: now}");
  ASSERT_TRUE(took_effect_within(id, 10000));
  EXPECT_TRUE(eventually([&] { return b->qp_state(1) == kErr; }));
  for (int other : {0, 2}) EXPECT_EQ(b->qp_state(other), kRts);
  EXPECT_EQ(count(id, Effect::kQpToErr), 1u);
}

TEST_F(QpErrorTest, every_third_wr_as_often_as_the_plan_says) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: {wr: 3}, repeat: 2}");
  start();
  int failures = 0;
  for (int i = 1, qp = 0; i <= 9; i++) {
    a->must("post " + std::to_string(qp) + " write " + std::to_string(i) + " 8 0");
    const bool failed = a->poll(qp, 1, 10000).at(0).status == kFlushed;
    EXPECT_EQ(failed, i == 3 || i == 6) << i;
    if (!failed) continue;
    failures++;
    qp = a->make_qp();
    b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
  }
  EXPECT_EQ(failures, 2);
  EXPECT_EQ(board.state(id).rounds, 2u);
}

// A program may use its queue pair again, by RESET.
TEST_F(QpErrorTest, the_same_queue_pair_of_the_far_end_fails_in_every_round) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, side: remote, at: {wr: 3}, repeat: 3}");
  start();
  for (int round = 0; round < 3; round++) {
    for (int i = 1; i <= 3; i++) {
      a->must("post 0 write " + std::to_string(i) + " 8 0");
      a->poll(0, 1, 10000);
    }
    EXPECT_TRUE(eventually([&] { return b->qp_state(0) == kErr; }, 3000)) << round;
    for (Agent* each : {a, b}) each->must("reset 0");
    ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, 0));
    if (round < 2) {
      ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; })) << round;
    }
  }
  EXPECT_EQ(board.state(id).rounds, 3u);
  EXPECT_EQ(count(id, Effect::kQpToErr), 3u);
}

// A round of all queue pairs lasts a second; those that are in use again meanwhile are not struck twice.
TEST_F(QpErrorTest, no_queue_pair_of_the_far_end_fails_twice_in_a_round) {
  const uint32_t id =
      arm("{target: node0/nic0, qp: all, kind: qp_error, side: remote, at: {wr: 3}, repeat: 2}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  for (int i = 1; i <= 3; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    a->poll(0, 1, 10000);
  }
  for (const int qp : {0, 1}) EXPECT_TRUE(eventually([&] { return b->qp_state(qp) == kErr; }, 3000)) << qp;
  for (const int qp : {0, 1}) {
    for (Agent* each : {a, b}) each->must("reset " + std::to_string(qp));
    ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
  }
  for (const int qp : {0, 1}) {  // looks for a mark
    b->must("post " + std::to_string(qp) + " write 9 8 0");
    EXPECT_EQ(b->poll(qp, 1, 10000).at(0).status, kSuccess) << qp;
  }
  EXPECT_EQ(count(id, Effect::kQpToErr), 2u);
}

TEST_F(QpErrorTest, a_process_killed_before_the_strike_that_it_has_claimed_does_not_stop_the_repeats) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: {wr: 3}, repeat: 2}");
  ASSERT_NO_FATAL_FAILURE(claim_first_strike(id));
  start();
  for (int i = 1; i <= 6; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, i == 6 ? kFlushed : kSuccess) << i;
    EXPECT_EQ(board.state(id).t0_ns != 0, i == 6) << i;
  }
  EXPECT_EQ(board.state(id).rounds, 2u);
  EXPECT_EQ(count(id, Effect::kQpToErr), 1u);
}

TEST_F(QpErrorTest, without_room_for_its_claim_it_strikes_nobody_and_uses_up_no_round) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: {wr: 3}, repeat: 2}");
  fill_claims();
  start();
  for (int i = 1; i <= 8; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess) << i;
  }
  EXPECT_EQ(board.state(id).rounds, 1u);
  EXPECT_EQ(count(id, Effect::kQpToErr), 0u);
  EXPECT_GT(board.witnesses_lost(), 0u);
}

TEST_F(QpErrorTest, posts_on_a_broken_queue_pair_use_up_no_round) {
  const uint32_t id = arm("{target: node0/nic0, kind: qp_error, at: {wr: 3}, repeat: 3}");
  start();
  for (int qp = 0; qp < 3; qp++) {
    if (qp > 0) {
      a->make_qp(), b->make_qp();
      ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
    }
    int status = kSuccess;
    for (int i = 1; i <= 24 && status == kSuccess; i++) {
      a->must("post " + std::to_string(qp) + " write " + std::to_string(i) + " 8 0");
      status = a->poll(qp, 1, 10000).at(0).status;
    }
    EXPECT_EQ(status, kFlushed) << qp;
    for (int i = 31; i <= 36; i++) {  // two counts of the trigger
      a->must("post " + std::to_string(qp) + " write " + std::to_string(i) + " 8 0");
      a->poll(qp, 1, 10000);
    }
  }
  EXPECT_EQ(board.state(id).rounds, 3u);
  EXPECT_EQ(count(id, Effect::kQpToErr), 3u);
}

// As with the target's own end: what is connected after the strike was not there when it happened.
TEST_F(QpErrorTest, a_queue_pair_made_after_the_strike_at_the_far_end_is_left_alone) {
  for (const char* side : {"remote", "both"}) {
    const uint32_t id = arm("{target: node0/nic0, qp: all, kind: qp_error, side: " + std::string(side) + "}");
    if (a == nullptr) start();
    const int first = a->make_qp(), later = a->make_qp();
    b->make_qp(), b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, first, *b, first));
    board.fire(id);
    ASSERT_TRUE(eventually([&] { return b->qp_state(first) == kErr; })) << side;
    ASSERT_NO_FATAL_FAILURE(connect(*a, later, *b, later));
    for (int i = 1; i <= 2; i++) {
      a->must("post " + std::to_string(later) + " write " + std::to_string(i) + " 8 0");
      EXPECT_EQ(a->poll(later, 1, 10000).at(0).status, kSuccess) << side;
    }
    EXPECT_FALSE(eventually([&] { return b->qp_state(later) == kErr; }, 200)) << side;
    board.heal(id);
  }
}

// The one whose post meets the trigger is struck at once, the other by the injector's thread.
TEST_F(QpErrorTest, a_round_lasts_until_a_process_has_struck_at_each_of_its_nics) {
  a = &agent("node0", "0"), b = &agent("node1", "1");
  b->open();
  std::string gids[2];
  for (const int nic : {0, 1}) {
    a->open(nic);
    gids[nic] = a->gid;
    a->make_qp(), b->make_qp();
  }
  for (int time = 0; time < 10; time++) {
    for (const int nic : {0, 1}) {
      a->gid = gids[nic];
      ASSERT_NO_FATAL_FAILURE(connect(*a, nic, *b, nic));
    }
    const uint32_t id = arm("{target: 'node0/nic[0-1]', qp: all, kind: qp_error, at: {wr: 3}, repeat: 2}");
    a->must("create_cq");  // its process knows the fault from here on
    for (int i = 1; i <= 3; i++) {
      a->must("post 1 write " + std::to_string(i) + " 8 0");
      EXPECT_EQ(a->poll(1, 1, 10000).at(0).status, i == 3 ? kFlushed : kSuccess) << time;
    }
    EXPECT_TRUE(eventually([&] { return board.state(id).rounds == 1; })) << time;
    EXPECT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; })) << time;
    EXPECT_EQ(count(id, Effect::kQpToErr), 2u) << time;
    board.heal(id);
    for (const int qp : {0, 1})
      for (Agent* each : {a, b}) each->must("reset " + std::to_string(qp));
  }
}

// Two processes on one NIC, or on two.
class RoundsOfTwoTest : public QpErrorTest {
 protected:
  Agent *one = nullptr, *two = nullptr, *peer = nullptr;

  void start_two(int nic_of_two) {
    one = &agent("node0", "0");
    two = &agent("node0", "1");
    peer = &agent("node1", "2");
    one->open(), two->open(nic_of_two), peer->open();
  }
  void strike_in_each_round(uint32_t id, int rounds) {
    int wr = 0;
    for (int round = 0; round < rounds; round++) {
      one->make_qp(), two->make_qp(), peer->make_qp(), peer->make_qp();
      ASSERT_NO_FATAL_FAILURE(connect(*one, round, *peer, 2 * round));
      ASSERT_NO_FATAL_FAILURE(connect(*two, round, *peer, 2 * round + 1));
      const std::string qp = "post " + std::to_string(round) + " write ";
      two->must(qp + std::to_string(++wr) + " 8 0");
      two->poll(round, 1, 5000);
      for (int i = 0; i < 30 && board.state(id).rounds == uint32_t(round); i++) {
        one->must(qp + std::to_string(++wr) + " 8 0");
        one->poll(round, 1, 5000);
      }
      EXPECT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == size_t(2 * round + 2); }, 3000))
          << round;
      EXPECT_EQ(one->qp_state(round), kErr) << round;
      EXPECT_EQ(two->qp_state(round), kErr) << round;
      if (round + 1 < rounds) {
        ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; })) << round;
      }
    }
    EXPECT_EQ(board.state(id).rounds, uint32_t(rounds));
  }
};

TEST_F(RoundsOfTwoTest, all_queue_pairs_of_both_processes_fail_in_each) {
  const uint32_t id = arm("{target: node0/nic0, qp: all, kind: qp_error, at: {wr: 5}, repeat: 4}");
  ASSERT_NO_FATAL_FAILURE(start_two(0));
  strike_in_each_round(id, 4);
}

TEST_F(RoundsOfTwoTest, the_busiest_queue_pair_of_both_nics_fails_in_each) {
  const uint32_t id = arm("{target: 'node0/nic[0-1]', kind: qp_error, at: {wr: 5}, repeat: 4}");
  ASSERT_NO_FATAL_FAILURE(start_two(1));
  strike_in_each_round(id, 4);
}

TEST_F(RoundsOfTwoTest, both_ends_of_all_queue_pairs_fail_in_each) {
  const uint32_t id =
      arm("{target: node0/nic0, qp: all, kind: qp_error, side: remote, at: {wr: 5}, repeat: 2}");
  ASSERT_NO_FATAL_FAILURE(start_two(0));
  Agent& other = agent("node1", "3");
  other.open();
  for (int round = 0; round < 2; round++) {
    one->make_qp(), two->make_qp(), peer->make_qp(), other.make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*one, round, *peer, round));
    ASSERT_NO_FATAL_FAILURE(connect(*two, round, other, round));
    const std::string post = "post " + std::to_string(round) + " write 1 8 0";
    for (int i = 0; i < 5; i++) {
      one->must(post);
      one->poll(round, 1, 5000);
    }
    EXPECT_TRUE(
        eventually([&] { return peer->qp_state(round) == kErr && other.qp_state(round) == kErr; }, 3000))
        << round;
    if (round == 0) {
      ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; }));
    }
  }
  EXPECT_EQ(board.state(id).rounds, 2u);
}

TEST_F(RoundsOfTwoTest, one_that_is_killed_stops_no_rounds) {
  const uint32_t id = arm("{target: node0/nic0, qp: all, kind: qp_error, at: {wr: 5}, repeat: 3}");
  ASSERT_NO_FATAL_FAILURE(start_two(0));
  two->make_qp(), peer->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*two, 0, *peer, 0));
  ASSERT_EQ(kill(two->pid(), SIGSTOP), 0);
  for (int round = 0; round < 2; round++) {
    one->make_qp(), peer->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*one, round, *peer, round + 1));
    for (int i = 0; i < 30 && board.state(id).rounds == uint32_t(round); i++) {
      one->must("post " + std::to_string(round) + " write 1 8 0");
      one->poll(round, 1, 5000);
    }
    EXPECT_EQ(one->qp_state(round), kErr) << round;
    if (round == 0) two->kill_it();
    ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; })) << round;
  }
}

// The mark of the first round is left to a process that has been killed.
class LostMarkTest : public QpErrorTest {
 protected:
  void strikes_in_the_second_round(const std::string& side, size_t ends) {
    const uint32_t id =
        arm("{target: node0/nic0, kind: qp_error, side: " + side + ", at: {wr: 3}, repeat: 2}");
    ASSERT_NO_FATAL_FAILURE(claim_first_strike(id));
    start();
    for (int i = 1; i <= 5; i++) {
      a->must("post 0 write " + std::to_string(i) + " 8 0");
      EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess) << i;
      if (i == 3) {
        ASSERT_TRUE(eventually([&] { return board.state(id).phase == FaultState::Phase::kArmed; }));
      }
    }
    EXPECT_EQ(b->qp_state(0), kRts);
    a->must("post 0 write 6 8 0");
    EXPECT_TRUE(eventually([&] { return b->qp_state(0) == kErr; }));
    EXPECT_EQ(board.state(id).rounds, 2u);
    EXPECT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == ends; }));
  }
};

TEST_F(LostMarkTest, does_not_stop_the_repeats_at_the_other_end) { strikes_in_the_second_round("remote", 1); }

TEST_F(LostMarkTest, does_not_stop_the_repeats_at_both_ends) { strikes_in_the_second_round("both", 2); }

}  // namespace
}  // namespace faultinject::testing
