// SPDX-License-Identifier: Apache-2.0
#include "faultinject/control/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faultinject/control/board_host.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

// The board as an injected process maps it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR);
    memory_ = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  ~Mapped() { munmap(memory_, sizeof(Board)); }
  Board& operator*() const { return *static_cast<Board*>(memory_); }
  Board* operator->() const { return static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

class BoardTest : public testing::Test {
 protected:
  BoardHost host = BoardHost::create({{"node0", 2}, {"node1", 2}}, 42);
  Mapped board{host.path()};

  static FaultSpec spec(const char* kind = "port_down", const char* target = "node1/nic0") {
    FaultSpec spec(fault_kind(kind));
    spec.target = parse_target(target);
    return spec;
  }
  /// With the event as its trigger.
  static FaultSpec upon(const char* event, const char* kind = "port_down") {
    FaultSpec armed = spec(kind);
    armed.trigger.kind = Trigger::Kind::kEvent;
    armed.trigger.event = event;
    return armed;
  }
  bool advance_to(uint64_t now) {
    bool changed = false;
    advance(*board, now, changed);
    return changed;
  }
};

TEST_F(BoardTest, what_is_written_by_the_host_is_read_by_the_process) {
  EXPECT_EQ(board->magic, kBoardMagic);
  EXPECT_EQ(board->bytes, sizeof(Board));
  EXPECT_STREQ(board->nodes[1].name, "node1");
  const uint32_t id = host.arm(spec());
  const FaultEntry& entry = board->faults[id - 1];
  EXPECT_TRUE(entry.hits(1, 0));
  EXPECT_FALSE(entry.hits(1, 1));
  EXPECT_FALSE(entry.hits(0, 0));
  EXPECT_FALSE(entry.hits(kMaxNodes, 0));
}

TEST_F(BoardTest, an_armed_fault_waits_for_its_trigger) {
  const uint32_t id = host.arm(spec());
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kArmed);
  EXPECT_EQ(host.state(id).triggered_ns, 0u);
  host.fire(id);
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kFired);
  EXPECT_GT(host.state(id).triggered_ns, 0u);
  EXPECT_EQ(host.state(id).t0_ns, 0u) << "it has touched nothing";
  host.heal(id);
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kHealed);
  host.fire(id);
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kHealed) << "one firing per fault";
}

TEST_F(BoardTest, a_healed_fault_never_fires) {
  FaultSpec armed = upon("x");
  const uint32_t id = host.arm(armed);
  host.heal_all();
  host.event("x", 0);
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kHealed);
  EXPECT_EQ(host.state(id).triggered_ns, 0u);
}

TEST_F(BoardTest, time_counts_from_the_start_or_from_the_first_send) {
  FaultSpec from_start = spec(), from_op = spec();
  from_start.trigger.kind = from_op.trigger.kind = Trigger::Kind::kTime;
  from_start.trigger.after = from_op.trigger.after = 1h;
  from_op.trigger.since_first_op = true;
  const uint32_t a = host.arm(from_start), b = host.arm(from_op);
  const uint64_t hour = 3600ull * 1000000000;
  const uint64_t start = board->start_ns.load();
  EXPECT_FALSE(advance_to(start + hour - 1));
  EXPECT_TRUE(advance_to(start + hour));
  EXPECT_EQ(board->faults[a - 1].phase.load(), Phase::kFired);
  EXPECT_EQ(board->faults[b - 1].phase.load(), Phase::kArmed);
  note_first_op(*board, start + 5);
  note_first_op(*board, start + 500);
  EXPECT_FALSE(advance_to(start + hour + 4));
  EXPECT_TRUE(advance_to(start + hour + 5));
  EXPECT_EQ(board->faults[b - 1].phase.load(), Phase::kFired);
}

TEST_F(BoardTest, the_next_deadline_is_what_advance_returns) {
  FaultSpec timed = spec();
  timed.trigger.kind = Trigger::Kind::kTime;
  timed.trigger.after = 1h;
  host.arm(timed);
  bool changed = false;
  EXPECT_EQ(advance(*board, board->start_ns.load(), changed), board->start_ns.load() + 3600ull * 1000000000);
}

TEST_F(BoardTest, an_iteration_fires_at_its_number_or_later_and_only_once) {
  FaultSpec armed = upon("iteration");
  armed.trigger.value = 60;
  const uint32_t id = host.arm(armed);
  EXPECT_FALSE(offer_event(*board, "iteration", 59, 1000));
  EXPECT_FALSE(offer_event(*board, "migration", 60, 1000));
  EXPECT_TRUE(offer_event(*board, "iteration", 61, 2000));
  EXPECT_FALSE(offer_event(*board, "iteration", 62, 3000));
  EXPECT_EQ(board->faults[id - 1].triggered_ns.load(), 2000u);
}

TEST_F(BoardTest, another_event_with_a_value_fires_at_that_value_only) {
  FaultSpec armed = upon("rail_down");
  armed.trigger.value = 2;
  host.arm(armed);
  EXPECT_FALSE(offer_event(*board, "rail_down", 3, 1000));
  EXPECT_TRUE(offer_event(*board, "rail_down", 2, 1000));
}

TEST_F(BoardTest, the_random_phase_comes_from_the_seed) {
  FaultSpec armed = upon("x");
  armed.trigger.phase_up_to = 20ms;
  std::set<uint64_t> phases;
  for (int i = 0; i < 20; i++) phases.insert(board->faults[host.arm(armed) - 1].phase_delay_ns);
  EXPECT_GT(phases.size(), 15u);
  EXPECT_LE(*phases.rbegin(), 20000000u);

  BoardHost same = BoardHost::create({{"node0", 2}, {"node1", 2}}, 42);
  Mapped again{same.path()};
  BoardHost other = BoardHost::create({{"node0", 2}, {"node1", 2}}, 43);
  Mapped different{other.path()};
  for (int i = 0; i < 5; i++) {
    same.arm(armed);
    other.arm(armed);
  }
  EXPECT_EQ(again->faults[4].phase_delay_ns, board->faults[4].phase_delay_ns);
  EXPECT_NE(different->faults[4].phase_delay_ns, board->faults[4].phase_delay_ns);

  const FaultEntry& entry = board->faults[0];
  offer_event(*board, "x", 0, 1000);
  EXPECT_EQ(entry.phase.load(), Phase::kArmed) << "its phase is still to pass";
  EXPECT_FALSE(advance_to(1000 + *phases.begin() - 1));
  EXPECT_TRUE(advance_to(1000 + *phases.rbegin()));
  EXPECT_EQ(entry.phase.load(), Phase::kFired);
}

TEST_F(BoardTest, t0_is_the_earliest_effect_and_a_duration_counts_from_it) {
  FaultSpec timed = spec();
  timed.duration = 500ms;
  const uint32_t id = host.arm(timed);
  FaultEntry& entry = board->faults[id - 1];
  fire_now(entry, 1000);
  took_effect(entry, 5000);
  took_effect(entry, 3000);
  took_effect(entry, 4000);
  EXPECT_EQ(entry.t0_ns.load(), 3000u);
  EXPECT_FALSE(advance_to(500003000 - 1));
  EXPECT_TRUE(advance_to(500003000));
  EXPECT_EQ(entry.phase.load(), Phase::kHealed);
  EXPECT_EQ(entry.healed_ns.load(), 500003000u);
}

TEST_F(BoardTest, a_fault_repeats_at_its_interval_and_each_time_for_its_duration) {
  FaultSpec timed = upon("x");
  timed.repeat = 3;
  timed.every = 2s;
  timed.duration = 500ms;
  const uint32_t id = host.arm(timed);
  const FaultEntry& entry = board->faults[id - 1];
  const uint64_t second = 1000000000, start = second;
  ASSERT_TRUE(offer_event(*board, "x", 0, start));
  for (uint64_t round = 0; round < 3; round++) {
    const uint64_t from = start + round * 2 * second;
    if (round > 0) {
      EXPECT_FALSE(advance_to(from - 1)) << round;
      EXPECT_FALSE(offer_event(*board, "x", 0, from - 1)) << "time decides from the second round on";
      EXPECT_TRUE(advance_to(from));
    }
    EXPECT_EQ(entry.phase.load(), Phase::kFired) << round;
    EXPECT_EQ(entry.phase.both().round, round);
    EXPECT_FALSE(advance_to(from + second / 2 - 1));
    EXPECT_TRUE(advance_to(from + second / 2));
    EXPECT_EQ(entry.phase.load(), round < 2 ? Phase::kArmed : Phase::kHealed);
  }
  EXPECT_EQ(entry.times_fired.load(), 3u);
  EXPECT_FALSE(advance_to(start + 100 * second));
}

TEST_F(BoardTest, without_an_interval_each_round_waits_for_its_trigger_again) {
  FaultSpec armed = upon("x");
  armed.repeat = 2;
  const uint32_t id = host.arm(armed);
  FaultEntry& entry = board->faults[id - 1];
  EXPECT_TRUE(offer_event(*board, "x", 0, 1000));
  EXPECT_FALSE(offer_event(*board, "x", 0, 1500)) << "it is at work";
  finish_round(entry, 0);
  EXPECT_EQ(entry.phase.load(), Phase::kArmed);
  EXPECT_FALSE(advance_to(uint64_t(1) << 60));
  EXPECT_TRUE(offer_event(*board, "x", 0, 3000));
  finish_round(entry, 1);
  EXPECT_EQ(entry.phase.load(), Phase::kFired) << "the last round stays until it is healed";
  EXPECT_EQ(host.state(id).rounds, 2u);
}

TEST_F(BoardTest, says_when_its_last_16_rounds_fired) {
  FaultSpec armed = upon("x");
  armed.repeat = 20;
  const uint32_t id = host.arm(armed);
  std::vector<uint64_t> fired;
  for (uint32_t round = 0; round < 20; round++) {
    EXPECT_EQ(host.state(id).recent_ns, fired) << round;
    fired.push_back(1000 + 7 * round);
    if (fired.size() > 16) fired.erase(fired.begin());
    EXPECT_TRUE(offer_event(*board, "x", 0, 1000 + 7 * round));
    finish_round(board->faults[id - 1], round);
  }
  EXPECT_EQ(host.state(id).recent_ns, fired);
}

// A process that is killed after it has made a round fire, and before it has counted it.
TEST_F(BoardTest, a_round_that_nobody_has_counted_is_counted_when_it_is_seen_or_ends) {
  const auto uncounted = [this](uint32_t rounds) {
    FaultSpec armed = upon("x");
    armed.repeat = rounds;
    const uint32_t id = host.arm(armed);
    FaultEntry& entry = board->faults[id - 1];
    EXPECT_TRUE(offer_event(*board, "x", 0, 1000));
    entry.times_fired.store(0);
    EXPECT_EQ(host.state(id).rounds, 1u);
    EXPECT_EQ(host.state(id).recent_ns, std::vector<uint64_t>{1000});
    return id;
  };
  const uint32_t healed = uncounted(1);
  host.heal(healed);
  EXPECT_EQ(host.state(healed).rounds, 1u);

  const uint32_t repeated = uncounted(3);
  finish_round(board->faults[repeated - 1], 0);
  EXPECT_EQ(host.state(repeated).rounds, 1u);
  EXPECT_TRUE(offer_event(*board, "x", 0, 2000));
  EXPECT_EQ(host.state(repeated).rounds, 2u);
  EXPECT_EQ(host.state(repeated).recent_ns, (std::vector<uint64_t>{1000, 2000}));
  host.heal(repeated);
  EXPECT_EQ(host.state(repeated).rounds, 2u);
}

TEST_F(BoardTest, healing_between_two_rounds_ends_all_of_them) {
  FaultSpec armed = upon("x");
  armed.repeat = 5;
  const uint32_t id = host.arm(armed);
  FaultEntry& entry = board->faults[id - 1];
  offer_event(*board, "x", 0, 1000);
  finish_round(entry, 0);
  host.heal(id);
  EXPECT_EQ(host.state(id).phase, FaultState::Phase::kHealed);
  EXPECT_FALSE(offer_event(*board, "x", 0, 3000));
  EXPECT_EQ(host.state(id).rounds, 1u);
}

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

TEST_F(BoardTest, one_fault_comes_after_another) {
  FaultSpec first = spec(), second = spec(), third = spec();
  first.name = "first";
  second.trigger.kind = third.trigger.kind = Trigger::Kind::kAfter;
  second.trigger.fault = "first";
  second.trigger.after = 1us;
  const uint32_t a = host.arm(first), b = host.arm(second);
  third.trigger.fault = std::to_string(b);
  third.trigger.until = Trigger::Until::kHealed;
  const uint32_t c = host.arm(third);
  fire_now(board->faults[a - 1], 1000);
  EXPECT_FALSE(advance_to(5000)) << "it has touched nothing yet";
  took_effect(board->faults[a - 1], 6000);
  EXPECT_FALSE(advance_to(6999));
  EXPECT_TRUE(advance_to(7000));
  EXPECT_EQ(board->faults[b - 1].phase.load(), Phase::kFired);
  EXPECT_EQ(board->faults[c - 1].phase.load(), Phase::kArmed);
  heal_now(board->faults[b - 1], 8000);
  EXPECT_TRUE(advance_to(8000));
  EXPECT_EQ(board->faults[c - 1].phase.load(), Phase::kFired);
  FaultSpec lost = spec();
  lost.trigger.kind = Trigger::Kind::kAfter;
  lost.trigger.fault = "frist";
  try {
    host.arm(lost);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_NE(error.message().find("did you mean 'first'?"), std::string::npos) << error.what();
  }
}

TEST_F(BoardTest, a_target_has_a_port_a_peer_and_opcodes) {
  FaultSpec narrow = spec("noop", "node1/nic0/port:2");
  narrow.target.peer_node = "node0";
  narrow.target.peer_nic = "nic1";
  narrow.opcodes = 1u << 4;
  const FaultEntry& entry = board->faults[host.arm(narrow) - 1];
  EXPECT_EQ(entry.port, 2u);
  EXPECT_TRUE(entry.hits_peer(0, 1));
  EXPECT_FALSE(entry.hits_peer(0, 0));
  EXPECT_FALSE(entry.hits_peer(1, 1));
  EXPECT_TRUE(entry.takes_opcode(4));
  EXPECT_FALSE(entry.takes_opcode(0));
  EXPECT_FALSE(entry.takes_opcode(100));
  EXPECT_TRUE(board->faults[host.arm(spec()) - 1].takes_opcode(100)) << "no opcode: all";
}

TEST_F(BoardTest, an_impossible_target_is_refused_when_armed) {
  EXPECT_THROW(host.arm(spec("noop", "node2/nic0")), PlanError);
  EXPECT_THROW(host.arm(spec("noop", "node1/nic2")), PlanError);
  EXPECT_THROW(host.state(1), std::out_of_range);
}

TEST_F(BoardTest, a_claim_is_given_once_whoever_asks) {
  std::atomic<int> given{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (uint64_t key = 1; key <= 500; key++) given += claim(*board, key);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(given.load(), 500);
}

TEST_F(BoardTest, a_claim_that_finds_the_table_full_is_counted) {
  for (uint64_t key = 1; key <= kMaxClaims; key++) ASSERT_TRUE(claim(*board, key)) << key;
  EXPECT_FALSE(claim(*board, 1));
  EXPECT_EQ(host.witnesses_lost(), 0u);
  EXPECT_FALSE(claim(*board, kMaxClaims + 1));
  EXPECT_FALSE(claim(*board, kMaxClaims + 2));
  EXPECT_EQ(host.witnesses_lost(), 2u);
}

TEST_F(BoardTest, addresses_are_found_by_gid_and_by_lid) {
  uint8_t gid[16] = {0xfe, 0x80, 1}, other[16] = {0xfe, 0x80, 2}, none[16] = {};
  add_address(*board, {1, 1}, 1, 0, gid);
  add_address(*board, {0, 1}, 1, 7, nullptr);
  add_address(*board, {0, 0}, 1, 0, none);
  NicAddress owner{};
  ASSERT_TRUE(find_address(*board, gid, 0, owner));
  EXPECT_EQ(owner.node, 1u);
  EXPECT_EQ(owner.nic, 1u);
  EXPECT_FALSE(find_address(*board, other, 7, owner)) << "a global address is looked up by its GID only";
  ASSERT_TRUE(find_address(*board, nullptr, 7, owner));
  EXPECT_EQ(owner.node, 0u);
  EXPECT_FALSE(find_address(*board, nullptr, 0, owner));
  EXPECT_EQ(board->address_count.load(), 2u);
  add_address(*board, {1, 1}, 1, 0, gid);
  EXPECT_EQ(board->address_count.load(), 2u) << "the same address by a second process";
}

TEST_F(BoardTest, witnesses_come_in_the_order_of_their_time_and_half_written_ones_are_left_out) {
  const uint32_t id = host.arm(spec());
  add_witness(*board, {id, 2000, 7, "1", 1, 0, 33, uint32_t(Effect::kWcShown), 12});
  board->witness_count.fetch_add(1);  // a process killed between claim and record
  add_witness(*board, {id, 1000, 7, "1", 1, 0, 33, uint32_t(Effect::kQpToErr), 0});
  const std::vector<Witness> all = host.witnesses();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].what, "QP moved to ERR");
  EXPECT_EQ(all[1].what, "WC 12 shown");
  EXPECT_EQ(all[1].node, "node1");
  EXPECT_EQ(host.witnesses(id).size(), 2u);
  EXPECT_EQ(host.state(id).witnesses, 2u);
}

TEST_F(BoardTest, a_dead_process_gives_up_its_place_and_its_doorbell_is_heard_while_it_lives) {
  const pid_t child = fork();
  if (child == 0) _exit(enroll(*board, getpid()) != nullptr ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(host.processes(), 0u);
  ProcessEntry* mine = enroll(*board, getpid());
  EXPECT_EQ(mine, &board->processes[0]);
  EXPECT_EQ(host.processes(), 1u);
  const uint32_t seen = mine->doorbell.load();
  std::thread sleeper([&] { wait_for_ring(*mine, seen, UINT64_MAX); });
  host.arm(spec());
  sleeper.join();
  wait_for_ring(*mine, mine->doorbell.load(), monotonic_ns() + 1000);  // and a deadline ends the sleep
}

TEST_F(BoardTest, a_zombie_is_dead) {
  const pid_t child = fork();
  if (child == 0) _exit(enroll(*board, getpid()) != nullptr ? 0 : 1);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT), 0);  // ended, and not yet waited for
  ASSERT_EQ(kill(child, 0), 0);
  board->owner_pid = child;
  EXPECT_TRUE(owner_is_gone(*board));
  EXPECT_EQ(host.processes(), 0u);
  EXPECT_EQ(enroll(*board, getpid()), &board->processes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(owner_is_gone(*board));
}

TEST_F(BoardTest, a_process_whose_first_thread_has_ended_lives_on_with_the_others) {
  const pid_t child = fork();
  if (child == 0) {
    enroll(*board, getpid());
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // this thread alone
  }
  const std::string file = "/proc/" + std::to_string(child) + "/stat";
  const auto first_thread_is_a_zombie = [&] {
    std::ifstream stat(file);
    const std::string line((std::istreambuf_iterator<char>(stat)), {});
    return line.find(") Z") != std::string::npos;
  };
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!first_thread_is_a_zombie() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_TRUE(first_thread_is_a_zombie());
  board->owner_pid = child;
  EXPECT_FALSE(owner_is_gone(*board));
  EXPECT_EQ(host.processes(), 1u);
  EXPECT_EQ(enroll(*board, getpid()), &board->processes[1]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(owner_is_gone(*board));
}

TEST(BoardHost, limits_are_told) {
  EXPECT_THROW(BoardHost::create({}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{"", 1}}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{std::string(40, 'x'), 1}}, 1), std::invalid_argument);
  EXPECT_THROW(BoardHost::create({{"node0", 65}}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace faultinject
