// SPDX-License-Identifier: Apache-2.0
// The fluid server of a port, with time passed in: shares, order, and that late observers lose nothing.
#include "harness/vhca/testing/pause_at.h"

#include "port_clock.cc"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace vhca {
namespace {

constexpr std::uint64_t kGbit = 1'000'000'000;
constexpr std::uint64_t kStart = 5'000'000'000'000;

std::uint64_t end_of(std::uint64_t begin, std::uint64_t bytes) { return begin + (bytes << kVirtualByteBits); }

class PortClock : public ::testing::Test {
 protected:
  PortClock() { init_server(*server_, kGbit, kStart); }
  Flow flow() { return open_flow(*server_, next_owner_++); }
  std::unique_ptr<RateServer> server_ = std::make_unique<RateServer>();
  std::uint32_t next_owner_ = 1;
};

TEST_F(PortClock, one_message_takes_its_size_over_the_rate) {
  const Flow f = flow();
  const std::uint64_t begin = reserve(f, 125'000, kStart);
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(begin, 125'000), kStart) - kStart), 1e6, 10);
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(begin, 62'500), kStart) - kStart), 5e5, 10);
  EXPECT_EQ(time_of_tag(f, end_of(begin, 125'000), kStart + 1'000'010), 0u);
}

TEST_F(PortClock, messages_of_one_flow_follow_each_other) {
  const Flow f = flow();
  std::uint64_t last = 0;
  for (int i = 0; i < 100; ++i) last = reserve(f, 125'000, kStart);
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(last, 125'000), kStart) - kStart), 100e6, 100);
}

TEST_F(PortClock, flows_with_work_share_equally_whatever_their_messages) {
  const Flow big = flow(), small = flow();
  const std::uint64_t b = reserve(big, 10'000'000, kStart);
  std::uint64_t s = 0;
  for (int i = 0; i < 1000; ++i) s = reserve(small, 1'000, kStart);
  // 1 MB of the small flow at half the rate: 16 ms; the big one: 8 MB more at the whole rate behind 2 MB in
  // 16 ms.
  EXPECT_NEAR(static_cast<double>(time_of_tag(small, end_of(s, 1'000), kStart) - kStart), 16e6, 1000);
  EXPECT_NEAR(static_cast<double>(time_of_tag(big, end_of(b, 10'000'000), kStart) - kStart), 88e6, 1000);
}

TEST_F(PortClock, a_flow_that_gets_part_of_the_rate_takes_so_much_more_of_the_servers_time) {
  const Flow near = flow(), far = open_flow(*server_, next_owner_++, 25);
  const std::uint64_t f = reserve(far, 125'000, kStart), n = reserve(near, 125'000, kStart);
  // Half of the server each until the near one is served: 2 ms; the far one has 3 ms left then.
  EXPECT_NEAR(static_cast<double>(time_of_tag(near, n + near.work_of(125'000), kStart) - kStart), 2e6, 100);
  EXPECT_NEAR(static_cast<double>(time_of_tag(far, f + far.work_of(125'000), kStart) - kStart), 5e6, 100);
}

TEST_F(PortClock, a_short_message_does_not_wait_for_long_ones_of_others) {
  const Flow big = flow(), other = flow(), small = flow();
  reserve(big, 100'000'000, kStart);
  reserve(other, 100'000'000, kStart);
  const std::uint64_t s = reserve(small, 8, kStart + 1'000'000);
  EXPECT_LT(time_of_tag(small, end_of(s, 8), kStart + 1'000'000) - kStart, 1'000'000u + 3 * 64 + 10);
}

TEST_F(PortClock, a_late_look_finds_what_would_have_been_found_in_time) {
  const Flow a = flow(), b = flow();
  const std::uint64_t ta = reserve(a, 1'250'000, kStart);  // 10 ms alone
  const std::uint64_t tb = reserve(b, 125'000, kStart);    // done after 2 ms, sharing
  (void)tb;
  // Nobody looks for 10.9 ms; a needs 11 ms in all.
  EXPECT_NEAR(static_cast<double>(time_of_tag(a, end_of(ta, 1'250'000), kStart + 10'900'000) - kStart), 11e6,
              10);
  EXPECT_EQ(time_of_tag(a, end_of(ta, 1'250'000), kStart + 11'000'010), 0u);
}

TEST_F(PortClock, an_idle_flow_saves_nothing_up) {
  const Flow f = flow();
  reserve(f, 1000, kStart);
  const std::uint64_t later = kStart + 3'600'000'000'000;
  const std::uint64_t begin = reserve(f, 125'000, later);
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(begin, 125'000), later) - later), 1e6, 10);
}

TEST_F(PortClock, cancelled_work_leaves_the_rate_to_others) {
  const Flow a = flow(), b = flow();
  const std::uint64_t ta = reserve(a, 1'250'000, kStart);
  reserve(b, 125'000'000, kStart);
  cancel_rest(b, kStart + 2'000'000);
  // 2 ms at half the rate, the rest alone: 11 ms.
  EXPECT_NEAR(static_cast<double>(time_of_tag(a, end_of(ta, 1'250'000), kStart + 2'000'000) - kStart), 11e6,
              10);
  const std::uint64_t tb = reserve(b, 8, kStart + 2'000'000);
  EXPECT_LT(time_of_tag(b, end_of(tb, 8), kStart + 2'000'000) - kStart, 2'001'000u);
}

TEST_F(PortClock, a_closed_flow_can_be_opened_by_another) {
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < kFlowsPerServer; ++i) flows.push_back(flow());
  EXPECT_TRUE(flows.back().paced());
  EXPECT_FALSE(flow().paced());
  close_flow(flows[77]);
  EXPECT_TRUE(flow().paced());
  release_flows_of(*server_, 5);
  EXPECT_TRUE(flow().paced());
}

TEST_F(PortClock, no_rate_means_no_pacing) {
  RateServer unlimited{};
  init_server(unlimited, 0, kStart);
  EXPECT_FALSE(open_flow(unlimited, 1).paced());
}

TEST_F(PortClock, slow_rates_are_kept_within_a_thousandth) {
  init_server(*server_, 1'000'000, kStart);
  const Flow f = flow();
  const std::uint64_t begin = reserve(f, 125'000, kStart);
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(begin, 125'000), kStart) - kStart), 1e9, 1e6);
}

// release_flows_of() looks whose a flow is, and then clears its bit; another process may be the owner by
// then.
TEST_F(PortClock, a_late_reclaimer_does_not_stop_the_work_of_the_next_owner) {
  constexpr std::uint32_t kDead = 100, kNext = 101;
  Flow f;
  std::uint64_t begin = 0, now = kStart;
  // Reserves for the next owner of the dead one's flow, while the first reclaimer is about to clear its bit.
  const auto reserve_meanwhile = [&] {
    open_flow(*server_, kDead, 100);
    test::at_next("flow_seen", [&] {
      release_flows_of(*server_, kDead);
      f = open_flow(*server_, kNext, 100);
      begin = reserve(f, 125'000, now);
    });
    release_flows_of(*server_, kDead);
    ASSERT_EQ(f.index, 0u);
    ASSERT_EQ(server_->flow_owner[0].load(), kNext);
    ASSERT_EQ(server_->active[0].load() & 1, 0u) << "the late one has cleared the wrong bit";
  };
  reserve_meanwhile();
  EXPECT_NEAR(static_cast<double>(time_of_tag(f, end_of(begin, 125'000), now + 500) - now), 1e6, 1000);
  EXPECT_EQ(time_of_tag(f, end_of(begin, 125'000), now + 1'001'000), 0u);
  EXPECT_EQ(unserved_bytes(f, now + 1'001'000), 0u);
  close_flow(f);

  now += 2'000'000;
  reserve_meanwhile();
  EXPECT_EQ(unserved_bytes(f, now), 125'000u);
  EXPECT_EQ(served_bytes(f, begin, now + 500'000), 62'500u);
  close_flow(f);

  now += 2'000'000;
  reserve_meanwhile();
  EXPECT_EQ(reserve(f, 125'000, now), end_of(begin, 125'000)) << "behind what it has reserved already";
  EXPECT_EQ(unserved_bytes(f, now), 250'000u);
}

TEST_F(PortClock, the_next_owner_of_a_flow_has_none_of_the_work_of_a_dead_one) {
  const Flow dead = flow();
  reserve(dead, 64 << 20, kStart);
  release_flows_of(*server_, next_owner_ - 1);
  const Flow next = flow();
  ASSERT_EQ(next.index, dead.index);
  EXPECT_EQ(unserved_bytes(next, kStart + 1000), 0u);
  EXPECT_EQ(server_->active[0].load(), 0u) << "nobody has work";
  const Flow other = flow();
  const std::uint64_t begin = reserve(other, 125'000, kStart + 1000);
  EXPECT_NEAR(static_cast<double>(time_of_tag(other, end_of(begin, 125'000), kStart + 1000) - kStart), 1e6,
              1100)
      << "the whole rate is the living one's";
}

// Its bit may be set still: drop_idle() sets one again when it finds a tag that was written meanwhile.
TEST_F(PortClock, the_next_owner_of_a_flow_that_was_left_active_begins_without_work) {
  const Flow dead = flow();
  reserve(dead, 64 << 20, kStart);
  server_->flow_owner[dead.index].store(0);
  const Flow next = flow();
  ASSERT_EQ(next.index, dead.index);
  EXPECT_EQ(unserved_bytes(next, kStart + 1000), 0u);
  EXPECT_EQ(server_->active[0].load(), 0u);
}

// It has claimed the first flow beyond those that were ever in use, and is killed before it can say more.
TEST_F(PortClock, a_flow_that_its_owner_has_just_claimed_is_found_when_the_owner_is_dead) {
  std::vector<Flow> flows;
  for (int i = 0; i < 64; ++i) flows.push_back(flow());
  const std::uint32_t dead = next_owner_;
  bool was_there = false;
  test::at_next("flow_claimed", [&] {
    was_there = true;
    ASSERT_EQ(server_->flow_owner[64].load(), dead);
    release_flows_of(*server_, dead);
    EXPECT_EQ(server_->flow_owner[64].load(), 0u);
  });
  flow();
  EXPECT_TRUE(was_there);
}

// Many threads reserve and look at the same time: the whole must take exactly as long as the bytes need,
// never less.
TEST_F(PortClock, users_at_the_same_time_get_together_what_the_rate_gives) {
  constexpr int kThreads = 4, kMessages = 2000;
  std::vector<Flow> flows;
  for (int i = 0; i < kThreads; ++i) flows.push_back(flow());
  std::vector<std::uint64_t> last(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < kMessages; ++k) {
        const std::uint64_t now =
            kStart + static_cast<std::uint64_t>(k);  // all work is there at the beginning
        last[static_cast<std::size_t>(i)] = reserve(flows[static_cast<std::size_t>(i)], 1250, now);
        time_of_tag(flows[static_cast<std::size_t>(i)], last[static_cast<std::size_t>(i)], now);
      }
    });
  for (auto& t : threads) t.join();
  std::uint64_t end = 0;
  for (int i = 0; i < kThreads; ++i)
    end = std::max(end, time_of_tag(flows[static_cast<std::size_t>(i)],
                                    end_of(last[static_cast<std::size_t>(i)], 1250), kStart + kMessages));
  const double wanted = kThreads * kMessages * 1250 * 8.0;
  EXPECT_NEAR(static_cast<double>(end - kStart), wanted, wanted * 0.001);
}

}  // namespace
}  // namespace vhca
