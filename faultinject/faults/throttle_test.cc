// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <sstream>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

struct Streamed {
  uint64_t took_ns = 0;
  uint64_t paused_ns = 0;  // of that: the machine had no CPU for it
  std::vector<uint64_t> bytes;
  bool ordered = true;
};

Streamed parse(const std::string& answer) {
  Streamed streamed;
  std::istringstream in(answer);
  std::string word;
  in >> word >> streamed.took_ns >> streamed.paused_ns;
  EXPECT_EQ(word, "ok") << answer;
  while (in >> word) {
    streamed.bytes.push_back(std::stoull(word));
    streamed.ordered = streamed.ordered && word.back() == '1';
  }
  return streamed;
}

class ThrottleTest : public Nodes {
 protected:
  static double mbit(uint64_t bytes, uint64_t ns) { return double(bytes) * 8e3 / double(ns); }

  // Streams until the port carries its rate while the stream has CPU. It must never carry more; on a busy
  // machine the stream may get too little CPU even so, and is given five tries; `least` is the share of the
  // rate that will do.
  Streamed stream_at(double rate, const std::string& command, double least = 0.95) {
    Streamed run;
    for (int attempt = 0; attempt < 5; attempt++) {
      run = parse(a->ask(command));
      uint64_t bytes = 0;
      for (const uint64_t each : run.bytes) bytes += each;
      EXPECT_LT(mbit(bytes, run.took_ns), rate * 1.05);
      if (mbit(bytes, run.took_ns - run.paused_ns) > rate * least) return run;
    }
    ADD_FAILURE() << "never reached " << rate << " Mbit/s";
    return run;
  }
};

TEST_F(ThrottleTest, the_port_carries_the_rate_and_no_more) {
  const uint32_t id = arm("{target: node0/nic0, kind: throttle, rate: 200 Mbit/s, at: now}");
  start(18, 7);
  EXPECT_TRUE(stream_at(200, "stream 8 65536 500 0").ordered);
  EXPECT_TRUE(witnessed(id, Effect::kWrWithheld, "node0"));
  board.heal(id);
  double best = 0;  // of tries; how much more than the rate is the machine's affair
  for (int attempt = 0; attempt < 5 && best <= 200 * 1.25; attempt++) {
    const Streamed free = parse(a->ask("stream 8 65536 300 0"));
    best = std::max(best, mbit(free.bytes.at(0), free.took_ns));
  }
  EXPECT_GT(best, 200 * 1.25) << "healed";
}

// Rounds are told apart by their records.
TEST_F(ThrottleTest, each_round_is_recorded) {
  start();
  const uint32_t id =
      arm("{target: node0/nic0, kind: throttle, rate: 200 Mbit/s, at: now, for: 50 ms, repeat: 3, every: 100 "
          "ms}");
  uint64_t wr = 0;
  ASSERT_TRUE(eventually([&] {
    a->must("post 0 write " + std::to_string(wr++) + " 8 0");
    return a->poll(0, 1, 10000).size() == 1 && board.state(id).phase == FaultState::Phase::kHealed;
  }));
  EXPECT_EQ(board.state(id).rounds, 3u);
  EXPECT_EQ(count(id, Effect::kWrWithheld), 3u);
}

TEST_F(ThrottleTest, of_two_on_one_port_the_smaller_rate_holds) {
  const uint32_t slow = arm("{target: node0/nic0, kind: throttle, rate: 60 Mbit/s, at: now}");
  start(18, 7);
  const auto rate = [&] {
    const Streamed run = parse(a->ask("stream 8 65536 400 0"));
    EXPECT_TRUE(run.ordered);
    return mbit(run.bytes.at(0), run.took_ns);
  };
  // Whoever is starved of CPU carries less for once; two that paid one clock would never come near to one
  // alone.
  double best = 0;
  for (int attempt = 0; attempt < 6 && best < 0.85; attempt++) {
    const double alone = rate();
    const uint32_t fast = arm("{target: node0/nic0, kind: throttle, rate: 120 Mbit/s, at: now}");
    const double both = rate();
    EXPECT_LT(both, 60 * 1.05);
    EXPECT_TRUE(witnessed(fast, Effect::kWrWithheld, "node0"));
    board.heal(fast);
    best = std::max(best, both / alone);
  }
  EXPECT_GT(best, 0.85);
  EXPECT_TRUE(witnessed(slow, Effect::kWrWithheld, "node0"));
}

TEST_F(ThrottleTest, it_holds_for_what_comes_in_too) {
  arm("{target: node1/nic0, kind: throttle, rate: 200 Mbit/s, at: now}");
  start(18, 7);
  stream_at(200, "stream 8 65536 500 0");
}

TEST_F(ThrottleTest, queue_pairs_share_fairly_in_one_process) {
  arm("{target: node0/nic0, kind: throttle, rate: 200 Mbit/s, at: now}");
  start(18, 7);
  a->make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  const Streamed run = stream_at(200, "stream 8 65536 500 0 1");
  EXPECT_NEAR(double(run.bytes[0]) / double(run.bytes[0] + run.bytes[1]), 0.5, 0.05);
}

TEST_F(ThrottleTest, processes_share_the_port_fairly_whatever_the_size_of_their_writes) {
  arm("{target: node0/nic0, kind: throttle, rate: 200 Mbit/s, at: now}");
  start(18, 7);
  Agent& c = agent("node0", "2");
  ASSERT_NO_FATAL_FAILURE(c.open());
  c.make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(c, 0, *b, 1));
  // Whoever is starved of CPU leaves its share to the other for once; an unfair port is so in every try.
  double total = 0, share = 0;
  const auto is_fair = [&] { return total > 200 * 0.8 && std::abs(share - 0.5) < 0.1; };
  for (int attempt = 0; attempt < 5 && !is_fair(); attempt++) {
    a->tell("stream 4 1048576 1500 0");
    c.tell("stream 8 65536 1500 0");
    const Streamed large = parse(a->hear()), small = parse(c.hear());
    total = mbit(large.bytes.at(0), large.took_ns) + mbit(small.bytes.at(0), small.took_ns);
    share = mbit(small.bytes[0], small.took_ns) / total;
    EXPECT_LT(total, 200 * 1.05);
  }
  EXPECT_TRUE(is_fair()) << total << " Mbit/s, of which the small writes have " << share;
}

TEST_F(ThrottleTest, a_small_write_does_not_wait_behind_the_whole_of_a_large_one) {
  arm("{target: node0/nic0, kind: throttle, rate: 100 Mbit/s, at: now}");
  start(18, 7);
  a->make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  a->must("post 0 write 1 4194304 0");  // 336 ms of the port
  a->must("post 1 write 2 1024 0");
  const auto small = a->poll(1, 1, 10000);
  const auto large = a->poll(0, 1, 10000);
  ASSERT_EQ(small.size(), 1u);
  ASSERT_EQ(large.size(), 1u);
  EXPECT_LT(small[0].at_ns + 200 * kMs, large[0].at_ns);
}

TEST_F(ThrottleTest, a_killed_process_leaves_the_port_to_the_others) {
  arm("{target: node0/nic0, kind: throttle, rate: 200 Mbit/s, at: now}");
  start(18, 7);
  Agent& c = agent("node0", "2");
  ASSERT_NO_FATAL_FAILURE(c.open());
  c.make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(c, 0, *b, 1));
  c.tell("stream 8 262144 60000 0");
  ASSERT_TRUE(eventually([&] { return fabric.counters("node0", 0).tx_messages > 0; }));
  c.kill_it();
  stream_at(200, "stream 8 65536 400 0");
}

TEST_F(ThrottleTest, a_schedule_of_rates_is_followed_round_and_round) {
  // Half the time at 100 Mbit/s, half at 300: 200 on the average of each whole round.
  const uint32_t id =
      arm("{target: node0/nic0, kind: throttle, at: now,"
          " rates: [{rate: 100 Mbit/s, for: 250 ms}, {rate: 300 Mbit/s, for: 250 ms}]}");
  start(18, 7);
  stream_at(200, "stream 8 65536 1000 0", 0.65);  // more than the lower rate alone
  EXPECT_TRUE(witnessed(id, Effect::kWrWithheld, "node0"));
}

TEST_F(ThrottleTest, the_last_rate_stays_where_it_has_no_end) {
  arm("{target: node0/nic0, kind: throttle, at: now, rates: [{rate: unlimited, for: 1 ms}, {rate: 200 "
      "Mbit/s}]}");
  start(18, 7);
  stream_at(200, "stream 8 65536 800 0", 0.65);
}

TEST_F(ThrottleTest, a_queue_pair_that_is_connected_elsewhere_pays_there) {
  arm("{target: 'node1/nic[0-1]', kind: throttle, rate: 60 Mbit/s, at: now}");
  start(18, 7);
  a->make_qp(18, 7), b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
  Agent& c = agent("node1", "2");
  ASSERT_NO_FATAL_FAILURE(c.open(1));
  const auto both = [&] {
    const Streamed run = parse(a->ask("stream 8 65536 300 0 1"));
    return mbit(run.bytes.at(0) + run.bytes.at(1), run.took_ns);
  };
  double best = 0;  // of tries; whoever is starved of CPU carries less for once
  for (int attempt = 0; attempt < 3 && best < 1.5; attempt++) {
    if (attempt > 0) {
      a->must("reset 0");
      b->make_qp(18, 7);
      ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, int(b->numbers.size()) - 1));
    }
    const double at_one_port = both();
    a->must("reset 0");
    c.make_qp(18, 7);
    ASSERT_NO_FATAL_FAILURE(connect(*a, 0, c, int(c.numbers.size()) - 1));
    best = std::max(best, both() / at_one_port);
  }
  EXPECT_GT(best, 1.5) << "each port carries its rate";
}

TEST_F(ThrottleTest, what_was_paid_for_a_send_that_is_gone_pays_for_no_other) {
  arm("{target: node0/nic0, kind: throttle, rate: 10 Mbit/s, at: now}");
  start(18, 7);
  a->must("post 0 write 1 1048576 0");  // 839 ms of the port
  EXPECT_TRUE(a->poll(0, 1, 400).empty());
  a->must("reset 0");
  b->make_qp(18, 7);
  ASSERT_NO_FATAL_FAILURE(connect(*a, 0, *b, 1));
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  a->must("post 0 write 2 250000 0");  // 200 ms
  const auto wcs = a->poll(0, 1, 20000);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 2u);
  EXPECT_GT(wcs[0].at_ns - before, 190 * kMs);
}

TEST_F(ThrottleTest, each_datagram_pays_at_the_port_to_which_it_goes) {
  const uint32_t id = arm("{target: node1/nic0, kind: throttle, rate: 1 Mbit/s, at: now}");
  start(18, 7, 16, "shared", "ud");
  Agent& c = agent("node1", "2");
  ASSERT_NO_FATAL_FAILURE(c.open(1));
  c.make_qp(18, 7, 16, "shared", "ud");
  const uint64_t before = std::stoull(a->ask("now").substr(3));
  for (int i = 0; i < 10; i++) a->must("post 0 send " + std::to_string(i) + " 1000 0");  // 8 ms each
  a->must("aim 0 " + std::to_string(c.numbers[0]) + " " + c.gid);  // not limited, but behind the others
  a->must("post 0 send 10 1000 0");
  const auto wcs = a->poll(0, 11, 20000);
  ASSERT_EQ(wcs.size(), 11u);
  for (size_t i = 0; i < 11; i++) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, kSuccess);
  }
  EXPECT_GT(wcs[9].at_ns - before, 75 * kMs);
  EXPECT_EQ(count(id, Effect::kWrWithheld), 1u);
  // And now it pays at the other port.
  const uint32_t other = arm("{target: node1/nic1, kind: throttle, rate: 1 Mbit/s}");
  board.fire(other);
  EXPECT_EQ(a->ask("create_cq"), "ok");
  const uint64_t again = std::stoull(a->ask("now").substr(3));
  for (int i = 0; i < 10; i++) a->must("post 0 send " + std::to_string(i) + " 1000 0");
  const auto more = a->poll(0, 10, 20000);
  ASSERT_EQ(more.size(), 10u);
  EXPECT_GT(more[9].at_ns - again, 75 * kMs);
  EXPECT_EQ(count(other, Effect::kWrWithheld), 1u);
}

TEST_F(ThrottleTest, a_step_without_a_limit_withholds_nothing) {
  const uint32_t id =
      arm("{target: node0/nic0, kind: throttle, rates: [{rate: unlimited, for: 1 h}, {rate: 1 Mbit/s}], at: "
          "now}");
  start();
  for (int i = 1; i <= 3; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    ASSERT_EQ(a->poll(0, 1, 5000).at(0).status, kSuccess);
  }
  EXPECT_EQ(board.state(id).t0_ns, 0u);
  EXPECT_TRUE(board.witnesses(id).empty());
}

}  // namespace
}  // namespace faultinject::testing
