// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/beside.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "harness/base/format.h"
#include "harness/judge/metric.h"
#include "harness/judge/pool.h"
#include "harness/judge/verdict.h"
#include "harness/scenario/load.h"
#include "harness/scenario/turns.h"

namespace r2bench {
namespace {

constexpr uint64_t kStartNs = 7'000'000'000;

class BesideTest : public testing::Test {
 protected:
  /// A job of `iters` operations; `length_ms` of an operation says how long it takes. They follow each other.
  ModeResult job(size_t copies, size_t iters, const std::function<double(size_t)>& length_ms) const {
    ModeResult mode;
    mode.mode = "balance";
    mode.beside = {"migrate", copies};
    mode.timeline.start_ns = kStartNs;
    double now_ms = 0;
    for (size_t i = 0; i < iters; ++i) {
      mode.iteration_begin_ms.push_back(now_ms);
      mode.iteration_ms.push_back(length_ms(i));
      now_ms += mode.iteration_ms.back();
    }
    return mode;
  }
  static void strike(ModeResult& mode, double at_ms, bool witnessed = true) {
    FaultSample fault;
    fault.witnessed = witnessed;
    fault.t0_ns = witnessed ? kStartNs + uint64_t(at_ms * 1e6) : 0;
    mode.faults.push_back(fault);
  }
  static int side(size_t i, int copies = 1) { return Turns{copies}.side(i); }
};

TEST_F(BesideTest, the_ratio_is_that_of_the_medians_of_all_operations) {
  const ModeResult mode = job(1, 64, [](size_t i) {
    if (i == 9 || i == 2) return 500.0;  // one of each side was disturbed
    return side(i) == 0 ? 1.1 : 1.0;
  });
  const SidesCompared sides = compare_sides(mode, 64);
  ASSERT_TRUE(sides.ratio) << sides.why_not;
  EXPECT_NEAR(*sides.ratio, 1.1, 1e-12);
  EXPECT_EQ(sides.operations, 64u);
  EXPECT_EQ(sides.why_not, "");
}

TEST_F(BesideTest, the_median_of_an_even_number_lies_between_two) {
  // Of the mode's eight: 1 … 8; of the other side's: all 3.
  const ModeResult mode = job(1, 16, [n = 0](size_t i) mutable { return side(i) == 0 ? double(++n) : 3.0; });
  EXPECT_NEAR(compare_sides(mode, 16).ratio.value(), 4.5 / 3, 1e-12);
}

TEST_F(BesideTest, each_pair_of_communicators_is_compared_by_itself) {
  // Communicators differ tenfold from each other, the sides by 2 %, 4 % and 30 %.
  const ModeResult mode = job(3, 192, [](size_t i) {
    const size_t pair = i / 16 % 3;
    const double of_pair[] = {1, 10, 100}, cost[] = {1.02, 1.30, 1.04};
    return of_pair[pair] * (side(i, 3) == 0 ? cost[pair] : 1);
  });
  const SidesCompared sides = compare_sides(mode, 192);
  EXPECT_NEAR(sides.ratio.value(), 1.04, 1e-12);
  EXPECT_EQ(sides.operations, 192u);
}

TEST_F(BesideTest, only_whole_turns_count_that_begin_half_a_second_after_the_last_fault) {
  const auto length = [](size_t i) {
    if (i < 20) return side(i) == 0 ? 9.0 : 1.0;
    return side(i) == 0 ? 20.0 : 10.0;
  };
  ModeResult mode = job(1, 96, length);
  const double at_ms = mode.iteration_begin_ms[20];
  strike(mode, at_ms / 2);
  strike(mode, at_ms);
  strike(mode, 0, false);  // a third one never took effect
  size_t first = 0;
  while (mode.iteration_begin_ms[first] < at_ms + kBesideSettleMs) ++first;
  ASSERT_EQ(first % 16, 5u) << "in the middle of a turn";
  const SidesCompared sides = compare_sides(mode, 96);
  EXPECT_NEAR(sides.ratio.value(), 2, 1e-12);
  EXPECT_EQ(sides.operations, 96 - (first + 15) / 16 * 16);

  // One that begins exactly then counts.
  ModeResult exact = job(1, 96, [](size_t) { return 10.0; });
  strike(exact, exact.iteration_begin_ms[64] - kBesideSettleMs);
  EXPECT_EQ(compare_sides(exact, 96).operations, 32u);
  exact.faults[0].t0_ns += 1000;
  EXPECT_EQ(compare_sides(exact, 96).operations, 16u);
}

TEST_F(BesideTest, fewer_than_one_turn_show_nothing) {
  ModeResult mode = job(1, 96, [](size_t) { return 10.0; });
  strike(mode, mode.iteration_begin_ms[81] - kBesideSettleMs);
  SidesCompared sides = compare_sides(mode, 96);
  EXPECT_FALSE(sides.ratio);
  EXPECT_EQ(sides.operations, 0u);
  EXPECT_EQ(
      sides.why_not,
      "fewer than 16 operations, one turn, began 500 ms after the last fault or later; give the job more "
      "'iters'");
  strike(mode, 5000);  // after all operations
  EXPECT_FALSE(compare_sides(mode, 96).ratio);

  sides = compare_sides(job(1, 15, [](size_t) { return 10.0; }), 32);
  EXPECT_EQ(sides.why_not, "fewer than 16 operations, one turn, began; give the job more 'iters'");
}

/// Where one operation was not seen, those after it would count for the other side.
TEST_F(BesideTest, a_job_of_which_an_operation_was_not_seen_shows_nothing) {
  const SidesCompared sides = compare_sides(job(1, 95, [](size_t) { return 10.0; }), 96);
  EXPECT_FALSE(sides.ratio);
  EXPECT_EQ(sides.why_not, "the times of 95 operations are known, and a job has 96");
}

TEST_F(BesideTest, a_job_that_failed_shows_nothing) {
  ModeResult mode = job(1, 64, [](size_t) { return 10.0; });
  mode.outcome = Outcome::kError;
  EXPECT_EQ(compare_sides(mode, 64).why_not, "the job ended (error)");
  mode.outcome = Outcome::kCancelled;
  EXPECT_EQ(compare_sides(mode, 64).why_not, "the job ended (cancelled)");
}

TEST_F(BesideTest, what_compares_nothing_has_no_ratio_and_no_count) {
  ModeResult mode = job(1, 64, [](size_t) { return 10.0; });
  mode.beside.reset();
  const Scenario scenario;
  const RunResult result;
  for (const char* name : {"beside_ratio", "beside_operations"}) {
    const Value value = metric_of(name)->value({scenario, result, mode});
    EXPECT_FALSE(value.number);
    EXPECT_EQ(value.text, "the mode compares nothing");
  }
}

/// Jobs differ from each other by more than the sides do.
TEST_F(BesideTest, of_several_jobs_each_is_compared_by_itself) {
  std::vector<ModeResult> jobs;
  for (const auto& [of_job, cost] : {std::pair(1.0, 1.03), std::pair(50.0, 1.01), std::pair(7.0, 1.02)})
    jobs.push_back(job(1, 32, [&](size_t i) { return of_job * (side(i) == 0 ? cost : 1); }));
  const ModeResult all = pool({&jobs[0], &jobs[1], &jobs[2]});
  const SidesCompared sides = compare_sides(all, 32);
  EXPECT_NEAR(sides.ratio.value(), 1.02, 1e-12);
  EXPECT_EQ(sides.operations, 96u);
  ModeResult struck = all;  // such jobs do not exist; a file may say so
  strike(struck, 10);
  EXPECT_FALSE(compare_sides(struck, 32).ratio);
}

TEST_F(BesideTest, a_cost_is_judged) {
  const auto verdict = [&](double cost, const char* wanted) {
    Scenario scenario = parse_scenarios(
        "x.yaml",
        std::string("version: 1\nworkload: {iters: 64}\nmodes: [{mode: balance, beside: migrate}]\n") +
            "expect: {balance: {beside_ratio: '" + wanted + "', beside_operations: 64}}\n")[0];
    RunResult result;
    result.modes = {job(1, 64, [&](size_t i) { return side(i) == 0 ? cost : 1; })};
    result.modes[0].correctness.checked_elements = 1;
    const Judged judged = judge(scenario, result);
    const auto of = [&](const char* metric) {
      return *std::find_if(judged.expectations.begin(), judged.expectations.end(),
                           [&](const Judgement& j) { return j.metric == metric; });
    };
    EXPECT_EQ(of("beside_operations").verdict, Verdict::kPass);
    EXPECT_EQ(of("beside_ratio").got, fixed(cost, 4) + " (64 operations, beside migrate)");
    return of("beside_ratio").verdict;
  };
  EXPECT_EQ(verdict(1.009, "<= 1.01"), Verdict::kPass);
  EXPECT_EQ(verdict(1.011, "<= 1.01"), Verdict::kFail);
}

}  // namespace
}  // namespace r2bench
