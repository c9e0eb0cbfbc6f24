// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class PortDownTest : public Nodes {};

TEST_F(PortDownTest, the_node_is_told_and_other_nodes_are_not) {
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  start();
  EXPECT_EQ(b->port_state(), kPortActive);
  board.fire(id);
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(b->port_state(), kPortDown);
  EXPECT_EQ(a->ask("event 0"), "none");
  EXPECT_EQ(a->port_state(), kPortActive);
  EXPECT_TRUE(witnessed(id, Effect::kPortErrDelivered, "node1"));
  EXPECT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }))
      << "the peer is cut off too";
  board.heal(id);
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortActive));
  EXPECT_EQ(b->port_state(), kPortActive);
}

TEST_F(PortDownTest, a_thread_that_reads_the_state_of_a_cut_queue_pair_never_finds_err_whoever_queries_it) {
  start(18, 7);  // 9 s
  const uint32_t id = arm("{target: node0/nic0, kind: port_down}");
  a->must("gaze");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  for (int i = 0; i < 500; i++) EXPECT_EQ(a->qp_state(0), kRts);
  a->expect_no_err_gazed();
}

TEST_F(PortDownTest, no_flush_is_seen_before_the_retries_are_exhausted_and_then_one_retry_error_and_flushes) {
  start(17, 1);  // 1.07 s, in which even a busy machine asks thrice
  const uint32_t id = arm("{target: node1/nic0, kind: port_down}");
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  const uint64_t t0 = board.state(id).t0_ns;
  for (int i = 1; i <= 3; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  EXPECT_TRUE(a->poll(0, 1, 0).empty());
  EXPECT_EQ(a->qp_state(0), kRts) << "the program's queue pair is still retrying";
  const auto wcs = a->poll(0, 3, 10000);
  ASSERT_EQ(wcs.size(), 3u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_EQ(wcs[1].status, kFlushed);
  EXPECT_EQ(wcs[2].status, kFlushed);
  for (int i = 0; i < 3; i++) EXPECT_EQ(wcs[size_t(i)].wr_id, uint64_t(i + 1));
  EXPECT_GE(wcs[0].at_ns - t0, retry_window_ns(17, 1));
  EXPECT_EQ(a->ask("field 0"), "ok " + std::to_string(kRts)) << "ibv_qp::state is what the program made it";
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_TRUE(witnessed(id, Effect::kWcShown, "node0"));
  a->must("post 0 write 9 8 0");
  const auto later = a->poll(0, 1, 5000);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].status, kFlushed) << "a queue pair in ERR flushes at once";
}

TEST_F(PortDownTest, posted_work_ends_in_a_retry_error_on_both_sides_of_the_port) {
  start(12, 0, 16, "split");
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, events: false}");
  a->must("post 0 write 1 8 0");
  ASSERT_EQ(a->poll(0, 1, 5000).size(), 1u);
  board.fire(id);
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  b->must("recv 0 50");
  a->must("post 0 write 2 8 0");
  b->must("post 0 write 3 8 0");
  for (Agent* each : {a, b}) {
    const auto wcs = each->poll(0, 1, 10000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kRetryExceeded);
  }
  const auto receives = b->poll(0, 1, 5000, "recv");
  ASSERT_EQ(receives.size(), 1u) << "receives flush when the queue pair has entered ERR";
  EXPECT_EQ(receives[0].status, kFlushed);
  EXPECT_EQ(b->ask("event 0"), "none") << "events: false";
  EXPECT_EQ(b->port_state(), kPortDown);
}

TEST_F(PortDownTest, a_queue_pair_with_nothing_outstanding_shows_nothing) {
  start(8, 0);  // 1 ms
  b->must("recv 0 1");
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  EXPECT_TRUE(b->poll(0, 1, 100).empty()) << "a receiver notices nothing";
  EXPECT_TRUE(a->poll(0, 1, 100).empty());
  EXPECT_EQ(b->qp_state(0), kRts);
}

TEST_F(PortDownTest, a_program_that_moves_its_queue_pair_to_err_gets_its_flushes_at_once) {
  start(20, 7);  // 34 s: only the program's own step can end it
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  a->must("recv 0 7");
  for (int i = 1; i <= 2; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  EXPECT_TRUE(a->poll(0, 1, 50).empty());
  a->must("err 0");
  const auto wcs = a->poll(0, 3, 5000);
  ASSERT_EQ(wcs.size(), 3u);
  for (const Completion& wc : wcs) EXPECT_EQ(wc.status, kFlushed) << wc.wr_id;
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_TRUE(witnessed(id, Effect::kFlushShown, "node0"));
  a->must("post 0 write 3 8 0");
  const auto sentinel = a->poll(0, 1, 5000);
  ASSERT_EQ(sentinel.size(), 1u);
  EXPECT_EQ(sentinel[0].status, kFlushed) << "a sentinel posted after the move is flushed";
}

TEST_F(PortDownTest, lost_work_fills_the_send_queue) {
  start(20, 7, 4);
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  int posted = 0;
  std::string answer;
  while (posted < 1000 && (answer = a->ask("post 0 write " + std::to_string(posted) + " 8 0")) == "ok") {
    posted++;
    EXPECT_TRUE(a->poll(0, 1, 0).empty());
  }
  EXPECT_EQ(answer, "errno " + std::to_string(ENOMEM));
  EXPECT_GE(posted, 4);
  EXPECT_LE(posted, 64);
}

TEST_F(PortDownTest, the_other_port_carries_on) {
  start();
  Agent& c = agent("node0", "2");
  Agent& d = agent("node1", "3");
  ASSERT_NO_FATAL_FAILURE(c.open(1));
  ASSERT_NO_FATAL_FAILURE(d.open(1));
  c.make_qp(), d.make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(c, 0, d, 0));
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  c.must("post 0 write 1 8 0");
  const auto wcs = c.poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(d.ask("event 0"), "none");
}

TEST_F(PortDownTest, nothing_is_delivered_over_it_and_a_queue_pair_made_after_the_heal_works) {
  start(10, 0);
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  a->make_qp(10, 0), b->make_qp(10, 0);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));  // succeeds, as on hardware
  EXPECT_TRUE(witnessed(id, Effect::kQpConnectedDead));
  a->must("set 0 4711");
  a->must("post 1 write 1 8 0");
  const auto wcs = a->poll(1, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_EQ(b->get(0), 0u);
  board.heal(id);
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortActive));
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 2, *b, 2));
  a->must("post 2 write 1 8 0");
  const auto again = a->poll(2, 1, 5000);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].status, kSuccess);
  EXPECT_EQ(b->get(0), 4711u);
  a->must("reset 0");  // and a broken one can be used again after RESET
  b->must("reset 0");
  ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, 0));
  a->must("post 0 write 5 8 0");
  const auto reborn = a->poll(0, 1, 5000);
  ASSERT_EQ(reborn.size(), 1u);
  EXPECT_EQ(reborn[0].status, kSuccess);
}

TEST_F(PortDownTest, a_program_asleep_on_its_completion_channel_is_woken_for_the_error) {
  start(13, 1, 16, "split", "channel");
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return count(id, Effect::kQpToErr) == 2; }));
  a->must("recv 0 8");
  for (int i = 1; i <= 2; i++) a->must("post 0 write " + std::to_string(i) + " 8 0");
  const auto wcs = a->sleep(0, 2, 10000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  EXPECT_EQ(wcs[1].status, kFlushed);
  const auto receives = a->sleep(0, 1, 5000, "recv");
  ASSERT_EQ(receives.size(), 1u);
  EXPECT_EQ(receives[0].status, kFlushed);
}

TEST_F(PortDownTest, a_duration_heals_by_itself) {
  start();
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now, for: 1 s}");
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(b->ask("event 5000"), "event " + std::to_string(kEventPortActive));
  const FaultState state = board.state(id);
  EXPECT_EQ(state.phase, FaultState::Phase::kHealed);
  EXPECT_GE(state.healed_ns - state.t0_ns, 1000 * kMs);
}

TEST_F(PortDownTest, with_query_false_the_port_lies) {
  start();
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, events: false, query: false, at: now}");
  ASSERT_TRUE(took_effect_within(id, 5000));
  EXPECT_EQ(b->port_state(), kPortActive);
}

TEST_F(PortDownTest, a_device_opened_while_it_lasts_is_down_too) {
  const uint32_t id = arm("{target: node1/nic0, kind: port_down, at: now}");
  start();
  EXPECT_TRUE(witnessed(id, Effect::kQpConnectedDead, "node1"));
  EXPECT_EQ(b->port_state(), kPortDown);
  EXPECT_EQ(b->ask("event 0"), "none") << "it has been down all along";
}

TEST_F(PortDownTest, a_port_that_the_nic_does_not_have_goes_down_nowhere) {
  start();
  const uint32_t id = arm("{target: node0/nic0/port:2, kind: port_down, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process knows of the fault from here on";
  EXPECT_EQ(a->ask("event 50"), "none");
  EXPECT_EQ(a->port_state(), kPortActive);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  EXPECT_TRUE(board.witnesses(id).empty());
}

// What was delivered before the cut is not outstanding, whether its completion was polled or not, or will
// never come.
TEST_F(PortDownTest, the_retries_of_a_send_begin_with_its_post_behind_those_that_were_delivered) {
  arm("{target: node0/nic0, kind: noop, at: now}");  // so that the first send is known
  for (const bool signaled : {true, false}) {
    SCOPED_TRACE(signaled);
    start(14, 1);
    a->must("set 0 4711");
    a->must(std::string("post 0 write 1 8 0") + (signaled ? "" : " unsignaled"));
    ASSERT_TRUE(eventually([&] { return b->get(0) == 4711u; }));
    const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
    ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
    const uint64_t end = board.state(id).t0_ns + 2 * retry_window_ns(14, 1);
    EXPECT_TRUE(eventually([&] { return std::stoull(a->ask("now").substr(3)) > end; }));
    if (signaled) {
      EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
    } else {
      EXPECT_TRUE(a->poll(0, 1, 20).empty());
    }
    EXPECT_FALSE(witnessed(id, Effect::kWcShown, "node0")) << "nothing was outstanding";
    EXPECT_EQ(a->qp_state(0), kRts);
    const uint64_t before = std::stoull(a->ask("now").substr(3));
    a->must("post 0 write 2 8 0");
    const auto wcs = a->poll(0, 1, 5000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].wr_id, 2u);
    EXPECT_EQ(wcs[0].status, kRetryExceeded);
    EXPECT_GE(wcs[0].at_ns, before + retry_window_ns(14, 1));
    board.heal(id);
    a->must("close");
    b->must("close");
  }
}

// The same where nobody polls before the retries of the delivered send would be exhausted: the next one was
// posted shortly before that.
TEST_F(PortDownTest, a_send_from_after_the_cut_has_its_own_retries) {
  arm("{target: node0/nic0, kind: noop, at: now}");
  start(16, 1);  // 537 ms
  a->must("set 0 4711");
  a->must("post 0 write 1 8 0");
  ASSERT_TRUE(eventually([&] { return b->get(0) == 4711u; }));
  const uint32_t id = arm("{target: node0/nic0, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(id, Effect::kQpToErr, "node0"); }));
  const uint64_t late = board.state(id).t0_ns + retry_window_ns(16, 1) / 2;
  EXPECT_TRUE(eventually([&] { return std::stoull(a->ask("now").substr(3)) > late; }));
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  a->must("post 0 write 2 8 0");
  EXPECT_TRUE(eventually(
      [&] { return std::stoull(a->ask("now").substr(3)) > late + retry_window_ns(16, 1) / 2 + 10 * kMs; }));
  const auto wcs = a->poll(0, 2, 5000);
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].status, kSuccess);
  EXPECT_EQ(wcs[1].status, kRetryExceeded);
  EXPECT_GE(wcs[1].at_ns, before + retry_window_ns(16, 1));
}

}  // namespace
}  // namespace faultinject::testing
