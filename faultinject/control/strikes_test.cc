// SPDX-License-Identifier: Apache-2.0
// The strikes of a round, by several processes at once, and of which some are killed.
#include "faultinject/control/board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "faultinject/control/testing/board_fixture.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

TEST_F(BoardTest, strikes_are_counted_per_round_whoever_takes_them) {
  FaultSpec armed = upon("x", "post_fail");
  armed.repeat = 2;
  armed.count = 3;
  FaultEntry& entry = board->faults[host.arm(armed) - 1];
  for (uint32_t round = 0; round < 2; round++) {
    ASSERT_TRUE(offer_event(*board, "x", 0, 1000));
    std::atomic<int> taken{0}, last{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; i++) {
          bool it_was_the_last = false;
          taken += take_strike(entry, round, it_was_the_last);
          last += it_was_the_last;
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(taken.load(), 3) << round;
    EXPECT_EQ(last.load(), 1) << round;
    finish_round(entry, round);
  }
}

class LastStrikeTest : public BoardTest {
 protected:
  /// A child takes the only strike of the round and is killed before it ends that round.
  static void killed_after_its_strike(FaultEntry& entry) {
    const pid_t child = fork();
    if (child == 0) {
      bool last = false;
      const bool taken = take_strike(entry, 0, last);
      if (!taken || !last) _exit(1);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(entry.phase.load(), Phase::kFired);
    ASSERT_EQ(entry.phase.both().round, 0u);
  }
};

TEST_F(LastStrikeTest, a_process_killed_after_the_last_strike_does_not_stop_the_repeats) {
  FaultSpec armed = upon("x", "post_fail");
  armed.repeat = 3;
  const uint32_t id = host.arm(armed);
  FaultEntry& entry = board->faults[id - 1];
  ASSERT_TRUE(offer_event(*board, "x", 0, 1000));
  ASSERT_NO_FATAL_FAILURE(killed_after_its_strike(entry));
  entry.times_fired.store(0);  // it had not counted the round either
  bool last = false;
  EXPECT_FALSE(take_strike(entry, 0, last));
  EXPECT_FALSE(last) << "it was the dead process's";
  EXPECT_EQ(entry.phase.load(), Phase::kArmed);
  EXPECT_EQ(entry.phase.both().round, 1u);
  EXPECT_EQ(host.state(id).rounds, 1u);
  EXPECT_FALSE(take_strike(entry, 0, last));
  EXPECT_EQ(entry.phase.both().round, 1u) << "a round ends once";
  EXPECT_FALSE(advance_to(1500));
  EXPECT_EQ(host.state(id).witnesses, 0u) << "nobody saw a call of the dead process fail";

  ASSERT_TRUE(offer_event(*board, "x", 0, 2000));
  EXPECT_TRUE(take_strike(entry, 1, last));
  EXPECT_TRUE(last);
  EXPECT_EQ(host.state(id).recent_ns, (std::vector<uint64_t>{1000, 2000}));
}

TEST_F(LastStrikeTest, the_next_round_comes_at_its_time_though_nobody_asks_for_a_strike) {
  FaultSpec armed = upon("x", "post_fail");
  armed.repeat = 2;
  armed.every = 2s;
  FaultEntry& entry = board->faults[host.arm(armed) - 1];
  ASSERT_TRUE(offer_event(*board, "x", 0, 1000));
  ASSERT_NO_FATAL_FAILURE(killed_after_its_strike(entry));
  EXPECT_TRUE(advance_to(5000));
  EXPECT_EQ(entry.phase.load(), Phase::kArmed);
  EXPECT_EQ(entry.phase.both().round, 1u);
  EXPECT_FALSE(advance_to(1000 + 1999999999));
  EXPECT_TRUE(advance_to(1000 + 2000000000));
  EXPECT_EQ(entry.phase.load(), Phase::kFired);
  bool last = false;
  EXPECT_TRUE(take_strike(entry, 1, last));
  EXPECT_FALSE(advance_to(9000000000)) << "the last round stays until it is healed";
}

// A process that decided for one round and comes late must not act in the next one.
TEST_F(BoardTest, a_step_is_taken_only_from_the_round_that_was_seen) {
  FaultSpec armed = spec("post_fail");
  armed.trigger.kind = Trigger::Kind::kWr;
  armed.trigger.count = 20;
  armed.repeat = 3;
  FaultEntry& entry = board->faults[host.arm(armed) - 1];
  const PhaseAndRound first = entry.phase.both();
  bool last = false;
  ASSERT_TRUE(meet_trigger(entry, first, 1000));
  const PhaseAndRound fired = entry.phase.both();
  ASSERT_TRUE(take_strike(entry, fired.round, last));
  ASSERT_TRUE(last);
  finish_round(entry, fired.round);
  ASSERT_EQ(entry.phase.both().round, 1u);

  EXPECT_FALSE(meet_trigger(entry, first, 2000)) << "it would fire a round early";
  EXPECT_EQ(entry.phase.load(), Phase::kArmed);
  EXPECT_FALSE(take_strike(entry, fired.round, last)) << "the next round's only strike would be lost";
  EXPECT_FALSE(end_round(entry, fired, 3000));
  finish_round(entry, fired.round);
  EXPECT_EQ(entry.phase.both().round, 1u);

  ASSERT_TRUE(meet_trigger(entry, entry.phase.both(), 4000));
  EXPECT_TRUE(take_strike(entry, 1, last)) << "and so it would go on for ever";
}

TEST_F(BoardTest, a_repeating_fault_strikes_in_every_round_whoever_posts) {
  FaultSpec armed = spec("post_fail");
  armed.trigger.kind = Trigger::Kind::kWr;
  armed.trigger.count = 20;
  armed.repeat = 10000;
  FaultEntry& entry = board->faults[host.arm(armed) - 1];
  std::atomic<uint32_t> struck{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 10000 * 20 / 8 + 100; i++) {
        const uint64_t at = entry.progress.fetch_add(1) + 1;
        const PhaseAndRound seen = entry.phase.both();
        if (seen.phase == Phase::kArmed && at >= 20 * (uint64_t(seen.round) + 1))
          meet_trigger(entry, seen, at);
        const auto [phase, round] = entry.phase.both();
        bool last = false;
        if (phase != Phase::kFired || !take_strike(entry, round, last)) continue;
        struck++;
        if (last) finish_round(entry, round);
      }
    });
  for (auto& thread : threads) thread.join();
  // A strike belongs to whoever meets the trigger or comes next; at the end some rounds may be due still.
  EXPECT_GE(struck.load() + 10, 10000u);
  EXPECT_EQ(struck.load(), entry.times_fired.load());
}

// Who heals a fault reads its phase, and then moves it; others take it through its rounds meanwhile.
TEST_F(BoardTest, a_heal_ends_a_fault_whose_rounds_go_on_meanwhile) {
  FaultSpec armed = upon("x", "post_fail");
  armed.repeat = UINT32_MAX;
  const uint32_t id = host.arm(armed);
  FaultEntry& entry = board->faults[id - 1];
  std::atomic<bool> ends{false};
  std::thread rounds([&] {
    while (!ends.load()) {
      const PhaseAndRound seen = entry.phase.both();
      if (seen.phase == Phase::kArmed) fire_now(entry, 1000);
      if (seen.phase == Phase::kFired) finish_round(entry, seen.round);
    }
  });
  uint32_t heals = 0, went_on = 0;
  for (const uint64_t until = monotonic_ns() + 300'000'000; monotonic_ns() < until; heals++) {
    ASSERT_TRUE(heal_now(entry, 2000));
    went_on += entry.phase.load() != Phase::kHealed;
    entry.phase.store(Phase::kArmed);
  }
  ends.store(true);
  rounds.join();
  EXPECT_EQ(went_on, 0u) << "of " << heals;
}

}  // namespace
}  // namespace faultinject
