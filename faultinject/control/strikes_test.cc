// SPDX-License-Identifier: Apache-2.0
// The strikes of a round, by several processes at once, and of which some are killed.
#include "faultinject/control/board.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
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

// Processes that have one NIC open and strike all their queue pairs there in each round.
class EachProcessTest : public BoardTest {
 protected:
  static constexpr int kProcesses = 4;
  static constexpr uint32_t kRounds = 1000;
  struct Seen {
    std::atomic<uint32_t> begun[kProcesses];           // the last round, from 1
    std::atomic<uint32_t> strikes[kProcesses], twice;  // strikes of each
    std::atomic<bool> ends;
  };
  Seen& seen = *static_cast<Seen*>(
      mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  uint32_t id = 0;
  pid_t children[kProcesses] = {};

  ~EachProcessTest() override {
    for (const pid_t child : children) end(child);
    munmap(&seen, sizeof(Seen));
  }
  static void end(pid_t child) {
    if (child <= 0) return;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  FaultEntry& entry() const { return board->faults[id - 1]; }

  void arm() {
    FaultSpec armed = upon("x", "qp_error");
    armed.target.qp.kind = QpSelector::Kind::kAll;
    armed.repeat = kRounds;
    id = host.arm(armed);
  }
  ProcessEntry& opens_a_nic(int32_t pid, uint32_t node = 1, uint64_t nics = 1) {
    ProcessEntry& process = *enroll(*board, pid);
    process.node.store(node);
    process.nics.store(nics);
    return process;
  }
  void start(int which) {
    children[which] = fork();
    if (children[which] == 0) be_a_process(which);
  }
  // As the injector's thread and QpStrike.
  [[noreturn]] void be_a_process(int which) {
    ProcessEntry& self = opens_a_nic(getpid());
    while (!seen.ends.load()) {
      const uint64_t asked = board->questions.load();
      const auto [phase, round] = entry().phase.both();
      if (phase == Phase::kFired && seen.begun[which].load() != round + 1) {
        if (seen.begun[which].exchange(round + 1) > round) seen.twice++;
        seen.strikes[which]++;
        note_strike(*board, entry(), round);
        finish_when_all_have(*board, entry(), round, &self, monotonic_ns());
      }
      self.answered.store(asked);
      bool changed = false;
      advance(*board, monotonic_ns(), changed);
      sched_yield();
    }
    _exit(0);
  }
  bool round_ends(uint32_t round) const {
    const uint64_t until = monotonic_ns() + 20'000'000'000;
    while (entry().phase.both().round == round && entry().phase.load() == Phase::kFired) {
      if (monotonic_ns() > until) return false;
      sched_yield();
    }
    return true;
  }
};

TEST_F(EachProcessTest, every_process_strikes_in_each_round) {
  arm();
  for (int i = 0; i < kProcesses; i++) start(i);
  ASSERT_TRUE([&] {
    while (host.processes() != kProcesses) sched_yield();
    return true;
  }());
  for (uint32_t round = 0; round + 1 < kRounds; round++) {
    ASSERT_TRUE(offer_event(*board, "x", 0, monotonic_ns())) << round;
    ASSERT_TRUE(round_ends(round)) << round;
    for (int i = 0; i < kProcesses; i++) ASSERT_EQ(seen.strikes[i].load(), round + 1) << i;
  }
  EXPECT_EQ(seen.twice.load(), 0u);
  EXPECT_EQ(host.state(id).rounds, kRounds - 1);
}

TEST_F(EachProcessTest, killed_processes_lose_and_double_no_round) {
  arm();
  for (int i = 0; i < kProcesses; i++) start(i);
  while (host.processes() != kProcesses) sched_yield();
  uint32_t strikes = 0;
  for (uint32_t round = 0; round + 1 < kRounds; round++) {
    ASSERT_TRUE(offer_event(*board, "x", 0, monotonic_ns())) << round;
    const int victim = 1 + int(round % 3);  // the first one lives
    if (round % 4 == 0) {
      for (uint64_t spin = mix(round) % 3000; spin > 0; spin--)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      end(std::exchange(children[victim], 0));
    }
    ASSERT_TRUE(round_ends(round)) << round;
    ASSERT_EQ(seen.strikes[0].load(), ++strikes);
    ASSERT_EQ(entry().phase.both().round, round + 1);
    if (round % 4 == 0) start(victim);
  }
  EXPECT_EQ(seen.twice.load(), 0u);
  EXPECT_EQ(host.state(id).rounds, kRounds - 1);
}

TEST_F(EachProcessTest, a_stopped_one_is_waited_for_a_second_and_one_elsewhere_not_at_all) {
  arm();
  const pid_t other = children[0] = fork();
  if (other == 0) {
    for (;;) pause();
  }
  const ProcessEntry& self = opens_a_nic(getpid());
  ProcessEntry& stopped = opens_a_nic(other);
  ASSERT_TRUE(offer_event(*board, "x", 0, 1000));
  EXPECT_FALSE(finish_when_all_have(*board, entry(), 0, &self, 2000)) << "nobody has struck";
  EXPECT_FALSE(finish_when_all_have(*board, entry(), 0, &self, 1000 + 2 * kWaitsForProcesses));
  EXPECT_FALSE(advance_to(1000 + 2 * kWaitsForProcesses));
  note_strike(*board, entry(), 0);
  EXPECT_FALSE(finish_when_all_have(*board, entry(), 0, &self, 2000));
  EXPECT_FALSE(advance_to(1000 + kWaitsForProcesses - 1));
  EXPECT_TRUE(advance_to(1000 + kWaitsForProcesses));
  ASSERT_EQ(entry().phase.both().round, 1u);

  ASSERT_TRUE(offer_event(*board, "x", 0, 2 * kWaitsForProcesses));
  stopped.nics.store(2);
  note_strike(*board, entry(), 1);
  EXPECT_TRUE(finish_when_all_have(*board, entry(), 1, &self, 2 * kWaitsForProcesses));

  ASSERT_TRUE(offer_event(*board, "x", 0, 3 * kWaitsForProcesses));
  stopped.nics.store(1);
  note_strike(*board, entry(), 2);
  EXPECT_FALSE(finish_when_all_have(*board, entry(), 2, &self, 3 * kWaitsForProcesses));
  end(std::exchange(children[0], 0));
  EXPECT_TRUE(finish_when_all_have(*board, entry(), 2, &self, 3 * kWaitsForProcesses));
}

}  // namespace
}  // namespace faultinject
