// SPDX-License-Identifier: Apache-2.0
// How the jobs of one mode become one result.
#include "harness/judge/pool.h"

#include <gtest/gtest.h>

#include "harness/judge/held_up.h"
#include "harness/judge/verdict.h"

namespace r2bench {
namespace {

class Pool : public testing::Test {
 protected:
  /// An AllReduce of 12 MB by four ranks, each of its iterations `ms` long.
  static ModeResult job(std::vector<double> ms) {
    ModeResult mode;
    mode.iteration_ms = ms;
    mode.row.size_bytes = 12'000'000;
    mode.row.iterations = ms.size();
    if (!ms.empty()) {
      for (double t : ms) mode.row.time_us += 1e3 * t / double(ms.size());
      mode.row.algbw = 12'000 / mode.row.time_us;
      mode.row.busbw = 1.5 * mode.row.algbw;
    }
    return mode;
  }
};

/// What comes of `outcome: wanted` of a mode whose jobs ended like this.
Judgement outcome_of(const std::string& wanted, const std::vector<Outcome>& ends) {
  std::vector<ModeResult> jobs(ends.size());
  std::vector<const ModeResult*> all;
  for (size_t i = 0; i < ends.size(); ++i) {
    jobs[i].mode = "migrate";
    jobs[i].outcome = ends[i];
    if (ends[i] == Outcome::kError) jobs[i].error = "node1/nic0 failed";
    all.push_back(&jobs[i]);
  }
  Scenario scenario;
  scenario.modes = {{ModeKind::kMigrate, "migrate", {}}};
  scenario.expectations = {
      {"migrate", "outcome", wanted, 0, 0, parse_condition(*find_metric("outcome"), wanted)}};
  RunResult whole;
  whole.modes = {pool(all)};
  return judge(scenario, whole).expectations.at(0);
}

/// Three jobs of one mode, each with one repeat of a fault that is to end it.
class JobsThatEnd : public testing::Test {
 protected:
  JobsThatEnd() : jobs(3) {
    scenario.modes = {{ModeKind::kMigrate, "migrate", {}}};
    scenario.faults.emplace_back(faultinject::fault_kind("port_down"));
    for (const auto& [metric, wanted] : {std::pair("outcome", "!= ok"), {"fault_witness", ">= 1"}})
      scenario.expectations.push_back(
          {"migrate", metric, wanted, 0, 0, parse_condition(*find_metric(metric), wanted)});
    for (ModeResult& job : jobs) {
      job.mode = "migrate";
      job.outcome = Outcome::kError;
      job.faults.emplace_back();
      see(job);
    }
  }
  static void see(ModeResult& job) {
    job.faults[0].witnessed = true;
    job.faults[0].why_not_sampled = "no operation was open";
    job.faults_dropped = {{"no operation was open", 1}};
    job.faults_planned = job.faults_witnessed = 1;
  }
  /// It ended by itself before its fault.
  static void miss(ModeResult& job) {
    job.faults[0].witnessed = false;
    job.faults_planned = job.faults_witnessed = 0;
    job.faults_dropped.clear();
  }
  Judged judged() const {
    RunResult whole;
    whole.repeats = 3;
    whole.modes = {pool({&jobs[0], &jobs[1], &jobs[2]})};
    return judge(scenario, whole);
  }
  Scenario scenario;
  std::vector<ModeResult> jobs;
};

TEST_F(JobsThatEnd, pass_if_the_fault_was_seen_in_each) {
  const Judged all = judged();
  EXPECT_EQ(all.verdict, Verdict::kPass) << (all.doubts.empty() ? "" : all.doubts[0].text);
}

TEST_F(JobsThatEnd, are_unknown_if_one_ended_before_its_fault) {
  miss(jobs[2]);
  const Judged all = judged();
  EXPECT_EQ(all.verdict, Verdict::kUnknown);
  ASSERT_EQ(all.doubts.size(), 1u);
  EXPECT_EQ(all.doubts[0].kind, DoubtKind::kFaultNotSeen);
  EXPECT_EQ(all.doubts[0].text,
            "migrate: in 1 of 3 jobs the fault was not seen to take effect; without it a job's result proves "
            "nothing");
  for (const Judgement& judgement : all.expectations)
    EXPECT_EQ(judgement.verdict, Verdict::kUnknown) << judgement.name() << ": " << judgement.got;
  EXPECT_NE(all.expectations[1].got.find("0 in round 3"), std::string::npos) << all.expectations[1].got;
  miss(jobs[1]);
  EXPECT_EQ(judged().doubts[0].text.substr(0, 20), "migrate: in 2 of 3 j");
}

TEST_F(JobsThatEnd, fail_for_good_whatever_was_seen) {
  miss(jobs[2]);
  jobs[0].outcome = Outcome::kOk;
  EXPECT_EQ(judged().verdict, Verdict::kFail);
}

TEST_F(JobsThatEnd, are_cut_short_and_nothing_else_if_the_last_one_was) {
  miss(jobs[2]);
  jobs[2].outcome = Outcome::kCancelled;
  EXPECT_EQ(pool({&jobs[0], &jobs[1], &jobs[2]}).jobs_without_fault, 0u);
  EXPECT_EQ(judged().verdict, Verdict::kUnknown);
}

TEST(PooledOutcome, an_expectation_has_to_hold_for_every_job) {
  std::vector<Outcome> ends(19, Outcome::kOk);
  ends.push_back(Outcome::kError);
  const Judgement one = outcome_of("error", ends);
  EXPECT_EQ(one.verdict, Verdict::kFail);
  EXPECT_EQ(one.got, "error in 1 of 20 jobs, ok in 19");
  EXPECT_EQ(outcome_of("ok", ends).verdict, Verdict::kFail);
  EXPECT_EQ(outcome_of("!= ok", ends).verdict, Verdict::kFail);
  EXPECT_EQ(outcome_of("!= hang", ends).verdict, Verdict::kPass);
  const Judgement all = outcome_of("error", {Outcome::kError, Outcome::kError});
  EXPECT_EQ(all.verdict, Verdict::kPass);
  EXPECT_EQ(all.got, "error in 2 of 2 jobs");
  EXPECT_EQ(outcome_of("error", {Outcome::kError}).got, "error");
}

TEST(PooledOutcome, a_job_that_was_cut_short_decides_nothing) {
  const Judgement open = outcome_of("error", {Outcome::kError, Outcome::kCancelled});
  EXPECT_EQ(open.verdict, Verdict::kUnknown);
  EXPECT_EQ(open.doubt, DoubtKind::kCutShort);
  EXPECT_EQ(outcome_of("error", {Outcome::kOk, Outcome::kCancelled}).verdict, Verdict::kFail)
      << "whatever the last one would have become";
  EXPECT_EQ(outcome_of("ok", {Outcome::kOk, Outcome::kCancelled}).verdict, Verdict::kUnknown);
}

// A clock that jumped makes a verdict unknown, whichever job has the larger bound.
TEST_F(Pool, a_clock_that_jumped_in_one_job_jumped) {
  ModeResult wide = job({10}), jumped = job({10});
  wide.clock_bound_ms = 5;
  jumped.clock_bound_ms = 3;
  for (ModeResult* each : {&wide, &jumped}) {
    each->hosts.resize(2);
    each->hosts[0].name = "a";
    each->hosts[1].name = "b";
  }
  jumped.hosts[1].clock_beyond_ms = 2;
  for (const ModeResult& all : {pool({&wide, &jumped}), pool({&jumped, &wide})}) {
    EXPECT_EQ(all.clock_bound_ms, 5);
    EXPECT_EQ(all.hosts[0].clock_beyond_ms, 0);
    EXPECT_EQ(all.hosts[1].clock_beyond_ms, 2);
  }
}

TEST_F(Pool, counts_are_added_up) {
  ModeResult a = job({1}), b = job({1});
  a.correctness = {1, 2, 3, 4, 5, 6};
  b.correctness = {10, 20, 30, 40, 50, 60};
  a.row.wrong = 1, b.row.wrong = 10;
  a.faults_planned = 1, b.faults_planned = 10;
  a.faults_witnessed = 2, b.faults_witnessed = 20;
  a.faults_sampled = 3, b.faults_sampled = 30;
  a.faults_unrecovered = 4, b.faults_unrecovered = 40;
  a.counts["migrations"] = 5, b.counts["migrations"] = 50;
  a.counts["failbacks"] = 6, b.counts["failbacks"] = 60;
  a.counts["peer_slow"] = 7, b.counts["peer_slow"] = 70;
  a.counts["gray_nics"] = 1, b.counts["gray_nics"] = 10;
  a.counts["well_nics"] = 2, b.counts["well_nics"] = 20;
  a.counts["lanes"] = 3, b.counts["lanes"] = 30;
  a.trace_lost = 8, b.trace_lost = 80;
  a.witnesses_lost = 1, b.witnesses_lost = 10;
  a.faults_added = 6, b.faults_added = 60;
  a.faults_ended_outside = 7, b.faults_ended_outside = 70;
  a.rounds_fired = 2, b.rounds_fired = 20;
  a.rounds_seen = 3, b.rounds_seen = 30;
  a.rounds_at_end = 4, b.rounds_at_end = 40;
  a.rounds_not_fired = 5, b.rounds_not_fired = 50;
  a.cpu = {3, 2}, b.cpu = {30, 20};
  a.duration_s = 9, b.duration_s = 90;
  const ModeResult all = pool({&a, &b});
  EXPECT_EQ(all.correctness.wrong_elements, 11u);
  EXPECT_EQ(all.correctness.duplicated, 22u);
  EXPECT_EQ(all.correctness.lost, 33u);
  EXPECT_EQ(all.correctness.checked_elements, 44u);
  EXPECT_EQ(all.correctness.checked_iterations, 55u);
  EXPECT_EQ(all.correctness.size_errors, 66u);
  EXPECT_EQ(all.row.wrong, 11u);
  EXPECT_EQ(all.faults_planned, 11u);
  EXPECT_EQ(all.faults_witnessed, 22u);
  EXPECT_EQ(all.faults_sampled, 33u);
  EXPECT_EQ(all.faults_unrecovered, 44u);
  EXPECT_EQ(all.count("migrations"), 55u);
  EXPECT_EQ(all.count("failbacks"), 66u);
  EXPECT_EQ(all.count("peer_slow"), 77u);
  EXPECT_EQ(all.count("gray_nics"), 11u);
  EXPECT_EQ(all.count("well_nics"), 22u);
  EXPECT_EQ(all.count("lanes"), 33u);
  EXPECT_EQ(all.trace_lost, 88u);
  EXPECT_EQ(all.witnesses_lost, 11u);
  EXPECT_EQ(all.faults_added, 66u);
  EXPECT_EQ(all.faults_ended_outside, 77u);
  EXPECT_EQ(all.rounds_fired, 22u);
  EXPECT_EQ(all.rounds_seen, 33u);
  EXPECT_EQ(all.rounds_at_end, 44u);
  EXPECT_EQ(all.rounds_not_fired, 55u);
  EXPECT_DOUBLE_EQ(all.cpu.seconds, 33);
  EXPECT_DOUBLE_EQ(all.cpu.gbytes, 22);
  EXPECT_DOUBLE_EQ(all.duration_s, 99);
}

TEST_F(Pool, what_is_measured_is_pooled_over_the_jobs_that_know_it) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.measured["stall_ms"] = 30, c.measured["stall_ms"] = 70;
  EXPECT_EQ(pool({&a, &b, &c}).number("stall_ms"), 70.0) << "the longest";
  EXPECT_EQ(pool({&b, &a}).number("stall_ms"), 30.0) << "the first job does not know it";
  EXPECT_EQ(pool({&b, &b}).number("stall_ms"), std::nullopt);
}

TEST_F(Pool, of_what_came_back_the_worst_job_counts) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.restored = {0.99, "", 10, 10.1, 12, 20, 2, 2, 0};
  b.restored = {0.5, "", 10, 20, 12, 30, 1, 0, 1};
  c.restored = {{}, "it is not known", 10, 0, 12, 0, 1, 0, 0};
  const Restored all = pool({&a, &b, &c}).restored;
  EXPECT_DOUBLE_EQ(all.ratio.value_or(0), 0.5);
  EXPECT_DOUBLE_EQ(all.after_ms, 20);
  EXPECT_EQ(all.operations_after, 30u);
  EXPECT_EQ(all.rounds, 4u);
  EXPECT_EQ(all.rounds_home, 2u);
  EXPECT_EQ(all.rounds_late, 1u);
  EXPECT_EQ(all.why_not, "it is not known");
  EXPECT_EQ(pool({&a}).restored.rounds, 2u);
}

TEST_F(Pool, times_are_means_over_all_iterations) {
  const ModeResult a = job({10, 20}), b = job({60});
  const ModeResult all = pool({&a, &b});
  EXPECT_EQ(all.iteration_ms, (std::vector<double>{10, 20, 60}));
  EXPECT_EQ(all.row.iterations, 3u);
  EXPECT_DOUBLE_EQ(all.row.time_us, 30'000);
  EXPECT_DOUBLE_EQ(all.row.algbw, 0.4);
  EXPECT_DOUBLE_EQ(all.row.busbw, 0.6);
}

TEST_F(Pool, a_first_job_without_an_iteration_does_not_hide_the_times_of_the_others) {
  const ModeResult a = job({}), b = job({30});
  const ModeResult all = pool({&a, &b});
  EXPECT_DOUBLE_EQ(all.row.time_us, 30'000);
  EXPECT_DOUBLE_EQ(all.row.algbw, 0.4);
  EXPECT_DOUBLE_EQ(all.row.busbw, 0.6);
}

TEST_F(Pool, the_first_job_that_failed_decides_the_outcome) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  b.outcome = Outcome::kHang;
  b.error = "stood still";
  c.outcome = Outcome::kError;
  c.error = "something else";
  const ModeResult all = pool({&a, &b, &c});
  EXPECT_EQ(all.outcome, Outcome::kHang);
  EXPECT_EQ(all.error, "stood still");
}

TEST_F(Pool, the_rate_is_the_mean_and_the_noise_floor_the_worst) {
  ModeResult a = job({1}), b = job({1}), c = job({1});
  a.throughput.before_gbps = 1;
  b.throughput.before_gbps = 3;
  c.throughput.before_gbps = 5;
  a.wakeup_ms = {1, 0, 0, 2, 0};
  b.wakeup_p99_ms = 1.5;
  b.wakeup_ms = {2, 0, 0, 9, 0};
  c.wakeup_ms = {3, 0, 0, 4, 0};
  const ModeResult all = pool({&a, &b, &c});
  EXPECT_DOUBLE_EQ(all.throughput.before_gbps, 3);
  EXPECT_DOUBLE_EQ(all.wakeup_ms.p99, 9);
  EXPECT_EQ(all.wakeup_ms.n, 2u);
  EXPECT_DOUBLE_EQ(all.wakeup_p99_ms, 1.5);
}

TEST_F(Pool, one_job_that_something_else_held_up_is_not_hidden_by_the_others) {
  ModeResult kind = job({1}), busy = job({1});
  for (ModeResult* each : {&kind, &busy}) {
    each->throughput = {.before_gbps = 3.9, .after_gbps = 1.95, .retained = 0.5, .limit = 0.5};
    each->throughput.rounds = each->throughput.rounds_measured = each->throughput.rounds_settled = 1;
    each->throughput.ports_gbps = 4;
  }
  EXPECT_EQ(held_up(pool({&kind, &busy, &kind}).throughput), "");
  busy.throughput.retained = 0.67;
  EXPECT_LT(pool({&kind, &busy, &kind, &kind}).throughput.retained, 0.55);
  EXPECT_NE(held_up(pool({&kind, &busy, &kind, &kind}).throughput).find("1.34 times the limit"),
            std::string::npos);
  busy.throughput.retained = 0.5;
  busy.throughput.before_gbps = 3.3;
  EXPECT_NE(held_up(pool({&kind, &kind, &busy}).throughput).find("3.30 were delivered in one of its jobs"),
            std::string::npos);
}

// A fault that no job survives twice: each job has one, and all count.
TEST_F(Pool, faults_of_all_jobs_stand_one_behind_the_other) {
  const auto struck = [this](uint64_t start_ns, double recover_ms) {
    ModeResult one = job({1});
    FaultSample sample;
    sample.witnessed = sample.sampled = true;
    sample.t0_ns = start_ns + 1000;
    sample.detect_ms = 1;
    if (recover_ms > 0)
      sample.recover_ms = recover_ms;
    else
      one.faults_unrecovered = 1, sample.waited_ms = 500;
    one.faults = {sample};
    one.faults_sampled = 1;
    one.timeline.start_ns = start_ns;
    one.timeline.end_ns = start_ns + 5000;
    one.timeline.total = {{start_ns, 2, true, 1}};
    one.throughput = {.before_gbps = 4,
                      .after_gbps = 2,
                      .retained = recover_ms > 0 ? 0.5 : 0.1,
                      .limit = 0.5,
                      .rounds = 1,
                      .rounds_measured = 1,
                      .rounds_settled = size_t(recover_ms > 0),
                      .worst_unsettled = recover_ms > 0 ? 0 : 0.1};
    return one;
  };
  const ModeResult a = struck(10'000, 20), b = struck(90'000, 0), c = struck(400'000, 30);
  const ModeResult all = pool({&a, &b, &c});
  ASSERT_EQ(all.faults.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all.faults[i].repetition, i);
    EXPECT_EQ(all.faults[i].t0_ns, 10'000 + i * 5000 + 1000);
  }
  EXPECT_EQ(all.timeline.end_ns, 25'000u);
  EXPECT_EQ(all.detect_ms.n, 3u);
  EXPECT_EQ(all.recover_ms.n, 3u);
  EXPECT_DOUBLE_EQ(all.recover_ms.p50, 30);
  EXPECT_DOUBLE_EQ(all.recover_ms.max, 500);
  EXPECT_EQ(all.faults_unrecovered, 1u);
  EXPECT_EQ(all.throughput.rounds, 3u);
  EXPECT_EQ(all.throughput.rounds_settled, 2u);
  EXPECT_FALSE(all.throughput.settled());
  EXPECT_DOUBLE_EQ(all.throughput.worst_unsettled, 0.1);
  EXPECT_NEAR(all.throughput.retained, 1.1 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(all.throughput.limit, 0.5);
}

}  // namespace
}  // namespace r2bench
