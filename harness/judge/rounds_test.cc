// SPDX-License-Identifier: Apache-2.0
// Which strikes the rounds of a repeating fault are: told by the round that the injector recorded with each
// effect, however far apart the effects of one round and however close those of two.
#include "harness/judge/metric.h"
#include "harness/judge/strikes.h"
#include "harness/judge/testing/several_faults_fixture.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

using faultinject::Effect;

class Rounds : public SeveralFaults {
 protected:
  Rounds() { scenario.faults.clear(); }
  /// A fault of the scenario that repeats so often, on the board by the next number; at work since `t0`.
  Firing& repeating(const char* kind, const char* target, uint32_t rounds, double t0) {
    scenario.faults.push_back(fault(kind, target));
    scenario.faults.back().repeat = rounds;
    Firing& firing = strike(t0, scenario.faults.size() - 1);
    firing.board_id = uint32_t(scenario.faults.size());
    firing.rounds = rounds;
    return firing;
  }
  /// t0 of each strike of a fault, in ms.
  std::vector<double> strikes_ms(size_t fault) const {
    std::vector<double> all;
    for (const Firing& strike : strikes_of(scenario, job))
      if (strike.fault == fault) all.push_back((double(strike.t0_ns) - double(at(0))) / 1e6);
    return all;
  }
  RoundCounts counted() const { return count_rounds(scenario, job); }
};

using Times = std::vector<double>;

// qp_error of both ends, whose processes woke 1.5 and 4 ms apart, and two others that strike meanwhile.
TEST_F(Rounds, are_told_apart_where_the_effects_of_each_lie_milliseconds_apart) {
  go_on(1000, 6000);
  repeating("qp_error", "node2/nic1", 3, 2000);
  repeating("post_fail", "node0/nic0", 3, 2001);
  repeating("port_down", "node1/nic0", 2, 2500);
  scenario.faults[2].duration = std::chrono::milliseconds(100);
  for (uint32_t round = 0; round < 3; ++round) {
    const double t0 = 2000 + 1000 * round;
    for (double late : {0., 1.5, 4.}) witness(1, t0 + late, Effect::kQpToErr, round);
    for (double late : {1., 6., 11.}) witness(2, t0 + late, Effect::kPostRefused, round);
  }
  for (uint32_t round = 0; round < 2; ++round) {
    witness(3, 2500 + 1000 * round, Effect::kPortErrDelivered, round);
    witness(3, 2502 + 1000 * round, Effect::kQpToErr, round);
  }
  EXPECT_EQ(strikes_ms(0), (Times{2000, 3000, 4000}));
  EXPECT_EQ(strikes_ms(1), (Times{2001, 3001, 4001}));
  EXPECT_EQ(strikes_ms(2), (Times{2500, 3500}));
  EXPECT_EQ(counted().fired, 8u);
  EXPECT_EQ(counted().seen, 8u);
  EXPECT_EQ(result().faults_witnessed, 8u);
}

TEST_F(Rounds, are_told_apart_where_they_lie_closer_together_than_a_millisecond) {
  go_on(1000, 6000);
  repeating("post_fail", "node2/nic1", 3, 2000);
  for (uint32_t round = 0; round < 3; ++round) witness(1, 2000 + 0.2 * round, Effect::kPostRefused, round);
  EXPECT_EQ(strikes_ms(0), (Times{2000, 2000.2, 2000.4}));
  EXPECT_EQ(counted().seen, 3u);
}

// Three effects of the first round are not three rounds.
TEST_F(Rounds, without_a_record_are_not_replaced_by_the_effects_of_another) {
  go_on(1000, 6000);
  repeating("post_fail", "node2/nic1", 3, 2000);
  for (double late : {0., 5., 10.}) witness(1, 2000 + late, Effect::kPostRefused, 0);
  EXPECT_EQ(strikes_ms(0), (Times{2000}));
  EXPECT_EQ(counted().fired, 3u);
  EXPECT_EQ(counted().seen, 1u);
}

// The post that was made to fail is no effect: the program sees its completion.
TEST_F(Rounds, of_a_failing_completion_all_begin_with_the_completion) {
  go_on(1000, 6000);
  repeating("completion_error", "node2/nic1", 3, 2004);
  for (uint32_t round = 0; round < 3; ++round) {
    witness(1, 2000 + 1000 * round, Effect::kWrSpoiled, round);
    witness(1, 2004 + 1000 * round, Effect::kWcRewritten, round);
  }
  EXPECT_EQ(strikes_ms(0), (Times{2004, 3004, 4004}));
}

// A WR of the second round fails before one of the first: each has its own t0, in the order of their times.
TEST_F(Rounds, may_take_effect_in_another_order_than_they_fired) {
  go_on(1000, 6000);
  repeating("completion_error", "node2/nic1", 2, 2004);
  witness(1, 2004, Effect::kWcRewritten, 1);
  witness(1, 2090, Effect::kWcRewritten, 0);
  EXPECT_EQ(strikes_ms(0), (Times{2004, 2090}));
  EXPECT_EQ(counted().seen, 2u);
}

// Each round of a flapping link counts its outages anew.
TEST_F(Rounds, of_a_flapping_link_each_have_their_outages) {
  go_on(1000, 6000);
  repeating("port_flap", "node2/nic1", 2, 2000).healed_ns = at(4150);
  for (uint32_t round = 0; round < 2; ++round)
    for (uint32_t outage = 0; outage < 2; ++outage) {
      const double t0 = 2000 + 2000 * round + 100 * outage;
      witness(1, t0, Effect::kLinkDown, round, outage + 1);
      witness(1, t0 + 50, Effect::kLinkUp, round, outage + 1);
    }
  EXPECT_EQ(strikes_ms(0), (Times{2000, 2100, 4000, 4100}));
  for (const Firing& strike : strikes_of(scenario, job))
    EXPECT_EQ(strike.healed_ns, strike.t0_ns + 50'000'000);
}

// The first round lasts from its effect on, a later one from its firing on, however late it struck something.
TEST_F(Rounds, are_healed_by_the_clock_of_their_firing) {
  go_on(1000, 6000);
  Firing& firing = repeating("blackhole", "node2/nic1", 4, 2030);
  firing.healed_ns = at(5100);
  scenario.faults[0].duration = std::chrono::milliseconds(100);
  for (uint32_t round = 0; round < 4; ++round) witness(1, 2030 + 1000 * round, Effect::kWrWithheld, round);
  const auto heals_ms = [&] {
    Times all;
    for (const Firing& strike : strikes_of(scenario, job))
      all.push_back((double(strike.healed_ns) - double(at(0))) / 1e6);
    return all;
  };
  firing.recent_ns = {at(2000), at(3000), at(4000), at(5000)};
  EXPECT_EQ(heals_ms(), (Times{2130, 3100, 4100, 5100}));
  firing.recent_ns = {at(5000)};  // the board has forgotten the others
  EXPECT_EQ(heals_ms(), (Times{2130, 3130, 4130, 5100})) << "no later than this";
  firing.triggered_ns = at(2000);
  scenario.faults[0].every = std::chrono::milliseconds(1000);
  EXPECT_EQ(heals_ms(), (Times{2130, 3100, 4100, 5100}));
}

// 50 rounds are planned, 11 fired; of the other fault all; the third fault never fired.
TEST_F(Rounds, that_did_not_fire_before_the_job_ended_are_counted_beside_the_planned_faults) {
  go_on(1000, 6000);
  repeating("qp_error", "node2/nic1", 50, 2000).rounds = 11;
  repeating("post_fail", "node0/nic0", 2, 2100);
  repeating("port_down", "node1/nic0", 3, 0).rounds = 0;
  for (uint32_t round = 0; round < 11; ++round) witness(1, 2000 + 200 * round, Effect::kQpToErr, round);
  for (uint32_t round = 0; round < 2; ++round) witness(2, 2100 + 200 * round, Effect::kPostRefused, round);
  for (const Outcome outcome : {Outcome::kOk, Outcome::kError}) {
    job.outcome = outcome;
    const ModeResult evaluated = result();
    EXPECT_EQ(evaluated.rounds_not_fired, 39u + 0 + 2);
    EXPECT_EQ(evaluated.faults_witnessed, 13u);
    EXPECT_EQ(evaluated.faults_planned, outcome == Outcome::kOk ? 14u : 13u) << "the third one's first round";
  }
  job.outcome = Outcome::kOk;
  EXPECT_EQ(result().rounds_fired, 13u);
  EXPECT_EQ(result().rounds_seen, 13u);
}

TEST_F(Rounds, that_did_not_fire_and_are_expected_make_the_expectation_unknown) {
  go_on(1000, 6000);
  repeating("qp_error", "node2/nic1", 50, 2000).rounds = 11;
  repeating("port_down", "node0/nic0", 1, 2050);
  for (uint32_t round = 0; round < 11; ++round) witness(1, 2000 + 200 * round, Effect::kQpToErr, round);
  scenario.modes = {mode};
  RunResult whole;
  whole.modes = {result()};
  const auto verdict_of = [&](const char* wanted, const char* metric = "fault_witness") {
    scenario.expectations = {{"all", metric, wanted, 0, 0, parse_condition(metric_of(metric)->info, wanted)}};
    const Judgement judged = judge(scenario, whole).expectations.back();
    EXPECT_EQ(judged.doubt == DoubtKind::kFaultsNotStruck, judged.verdict == Verdict::kUnknown) << wanted;
    return judged.verdict;
  };
  EXPECT_EQ(verdict_of(">= 12"), Verdict::kPass);
  EXPECT_EQ(verdict_of(">= 13"), Verdict::kUnknown);
  EXPECT_EQ(verdict_of("== 51"), Verdict::kUnknown);
  EXPECT_EQ(verdict_of(">= 52"), Verdict::kFail) << "that many are not even planned";
  EXPECT_EQ(verdict_of("<= 5"), Verdict::kFail) << "more would not meet it";
  EXPECT_EQ(verdict_of(">= 1", "migrations"), Verdict::kFail) << "of those that fired none";
}

}  // namespace
}  // namespace r2bench
