// SPDX-License-Identifier: Apache-2.0
// The life of a fault on the board: what it waits for, when it takes effect, its rounds, and its target.
#include "faultinject/control/board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "faultinject/control/testing/board_fixture.h"

namespace faultinject {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace faultinject
