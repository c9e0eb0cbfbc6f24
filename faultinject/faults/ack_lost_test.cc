// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class AckLostTest : public Nodes {};

TEST_F(AckLostTest, the_peer_has_the_data_and_the_sender_sees_a_retry_error) {
  const uint32_t id = arm("{target: node0/nic0, kind: ack_lost, at: now}");
  start();
  b->must("recv 0 5");
  a->must("set 0 1234");
  a->must("post 0 imm 1 4096 0");
  const auto wcs = a->poll(0, 1, 5000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  const auto arrived = b->poll(0, 1, 5000);
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].status, kSuccess);
  EXPECT_EQ(b->get(0), 1234u);
  EXPECT_EQ(a->qp_state(0), kErr);
  EXPECT_TRUE(witnessed(id, Effect::kWcRewritten, "node0"));
  EXPECT_NE(board.state(id).t0_ns, 0u);
}

TEST_F(AckLostTest, small_messages_are_let_pass) {
  const uint32_t id = arm("{target: node0/nic0, kind: ack_lost, at: now, min_bytes: 2 KiB}");
  start();
  a->must("post 0 write 1 1024 0");
  const auto small = a->poll(0, 1, 5000);
  ASSERT_EQ(small.size(), 1u);
  EXPECT_EQ(small[0].status, kSuccess);
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  a->must("post 0 write 2 4096 0");
  const auto large = a->poll(0, 1, 5000);
  ASSERT_EQ(large.size(), 1u);
  EXPECT_EQ(large[0].status, kRetryExceeded);
}

TEST_F(AckLostTest, what_was_posted_behind_it_flushes_delivered_or_not) {
  arm("{target: node0/nic0, kind: ack_lost, at: {wr: 3}}");
  start();
  for (int i = 1; i <= 2; i++) {
    a->must("post 0 write " + std::to_string(i) + " 4096 0");
    EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  }
  for (int i = 3; i <= 6; i++) a->must("post 0 write " + std::to_string(i) + " 4096 0");
  ASSERT_TRUE(eventually([&] { return fabric.counters("node1", 0).rx_messages == 6; }))
      << "all were delivered";
  const auto wcs = a->poll(0, 4, 5000);
  ASSERT_EQ(wcs.size(), 4u);
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(wcs[i].wr_id, 3 + i);
    EXPECT_EQ(wcs[i].status, i == 0 ? kRetryExceeded : kFlushed);
  }
}

TEST_F(AckLostTest, it_strikes_once) {
  const uint32_t id = arm("{target: node0/nic0, kind: ack_lost, at: now}");
  start();
  a->make_qp(), b->make_qp();
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 write 1 4096 0");
  EXPECT_EQ(a->poll(0, 1, 5000).at(0).status, kRetryExceeded);
  a->must("post 1 write 1 4096 0");
  EXPECT_EQ(a->poll(1, 1, 5000).at(0).status, kSuccess);
  EXPECT_EQ(count(id, Effect::kWcRewritten), 1u);
}

TEST_F(AckLostTest, after_retries_it_is_shown_when_they_are_exhausted) {
  const uint32_t id = arm("{target: node0/nic0, kind: ack_lost, report: after_retries, at: now}");
  start(14, 1);
  a->must("set 0 55");
  a->must("post 0 write 1 4096 0");
  ASSERT_TRUE(
      eventually([&] { return b->get(0) == 55 && a->poll(0, 1, 1).empty() && board.state(id).t0_ns != 0; }));
  EXPECT_EQ(a->qp_state(0), kRts);
  const auto wcs = a->poll(0, 1, 10000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, kRetryExceeded);
  // The window begins when the request is posted, which is a little before the fault takes effect.
  EXPECT_GE(wcs[0].at_ns - board.state(id).t0_ns + 1'000'000, retry_window_ns(14, 1));
}

TEST_F(AckLostTest, a_process_killed_before_the_strike_that_it_has_claimed_does_not_stop_the_repeats) {
  const uint32_t id = arm("{target: node0/nic0, kind: ack_lost, at: {wr: 2}, repeat: 2}");
  ASSERT_NO_FATAL_FAILURE(claim_first_strike(id));
  start();
  for (int i = 1; i <= 4; i++) {
    a->must("post 0 write " + std::to_string(i) + " 4096 0");
    EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, i == 4 ? kRetryExceeded : kSuccess) << i;
  }
  EXPECT_EQ(board.state(id).rounds, 2u);
  EXPECT_EQ(count(id, Effect::kWcRewritten), 1u);
}

}  // namespace
}  // namespace faultinject::testing
