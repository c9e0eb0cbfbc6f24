// SPDX-License-Identifier: Apache-2.0
// What makes a verdict unknown, and what is a failure all the same.
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, a_fault_without_a_witness_makes_it_unknown) {
  migrate().faults_witnessed = 0;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  EXPECT_EQ(of("migrate.correctness").verdict, Verdict::kUnknown);
  EXPECT_EQ(judge(scenario, result).doubts.size(), 1u);
}

TEST_F(VerdictTest, faults_that_were_never_struck_make_it_unknown) {
  migrate().incomplete = "after round 3: the job did not go on";
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("round 3"), std::string::npos);
}

TEST_F(VerdictTest, one_missing_witness_of_several_makes_it_unknown) {
  migrate().faults_planned = 20;
  migrate().faults_witnessed = 19;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, a_job_that_the_fault_ended_need_not_see_later_ones) {
  baseline().faults_planned = 20;
  EXPECT_EQ(verdict(), Verdict::kPass);
}

TEST_F(VerdictTest, wrong_data_fails_even_without_a_witness) {
  migrate().faults_witnessed = 0;
  migrate().correctness.wrong_elements = 1;
  EXPECT_EQ(verdict(), Verdict::kFail);
}

TEST_F(VerdictTest, lost_trace_events_make_it_unknown) {
  migrate().trace_lost = 3;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, effects_that_were_not_recorded_make_it_unknown) {
  migrate().witnesses_lost = 12;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_EQ(judge(scenario, result).doubts[0].text.find("migrate: 12 effects"), 0u);
}

TEST_F(VerdictTest, rounds_of_a_fault_that_were_not_seen_make_it_unknown) {
  migrate().rounds_fired = migrate().rounds_seen = 300;
  EXPECT_EQ(verdict(), Verdict::kPass);
  migrate().rounds_seen = 256;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("of 300 rounds"), std::string::npos);
  EXPECT_NE(judge(scenario, result).doubts[0].text.find("256"), std::string::npos);
}

TEST_F(VerdictTest, faults_that_were_added_from_outside_make_it_unknown) {
  migrate().faults_added = 2;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_EQ(judge(scenario, result).doubts[0].kind, DoubtKind::kFaultsAdded);
  EXPECT_EQ(judge(scenario, result).doubts[0].text.find("migrate: 2 faults were added"), 0u);
  migrate().correctness.wrong_elements = 1;
  EXPECT_EQ(verdict(), Verdict::kFail) << "wrong data is wrong under any faults";
}

TEST_F(VerdictTest, faults_that_were_ended_from_outside_make_it_unknown) {
  migrate().faults_ended_outside = 1;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_EQ(judge(scenario, result).doubts[0].kind, DoubtKind::kFaultsAdded);
  EXPECT_EQ(judge(scenario, result).doubts[0].text.find("migrate: 1 fault was ended by r2bench inject"), 0u);
}

TEST_F(VerdictTest, clocks_that_ran_apart_make_it_unknown) {
  HostResult a, b;
  a.name = "a", b.name = "b";
  a.clock_bound_ms = b.clock_bound_ms = 0.1;
  migrate().hosts = {a, b};
  EXPECT_EQ(verdict(), Verdict::kPass);
  migrate().hosts[1].clock_beyond_ms = 500;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
  ASSERT_EQ(judge(scenario, result).doubts.size(), 1u);
  EXPECT_EQ(judge(scenario, result).doubts[0].kind, DoubtKind::kClocks);
  EXPECT_EQ(judge(scenario, result)
                .doubts[0]
                .text.find("migrate: the clock of host b and the runner's ran apart by 500"),
            0u)
      << judge(scenario, result).doubts[0].text;
}

TEST_F(VerdictTest, a_scenario_that_expects_nothing_has_no_verdict) {
  scenario.expectations.clear();
  baseline().outcome = Outcome::kOk;
  EXPECT_EQ(verdict(), Verdict::kUnknown);
}

TEST_F(VerdictTest, without_a_wakeup_measurement_the_limit_is_unknown) {
  migrate().wakeup_ms = {};
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kUnknown);
}

}  // namespace
}  // namespace r2bench
