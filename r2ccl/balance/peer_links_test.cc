// SPDX-License-Identifier: Apache-2.0
// What is told of links: a lower rate at once, a higher one when it has lasted, wrong guesses ever later; and
// nothing of links that carry too little to tell.
#include "r2ccl/balance/peer_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace r2ccl::balance {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

TEST(ToldRate, is_slow_at_once_and_changes_when_another_rate_has_lasted) {
  ToldRate rate;
  rate.update(1, 0);
  EXPECT_FALSE(rate.is_slow());
  rate.update(0.5, 1 * kMs);
  EXPECT_EQ(rate.told(), 0.5);
  uint64_t fell = 2;
  for (; rate.told() == 0.5 && fell < 9999; ++fell) rate.update(fell == 100 ? 0.4 : 0.35, fell * kMs);
  EXPECT_EQ(fell, 2 + 500 + 1u);
  EXPECT_EQ(rate.told(), 0.4);   // the most since
  rate.update(0.42, 600 * kMs);  // hardly another one
  EXPECT_EQ(rate.told(), 0.4);
  for (uint64_t t = 1000; t < 2000; ++t) {
    rate.update(0.9, t * kMs);
    ASSERT_EQ(rate.told(), 0.4);
  }
  rate.update(0.8, 2000 * kMs);
  EXPECT_EQ(rate.told(), 0.8);  // the least since
  for (uint64_t t = 2001; t < 3001; ++t) {
    rate.update(1, t * kMs);
    ASSERT_EQ(rate.told(), 0.8);
  }
  rate.update(1, 3001 * kMs);
  EXPECT_FALSE(rate.is_slow());
}

TEST(ToldRate, a_rate_that_swings_is_told_once) {
  ToldRate rate;
  int changes = 0;
  double before = 1;
  for (uint64_t t = 0; t < 60'000; t += 50) {
    rate.update(t / 400 % 2 == 0 ? 0.3 : 0.9, t * kMs);
    changes += rate.told() != before;
    before = rate.told();
  }
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(before, 0.3);
}

// As a NIC does that looks faster the less it has to carry: it is given more, and falls.
TEST(ToldRate, wrong_guesses_become_rare) {
  ToldRate rate;
  int rises = 0;
  double before = 1;
  for (uint64_t t = 0; t < 600'000; t += 50) {
    rate.update(rate.told() > 0.5 ? 0.3 : 0.8, t * kMs);
    rises += rate.told() > before;
    before = rate.told();
  }
  EXPECT_GE(rises, 5);
  EXPECT_LE(rises, 15);  // 1, 2, 4, … 64 s
  EXPECT_EQ(rate.patience(), ToldRate::kRiseAtMostNs);
}

TEST(ToldRate, wrong_guesses_are_forgotten_when_the_link_has_been_fast_for_long) {
  ToldRate rate;
  uint64_t t = 0;
  const auto go = [&](double now, uint64_t seconds) {
    for (const uint64_t until = t + seconds * kSecond; t < until; t += 50 * kMs) rate.update(now, t);
  };
  go(0.3, 1), go(1, 2), go(0.3, 1);
  EXPECT_EQ(rate.patience(), 2 * ToldRate::kRiseAfterNs);
  go(1, 3);
  EXPECT_FALSE(rate.is_slow());
  go(1, 61);
  EXPECT_EQ(rate.patience(), ToldRate::kRiseAfterNs);
}

/// A sender's NICs and one peer: so many bytes on each link in each step of 10 ms, at these rates.
class Peer {
 public:
  explicit Peer(size_t links) : meters_(links) {}
  /// Each link has work for 10 ms, or none.
  void step(PeerLinks& links, const std::vector<double>& rates, bool traffic = true) {
    const uint64_t until = now_ + 10 * kMs;
    for (size_t i = 0; i < meters_.size(); ++i) {
      if (rates[i] <= 0) continue;
      const auto bytes = uint32_t(64 << 10);
      for (int write = 0; write < 4; ++write) meters_[i].posted(bytes, [&] { return now_; });
      // A slow link carries fewer of them in the time; the others take what is left of it.
      const int done = std::max(1, int(4 * rates[i]));
      for (int write = 0; write < done; ++write)
        meters_[i].done(bytes, bytes, [&] { return now_ + 10 * kMs * uint64_t(write + 1) / uint64_t(done); });
      meters_[i].abandoned(4 - done, until);
    }
    look(links, until, traffic);
  }
  /// All follows a plan, and the first link carries so much of what each of the others does, for 10 ms: one write,
  /// where the others have two under way, or, if `waits`, eight that wait for each other.
  void planned_step(PeerLinks& links, double first, bool waits) {
    const uint64_t until = now_ + 10 * kMs;
    for (size_t i = 0; i < meters_.size(); ++i) {
      const int writes = i > 0 ? 2 : waits ? 8 : 1;
      const auto bytes = uint32_t((i > 0 ? 1 : first) * (1 << 20) / writes);
      for (int write = 0; write < writes; ++write) meters_[i].posted(bytes, [&] { return now_; });
      for (int write = 0; write < writes; ++write)
        meters_[i].done(bytes, bytes, [&] { return now_ + 10 * kMs * uint64_t(write + 1) / uint64_t(writes); });
      planned_ += bytes * uint64_t(writes);
    }
    look(links, until, true);
  }
  uint64_t now() const { return now_; }

 private:
  void look(PeerLinks& links, uint64_t until, bool traffic) {
    now_ = until;
    std::vector<NicMeter::Reading> readings;
    for (const NicMeter& meter : meters_) readings.push_back(meter.read());
    links.take(readings, now_, {}, planned_, traffic);
  }
  uint64_t planned_ = 0;
  std::vector<NicMeter> meters_;
  uint64_t now_ = kSecond;
};

constexpr std::array<double, 4> kNominal{1, 1, 1, 1};

TEST(PeerLinks, a_link_that_carries_less_than_the_others_is_slow_and_recovers) {
  PeerLinks links(kNominal);
  Peer peer(4);
  EXPECT_EQ(links.rate(0), PeerLinks::kUnknown);
  for (int i = 0; i < 100; ++i) peer.step(links, {1, 1, 1, 1});
  for (size_t link = 0; link < 4; ++link) EXPECT_EQ(links.rate(link), PeerLinks::kFast);
  for (int i = 0; i < 100; ++i) peer.step(links, {1, 0.5, 1, 1});
  EXPECT_NEAR(links.rate(1), 0.5, 0.05);
  EXPECT_EQ(links.rate(0), PeerLinks::kFast);
  int until = 0;
  for (; links.rate(1) != PeerLinks::kFast && until < 1000; ++until) peer.step(links, {1, 1, 1, 1});
  EXPECT_GT(until, 100);
  EXPECT_LT(until, 300);
}

TEST(PeerLinks, a_link_alone_cannot_be_judged) {
  PeerLinks links(kNominal);
  Peer peer(4);
  for (int i = 0; i < 200; ++i) peer.step(links, {0.5, 0, 0, 0});
  for (size_t link = 0; link < 4; ++link) EXPECT_EQ(links.rate(link), PeerLinks::kUnknown);
}

TEST(PeerLinks, a_link_that_rests_is_unknown) {
  PeerLinks links(kNominal);
  Peer peer(4);
  for (int i = 0; i < 100; ++i) peer.step(links, {1, 1, 1, 1});
  for (int i = 0; i < 199; ++i) peer.step(links, {0, 1, 1, 1});
  EXPECT_EQ(links.rate(0), PeerLinks::kFast);
  for (int i = 0; i < 2; ++i) peer.step(links, {0, 1, 1, 1});
  EXPECT_EQ(links.rate(0), PeerLinks::kUnknown);
  EXPECT_EQ(links.rate(1), PeerLinks::kFast);
}

TEST(PeerLinks, a_slow_link_that_carries_nothing_is_tried_again_ever_later) {
  PeerLinks links(kNominal);
  Peer peer(4);
  uint64_t before = 0;
  for (int round = 0; round < 4; ++round) {
    while (links.rate(0) == PeerLinks::kFast || links.rate(0) == PeerLinks::kUnknown) peer.step(links, {0.5, 1, 1, 1});
    const uint64_t from = peer.now();
    while (links.rate(0) != PeerLinks::kUnknown) peer.step(links, {0, 0, 0, 0});
    EXPECT_GT(peer.now() - from, before);
    before = peer.now() - from;
  }
  EXPECT_GE(before, 32 * kSecond);
  // … and not while nothing is sent at all: the job computes.
  while (links.rate(0) == PeerLinks::kFast || links.rate(0) == PeerLinks::kUnknown) peer.step(links, {0.5, 1, 1, 1});
  for (int i = 0; i < 100'000; ++i) peer.step(links, {0, 0, 0, 0}, false);
  EXPECT_NEAR(links.rate(0), 0.5, 0.05);
}

/// Seconds for which a slow link stays slow under a plan; at most 600.
double slow_for(PeerLinks& links, Peer& peer, bool waits) {
  const uint64_t from = peer.now();
  while (links.rate(0) > 0 && links.rate(0) < 1 && peer.now() - from < 600 * kSecond) peer.planned_step(links, 0.3, waits);
  return double(peer.now() - from) / kSecond;
}

// Under a plan that knows of it a NIC carries little, and looks slow for that: whether it could carry more shows when
// it is given more.
TEST(PeerLinks, a_slow_link_of_which_a_plan_asks_little_is_tried_again_ever_later) {
  PeerLinks links(kNominal);
  Peer peer(4);
  double before = 0;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 500 && !(links.rate(0) > 0 && links.rate(0) < 1); ++i) peer.step(links, {0.25, 1, 1, 1});
    ASSERT_NEAR(links.rate(0), 0.25, 0.05);
    const double lasted = slow_for(links, peer, false);
    EXPECT_LT(lasted, round == 0 ? 6 : 260);
    EXPECT_GT(lasted, std::min(1.7 * before, 250.0)) << "round " << round;
    before = lasted;
  }
  EXPECT_GT(before, 200);
  // Once it has been fast for long, the next throttle's end is noticed soon again.
  links.try_anew(0);
  for (int i = 0; i < 6500; ++i) peer.step(links, {1, 1, 1, 1});
  ASSERT_EQ(links.rate(0), PeerLinks::kFast);
  for (int i = 0; i < 500 && links.rate(0) >= 1; ++i) peer.step(links, {0.25, 1, 1, 1});
  EXPECT_LT(slow_for(links, peer, false), 6);
}

// The NIC gets its full share again. A link that carries nothing now must not say for long what was true then.
TEST(PeerLinks, what_was_measured_before_a_trial_counts_no_more) {
  PeerLinks links(kNominal);
  Peer peer(4);
  for (int i = 0; i < 100; ++i) peer.step(links, {0.25, 1, 1, 1});
  ASSERT_NEAR(links.rate(0), 0.25, 0.05);
  links.try_anew(0);
  EXPECT_EQ(links.rate(0), PeerLinks::kUnknown);
  // By the old plan, for a while.
  for (int i = 0; i < 90; ++i) {
    peer.step(links, {0.25, 1, 1, 1});
    ASSERT_EQ(links.rate(0), PeerLinks::kUnknown);
    ASSERT_NE(links.rate(1), PeerLinks::kUnknown);
  }
  for (int i = 0; i < 1000; ++i) {
    peer.step(links, {1, 1, 1, 1});
    ASSERT_TRUE(links.rate(0) == PeerLinks::kUnknown || links.rate(0) == PeerLinks::kFast);
  }
  EXPECT_EQ(links.rate(0), PeerLinks::kFast);
  // It is slow again soon: the next trial comes later.
  for (int i = 0; i < 100; ++i) peer.step(links, {0.25, 1, 1, 1});
  EXPECT_NEAR(links.rate(0), 0.25, 0.05);
  const double lasted = slow_for(links, peer, false);
  EXPECT_GT(lasted, 7);
  EXPECT_LT(lasted, 12);
}

// All links of a NIC must be forgotten before it is tried. One that is forgotten keeps the others' pace under the plan,
// which must not be taken for a proof that the NIC is fast: another one would be named for the links that are left.
TEST(PeerLinks, a_forgotten_link_is_not_fast_before_the_trial) {
  PeerLinks links(kNominal);
  Peer peer(4);
  for (int i = 0; i < 100; ++i) peer.step(links, {0.25, 1, 1, 1});
  ASSERT_NEAR(links.rate(0), 0.25, 0.05);
  EXPECT_LT(slow_for(links, peer, false), 6);
  for (int i = 0; i < 300; ++i) {
    peer.step(links, {1, 1, 1, 1});
    ASSERT_EQ(links.rate(0), PeerLinks::kUnknown) << i;
  }
  links.try_anew(0);
  for (int i = 0; i < 200; ++i) peer.step(links, {1, 1, 1, 1});
  EXPECT_EQ(links.rate(0), PeerLinks::kFast);
}

TEST(PeerLinks, a_link_on_which_writes_wait_is_not_tried) {
  PeerLinks links(kNominal);
  Peer peer(4);
  for (int i = 0; i < 100; ++i) peer.step(links, {0.25, 1, 1, 1});
  ASSERT_NEAR(links.rate(0), 0.25, 0.05);
  EXPECT_EQ(slow_for(links, peer, true), 600);
}

}  // namespace
}  // namespace r2ccl::balance
