// SPDX-License-Identifier: Apache-2.0
// Outage: when a broken control connection is tried again, and when its peer counts as ended.
#include "r2ccl/protocol/outage.h"

#include <gtest/gtest.h>

#include <memory>

namespace r2ccl {
namespace {

using control::Reach;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kBound = 3000 * kMs;

struct Network {
  bool sets_up = false, is_sender = true, asking = false, has_begun = true, hastens = true;
  Reach begins = Reach::kPending, comes_to = Reach::kPending;
  int connects = 0, closed = 0, asked = 0, begun_again = 0;
  MovedSight sight;
  std::string why;
  bool setting_up() const { return sets_up; }
  bool asks() const { return asking; }
  Reach connect() { return ++connects, begins; }
  Reach reach() const { return comes_to; }
  void close() { ++closed; }
  bool sender() const { return is_sender; }
  bool resumable() const { return has_begun; }
  MovedSight moved() const { return sight; }
  bool in_haste() const { return hastens; }
  void ask() {
    ++asked;
    asking = true;
  }
  void begin_again() {
    ++begun_again;
    asking = true;
  }
  void gone(const std::string& reason) { why = reason; }
};

/// An outage that is looked at every 10 ms.
struct Lasting {
  std::unique_ptr<Outage> outage = std::make_unique<Outage>(kBound);
  Network network;
  Tick tick{5000 * kMs, 1000 * kMs};
  void breaks(Outage::Break what = {}) { outage->broke(network, tick, what); }
  /// For so many milliseconds, or until the peer is taken for ended; how many there were.
  uint64_t goes_on(uint64_t for_ms, bool stopped = false) {
    for (uint64_t ms = 10; ms <= for_ms; ms += 10) {
      tick.now += 10 * kMs;
      if (!stopped) tick.alive += 10 * kMs;
      outage->step(network, tick);
      if (!network.why.empty()) return ms;
    }
    return for_ms;
  }
};

TEST(Outage, connects_at_once_and_asks_when_the_connection_stands) {
  Lasting o;
  o.breaks();
  EXPECT_EQ(o.network.connects, 1);
  o.goes_on(20);
  EXPECT_EQ(o.network.connects, 1) << "it is still being made";
  o.network.comes_to = Reach::kReached;
  o.goes_on(10);
  EXPECT_EQ(o.network.asked, 1);
  EXPECT_TRUE(o.outage->reached());
  o.goes_on(500);
  EXPECT_EQ(o.network.connects, 1) << "the answer is waited for";
  EXPECT_EQ(o.outage->restored(o.tick.now), 530 * kMs);
  EXPECT_FALSE(o.outage->lasts());
}

TEST(Outage, a_conversation_that_has_not_begun_is_begun_again) {
  Lasting o;
  o.network.has_begun = false;
  o.network.begins = o.network.comes_to = Reach::kReached;
  o.breaks();
  o.goes_on(100);
  EXPECT_EQ(o.network.begun_again, 1);
  EXPECT_EQ(o.network.asked, 0) << "there is nothing to go on with";
  o.network.has_begun = true;
  o.network.asking = false;  // that connection has broken, too
  o.goes_on(500);
  EXPECT_EQ(o.network.begun_again, 1);
  EXPECT_EQ(o.network.asked, 1);
}

TEST(Outage, asks_once) {
  Lasting o;
  o.network.begins = o.network.comes_to = Reach::kReached;
  o.breaks();
  o.goes_on(100);
  EXPECT_EQ(o.network.asked, 1);
  EXPECT_EQ(o.network.connects, 1);
}

TEST(Outage, says_whether_the_peers_process_can_be_reached) {
  Lasting o;
  EXPECT_STREQ(o.outage->words(), "");
  o.breaks();
  EXPECT_STREQ(o.outage->words(), ", its process cannot be reached");
  o.network.comes_to = Reach::kReached;
  o.goes_on(10);
  EXPECT_STREQ(o.outage->words(), ", its process can be reached");
  o.outage->restored(o.tick.now);
  EXPECT_STREQ(o.outage->words(), "");
}

TEST(Outage, a_peer_that_noticed_first_costs_no_time_here) {
  EXPECT_EQ(Outage(kBound).restored(1000 * kMs), 0u);
}

TEST(Outage, the_next_one_knows_nothing_of_the_last) {
  Lasting o;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  o.goes_on(10);
  ASSERT_TRUE(o.outage->reached());
  o.outage->restored(o.tick.now);
  o.network.asking = false;
  o.network.begins = Reach::kBroken;
  o.breaks();
  EXPECT_FALSE(o.outage->reached());
  EXPECT_EQ(o.goes_on(60'000), kBound / kMs + 10);
}

TEST(Outage, is_tried_again_after_a_pause_and_when_a_connection_takes_too_long) {
  Lasting o;
  o.network.begins = Reach::kBroken;
  o.breaks();
  EXPECT_EQ(o.network.connects, 1);
  o.goes_on(Outage::kRetryNs / kMs - 10);
  EXPECT_EQ(o.network.connects, 1);
  o.network.begins = Reach::kPending;
  o.goes_on(10);
  EXPECT_EQ(o.network.connects, 2);
  o.goes_on(Outage::kConnectNs / kMs + 10);
  EXPECT_EQ(o.network.connects, 2);
  EXPECT_EQ(o.network.closed, 1);
  o.goes_on(Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.connects, 3);
}

TEST(Outage, a_refusal_ends_a_channel_whose_path_has_failed_or_that_is_over) {
  Lasting o;
  o.network.begins = Reach::kRefused;
  o.breaks();
  EXPECT_EQ(o.network.why, "closed: that process ended");
  EXPECT_FALSE(o.outage->lasts());
  EXPECT_FALSE(in_haste({}));
  EXPECT_TRUE(in_haste({.phase = Phase::kFencing}));
  EXPECT_TRUE(in_haste({.phase = Phase::kChoosing}));
  EXPECT_FALSE(in_haste({.phase = Phase::kFencing, .planned = true})) << "it has not failed";
  EXPECT_FALSE(in_haste({.phase = Phase::kWaitingForPeer, .active = true})) << "only a lane is left";
  EXPECT_TRUE(in_haste({.phase = Phase::kFencing, .active = true, .suspected = true}));
  EXPECT_TRUE(in_haste({.phase = Phase::kFencing, .planned = true, .suspected = true}));
  EXPECT_FALSE(in_haste({.suspected = true})) << "Outage::path_fails() is told when it is left";
  EXPECT_TRUE(in_haste({.planned = true, .closing = true}));
  EXPECT_TRUE(in_haste({.closing = true}));
  EXPECT_TRUE(in_haste({.failed = true}));
}

TEST(Outage, while_its_path_works_only_many_refusals_running_are_an_end) {
  Lasting o;
  o.network.hastens = false;
  o.network.begins = Reach::kRefused;
  o.breaks();
  o.goes_on((Outage::kMostRefused - 2) * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "");
  EXPECT_EQ(o.network.connects, int(Outage::kMostRefused) - 1);
  o.goes_on(Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "closed: that process ended");
}

TEST(Outage, a_process_that_moves_data_lives_whatever_its_host_refuses) {
  Lasting o;
  o.network.hastens = false;
  o.network.begins = Reach::kRefused;
  o.breaks();
  for (int i = 0; i < 1000; ++i) {
    o.network.sight.anywhere = o.tick.alive + 1;
    o.goes_on(10);
    ASSERT_EQ(o.network.why, "") << i;
  }
  EXPECT_GT(o.network.connects, 150);
  EXPECT_LT(o.network.connects, 250) << "it is not asked without a pause";
  EXPECT_LE(o.goes_on(10'000), (Outage::kMostRefused + 1) * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "closed: that process ended");
}

// A lane is left, and the active path carries on. DataMoved holds `anywhere` back in such a phase.
TEST(Outage, a_channel_that_moves_data_itself_while_a_lane_is_left_does_not_end_by_refusals) {
  Lasting o;
  o.network.begins = Reach::kRefused;
  o.network.hastens = false;
  o.breaks();
  o.network.hastens = true;  // another path has failed, too
  for (int i = 0; i < 1000; ++i) {
    o.network.sight.here = o.tick.alive + 1;
    o.goes_on(10);
    ASSERT_EQ(o.network.why, "") << i;
  }
  EXPECT_LE(o.goes_on(1000), 2 * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "closed: that process ended");
}

TEST(Outage, a_path_that_fails_after_a_refusal_shows_that_the_process_has_ended) {
  Lasting o;
  o.network.hastens = false;
  o.outage->path_fails(o.network);
  EXPECT_EQ(o.network.why, "") << "its connection stands";
  o.breaks();
  o.outage->path_fails(o.network);
  EXPECT_EQ(o.network.why, "") << "nothing has been refused";
  o.network.comes_to = Reach::kRefused;
  o.goes_on(20);
  EXPECT_EQ(o.network.why, "");
  o.outage->path_fails(o.network);
  EXPECT_EQ(o.network.why, "closed: that process ended");
  EXPECT_FALSE(o.outage->lasts());
}

TEST(Outage, in_set_up_a_path_that_fails_shows_nothing) {
  Lasting o;
  o.network.sets_up = true;
  o.network.begins = Reach::kRefused;
  o.breaks();
  o.outage->path_fails(o.network);
  EXPECT_EQ(o.network.why, "");
}

TEST(Outage, in_set_up_only_many_refusals_running_are_an_end) {
  Lasting o;
  o.network.sets_up = true;
  o.network.begins = Reach::kRefused;
  o.breaks();
  o.goes_on((Outage::kMostRefused - 2) * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.connects, int(Outage::kMostRefused) - 1);
  EXPECT_EQ(o.network.why, "");
  o.network.begins = Reach::kPending;
  o.network.comes_to = Reach::kBroken;  // something else: they do not run any more
  o.goes_on(2 * Outage::kRetryNs / kMs);
  o.network.begins = Reach::kRefused;
  o.goes_on(Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "");
  o.goes_on(100 * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.why, "is refused each time: that process ended");
}

TEST(Outage, in_set_up_the_last_of_so_many_refusals_is_the_end) {
  Lasting o;
  o.network.sets_up = true;
  o.network.begins = Reach::kRefused;
  o.breaks();
  o.goes_on(100 * Outage::kRetryNs / kMs);
  EXPECT_EQ(o.network.connects, int(Outage::kMostRefused));
}

TEST(Outage, a_connection_that_hangs_or_stands_ends_a_run_of_refusals) {
  for (const Reach what : {Reach::kPending, Reach::kReached}) {
    Lasting o;
    o.network.sets_up = true;
    o.network.is_sender = false;
    o.network.begins = Reach::kRefused;
    o.breaks();
    o.goes_on((Outage::kMostRefused - 2) * Outage::kRetryNs / kMs);
    o.network.begins = Reach::kPending;
    o.network.comes_to = what;
    o.goes_on((Outage::kRetryNs + Outage::kConnectNs) / kMs + 20);
    o.network.begins = o.network.comes_to = Reach::kRefused;
    o.goes_on(5 * Outage::kRetryNs / kMs);
    EXPECT_EQ(o.network.why, "") << int(what);
  }
}

TEST(Outage, a_process_that_cannot_be_reached_has_the_bound) {
  Lasting o;
  o.network.begins = Reach::kBroken;
  o.breaks();
  EXPECT_EQ(o.goes_on(60'000), kBound / kMs + 10);
  EXPECT_EQ(o.network.why, "closed, and its process could not be reached for 3000 ms (R2CC_CONTROL_MS)");
}

TEST(Outage, a_process_that_cannot_be_reached_has_as_long_as_the_user_would_wait_for_a_path) {
  constexpr uint64_t kUnreached = 20'000 * kMs;
  for (const bool silent : {false, true}) {
    Lasting o;
    o.outage = std::make_unique<Outage>(kBound, kUnreached);
    o.network.begins = Reach::kBroken;
    o.breaks({.silent = silent});
    EXPECT_EQ(o.goes_on(60'000), kUnreached / kMs + 10);
    EXPECT_EQ(o.network.why, "closed, and its process could not be reached for 20000 ms (R2CC_CONTROL_MS)");
  }
  Lasting o;  // one that can be reached has no longer than before
  o.outage = std::make_unique<Outage>(kBound, kUnreached);
  o.network.comes_to = Reach::kReached;
  o.network.is_sender = false;
  o.breaks();
  EXPECT_NEAR(double(o.goes_on(60'000)), double(Outage::kReachedFactor * kBound / kMs), 30);
}

TEST(Outage, a_network_without_a_word_gives_it_longer) {
  Lasting o;
  o.network.begins = Reach::kBroken;
  o.breaks({.silent = true});
  EXPECT_EQ(o.goes_on(60'000), (kBound + Outage::kSilencePatienceNs) / kMs + 10);
  EXPECT_NE(o.network.why.find("12000 ms (R2CC_CONTROL_MS plus 9000 ms"), std::string::npos) << o.network.why;
}

TEST(Outage, while_data_moves_a_process_that_cannot_be_reached_lives) {
  for (const bool silent : {false, true}) {
    Lasting o;
    o.network.begins = Reach::kBroken;
    o.breaks({silent, false, false});
    for (int i = 0; i < 20; ++i) {
      o.network.sight.anywhere = o.tick.alive;
      EXPECT_EQ(o.goes_on(2900), 2900u);
    }
    EXPECT_EQ(o.goes_on(60'000), (kBound + (silent ? Outage::kSilencePatienceNs : 0)) / kMs - 2900 + 10)
        << "since it last did";
  }
}

TEST(Outage, a_process_that_is_reached_and_does_not_answer_is_given_longer_only_by_this_channels_data) {
  for (const bool here : {false, true}) {
    Lasting o;
    o.network.begins = o.network.comes_to = Reach::kReached;
    o.breaks();
    o.goes_on(17'000);
    (here ? o.network.sight.here : o.network.sight.anywhere) = o.tick.alive;
    EXPECT_EQ(o.goes_on(60'000), Outage::kReachedFactor * kBound / kMs + 10 - (here ? 0 : 17'000 - 10));
  }
}

TEST(Outage, our_own_pause_makes_nobody_unreachable) {
  Lasting o;
  o.network.begins = Reach::kBroken;
  o.breaks();
  EXPECT_EQ(o.goes_on(60'000, true), 60'000u);
  EXPECT_EQ(o.network.why, "");
}

TEST(Outage, a_process_that_is_reached_and_does_not_answer_may_be_stopped_for_longer) {
  Lasting o;
  o.network.is_sender = false;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  EXPECT_EQ(o.goes_on(60'000), 10 + Outage::kReachedFactor * kBound / kMs + 10);
  EXPECT_EQ(o.network.why, "closed, and its process, which can be reached, has not restored it");
}

TEST(Outage, a_receiver_whose_connection_is_closed_has_reached_the_peer_all_the_same) {
  Lasting o;
  o.network.is_sender = false;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  o.goes_on(10);
  o.network.comes_to = Reach::kBroken;
  o.goes_on(10);
  EXPECT_TRUE(o.outage->reached());
  o.goes_on(Outage::kRetryNs / kMs);  // another connection, which does not come to stand
  o.goes_on(20);
  EXPECT_FALSE(o.outage->reached());
}

TEST(Outage, a_process_that_was_reached_has_the_bound_from_when_it_is_no_more) {
  Lasting o;
  o.network.is_sender = false;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  o.goes_on(10'000);
  o.network.begins = o.network.comes_to = Reach::kBroken;
  o.goes_on(10);  // it stood: another one is tried
  ASSERT_TRUE(o.outage->reached());
  o.network.begins = Reach::kPending;
  o.goes_on(Outage::kRetryNs / kMs + 10);
  ASSERT_FALSE(o.outage->reached());
  EXPECT_EQ(o.goes_on(60'000), kBound / kMs + 10);
}

TEST(Outage, a_peer_that_turns_us_away_again_and_again_has_given_the_channel_up) {
  Lasting o;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  int times = 0;
  for (; times < 100 && o.network.why.empty(); ++times) {
    o.network.asking = false;
    o.goes_on(400);
    ASSERT_TRUE(o.network.asking);
    o.breaks({.turned_away = true});
  }
  EXPECT_EQ(times, int(Outage::kMostTurnedAway));
  EXPECT_EQ(o.network.why, "is closed each time: that process has abandoned the channel");
}

TEST(Outage, being_turned_away_fast_or_while_closing_proves_nothing) {
  for (const bool closing : {false, true}) {
    Lasting o;
    o.network.comes_to = Reach::kReached;
    o.breaks();
    for (int times = 0; times < 20; ++times) {
      o.network.asking = false;
      o.goes_on(closing ? 400 : 60);
      o.breaks({.turned_away = true, .closing = closing});
    }
    EXPECT_EQ(o.network.why, "") << closing;
  }
}

// As by a network that resets connections, and carries nothing in between.
TEST(Outage, being_turned_away_with_other_ends_of_connections_in_between_proves_nothing) {
  Lasting o;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  for (int times = 0; times < 40; ++times) {
    o.network.asking = false;
    o.goes_on(400);
    ASSERT_TRUE(o.network.asking);
    o.breaks({.silent = times % 4 == 0, .turned_away = times % 4 != 0});
  }
  EXPECT_EQ(o.network.why, "");
}

TEST(Outage, being_turned_away_in_set_up_is_for_its_own_bound) {
  Lasting o;
  o.network.sets_up = true;
  o.network.comes_to = Reach::kReached;
  o.breaks();
  for (int times = 0; times < 20; ++times) {
    o.network.asking = false;
    o.goes_on(400);
    o.breaks({.turned_away = true});
  }
  EXPECT_EQ(o.network.why, "");
}

TEST(Break, of_a_connection_that_brings_what_is_not_the_peers) {
  EXPECT_TRUE(is_break(true, true, false)) << "a sender made it, and makes another one";
  EXPECT_TRUE(is_break(true, false, true));
  EXPECT_FALSE(is_break(true, false, false)) << "anybody may have connected to a receiver";
  EXPECT_FALSE(is_break(false, true, true));
}

TEST(Break, the_receiver_goes_on_over_the_senders_next_connection) {
  EXPECT_TRUE(may_go_on(true, false, true));
  EXPECT_FALSE(may_go_on(true, true, true));
  EXPECT_FALSE(may_go_on(true, false, false));
  EXPECT_FALSE(may_go_on(false, false, true));
}

TEST(Outage, is_over_when_both_ends_speak_again) {
  Lasting o;
  EXPECT_FALSE(o.outage->is_over(true, true)) << "there is none";
  o.breaks();
  EXPECT_TRUE(o.outage->is_over(true, true));
  EXPECT_FALSE(o.outage->is_over(false, true));
  EXPECT_FALSE(o.outage->is_over(true, false));
}

TEST(Outage, nothing_is_tried_while_there_is_none) {
  Lasting o;
  o.goes_on(100);
  EXPECT_EQ(o.network.connects, 0);
  o.breaks();
  o.outage->end();
  const int tried = o.network.connects;
  o.goes_on(100);
  EXPECT_EQ(o.network.connects, tried);
}

}  // namespace
}  // namespace r2ccl
