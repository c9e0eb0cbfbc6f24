// SPDX-License-Identifier: Apache-2.0
// Several faults, of which some were not seen or not measured: what that leaves known.
#include "harness/judge/fault_times.h"
#include "harness/judge/testing/verdict_fixture.h"

namespace r2bench {
namespace {

TEST_F(VerdictTest, a_fault_that_was_seen_proves_a_failure_though_another_was_not) {
  migrate().faults_planned = 2;
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kUnknown);
  migrate().recover_ms.max = 1000;
  migrate().faults[0].recover_ms = 1000;
  EXPECT_EQ(of("migrate.recover_ms.max").verdict, Verdict::kFail);
}

TEST_F(VerdictTest, nor_does_it_make_a_percentile_or_a_word_unknown_that_it_cannot_mend) {
  migrate().faults_planned = 2;
  result.repeats = 2;
  migrate().faults[0].recover_ms = 1000;
  summarize_times(migrate());
  migrate().detected_by = {{"watchdog", 1}};
  for (const auto& [metric, wanted] :
       {std::pair("recover_ms.p50", "<= 50 ms"), {"recover_ms.p99", "<= 50 ms"}, {"detected_by", "event"}})
    scenario.expectations.push_back(
        {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)});
  EXPECT_EQ(of("migrate.recover_ms.p50").verdict, Verdict::kUnknown);
  EXPECT_EQ(of("migrate.recover_ms.p99").verdict, Verdict::kFail);
  EXPECT_EQ(of("migrate.detected_by").verdict, Verdict::kFail);
}

/// 20 faults, of which some were witnessed and not measured.
class Dropped : public VerdictTest {
 protected:
  void drop(size_t count, const std::string& why, size_t strike = 0) {
    ModeResult& mode = migrate();
    while (mode.faults.size() < 20) mode.faults.push_back(mode.faults[0]);
    for (size_t i = 20 - count; i < 20; ++i) {
      mode.faults[i].sampled = false;
      mode.faults[i].why_not_sampled = why;
      mode.faults[i].strike = strike;
      ++mode.faults_dropped[why];
    }
    mode.faults_planned = mode.faults_witnessed = 20;
    mode.faults_sampled = 20 - count;
    for (Distribution* d : {&mode.detect_ms, &mode.migrate_ms, &mode.recover_ms, &mode.blackout_ms})
      d->n = 20 - count;
  }
  Judgement of_metric(const std::string& metric, const std::string& wanted) {
    scenario.expectations = {
        {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)}};
    return of("migrate." + metric);
  }
  static constexpr const char* kLate = "the job ended before it could be measured";
};

TEST_F(Dropped, a_fault_that_was_not_measured_may_be_the_worst) {
  drop(1, kLate);
  const Judgement most = of_metric("recover_ms.max", "<= floor + wakeup + 50 ms");
  EXPECT_EQ(most.verdict, Verdict::kUnknown);
  EXPECT_EQ(most.doubt, DoubtKind::kProvesNothing);
  EXPECT_NE(
      most.got.find("1 of 20 faults that took effect was not measured: the job ended before it could be "
                    "measured"),
      std::string::npos)
      << most.got;
  for (const char* metric : {"detect_ms.max", "detect_ms.p99", "migrate_ms.max", "blackout_ms.p99"})
    EXPECT_EQ(of_metric(metric, "<= 100 ms").verdict, Verdict::kUnknown) << metric;
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kPass) << "whatever that one took";
  EXPECT_EQ(of_metric("recover_ms.p50", "<= 100 ms").verdict, Verdict::kPass);
  EXPECT_EQ(of_metric("recover_ms.max", "<= 1 ms").verdict, Verdict::kFail) << "others were too slow";
  EXPECT_EQ(of_metric("recover_ms.max", ">= 5 ms").verdict, Verdict::kPass) << "a longer one, too";
}

TEST_F(Dropped, a_percentile_needs_room_for_all_that_was_not_measured) {
  drop(2, kLate);
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kUnknown);
  EXPECT_EQ(of_metric("recover_ms.p50", "<= 100 ms").verdict, Verdict::kPass);
}

TEST_F(Dropped, a_fault_that_met_nothing_has_no_time) {
  for (const char* why :
       {"no operation was open", "no channel used the target", "no segment was in flight on the target",
        "it took nothing from its NIC", "no NIC was struck", "the job's last operation had ended"}) {
    result = sample_result();
    drop(3, why);
    EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").verdict, Verdict::kPass) << why;
  }
}

TEST_F(Dropped, the_last_strike_of_a_fault_that_repeats_until_the_end_is_no_doubt) {
  drop(1, kLate, 3);
  EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").verdict, Verdict::kPass);
}

TEST_F(Dropped, a_recovery_without_a_rate_before_it_may_be_the_worst) {
  drop(0, "");
  migrate().faults[7].why_no_rate_before = "it struck too early";
  migrate().faults[7].recover_ms.reset();
  migrate().recover_ms.n = 19;
  const Judgement most = of_metric("recover_ms.max", "<= 100 ms");
  EXPECT_EQ(most.verdict, Verdict::kUnknown);
  EXPECT_NE(most.got.find("it struck too early"), std::string::npos) << most.got;
  EXPECT_EQ(of_metric("recover_ms.p95", "<= 100 ms").verdict, Verdict::kPass);
  EXPECT_EQ(of_metric("detect_ms.max", "<= 100 ms").verdict, Verdict::kPass) << "that one is known";
}

TEST_F(Dropped, what_was_cut_short_is_no_further_doubt) {
  drop(1, kLate);
  migrate().outcome = Outcome::kCancelled;
  EXPECT_EQ(of_metric("recover_ms.max", "<= 100 ms").doubt, DoubtKind::kCutShort);
}

}  // namespace
}  // namespace r2bench
