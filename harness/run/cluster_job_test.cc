// SPDX-License-Identifier: Apache-2.0
// Jobs whose hosts are lost at the wrong moment: hosts of this process stand for those of a launcher.
#include <algorithm>

#include "harness/judge/verdict.h"
#include "harness/run/testing/lent_hosts.h"
#include "harness/run/testing/run_fixture.h"

namespace r2bench {
namespace {

class ClusterJob : public RunTest {
 protected:
  ClusterJob() { options_.cluster = &hosts_; }
  RunResult all() {
    std::atomic<bool> cancel{false};
    return run_scenario(scenario_, options_, cancel);
  }
  static std::string noted(const ModeResult& mode, const std::string& name) {
    for (const LoggedEvent& event : mode.events)
      if (event.name == name) return event.text;
    return "";
  }

  LentHosts hosts_{out_};
};

TEST_F(ClusterJob, ends_as_on_one_machine) { expect_exact(run(), 2, 6, (1 << 20) / 4); }

TEST_F(ClusterJob, a_command_is_told_where_the_launcher_says_that_the_first_host_is) {
  scenario_.workload.engine = Engine::kExec;
  scenario_.workload.iters = 0;
  scenario_.workload.verify = false;
  scenario_.workload.exec.arguments = {"/bin/sh", "-c", "echo at $MASTER_ADDR"};
  const ModeResult mode = run();
  ASSERT_EQ(mode.outcome, Outcome::kOk) << mode.error;
  for (const RankResult& rank : mode.ranks) {
    std::ifstream log(out_ + "/" + rank.log_path);
    std::string line;
    std::getline(log, line);
    EXPECT_EQ(line, "at 10.1.2.3");
  }
}

// The ranks have ended well, but what the host saw of the job is not here, or not all of it.
TEST_F(ClusterJob, a_host_that_is_lost_before_it_has_told_all_is_no_success) {
  hosts_.b.loss.as_it_settles = true;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_NE(mode.error.find("host b is gone"), std::string::npos) << mode.error;
}

// What the job would have done is not known: that is no failure of the plugin.
TEST_F(ClusterJob, a_host_that_is_lost_while_the_job_runs_makes_the_verdict_unknown) {
  hosts_.b.loss.after = std::chrono::milliseconds(100);
  scenario_.workload.iters = 1'000'000;
  const RunResult result = all();
  EXPECT_EQ(result.modes.at(0).outcome, Outcome::kCancelled);
  EXPECT_EQ(result.modes.at(0).error, "host b is gone");
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kUnknown);
}

// The kernel has killed the rank with its agent, and the connection's end has not been seen yet.
TEST_F(ClusterJob, a_rank_that_died_with_its_host_is_no_killed_rank) {
  hosts_.a.loss.deaf_after = hosts_.b.loss.after = std::chrono::milliseconds(100);
  hosts_.a.loss.ends_late_by = std::chrono::seconds(1);  // rank 1's end is what is seen first
  hosts_.b.loss.kills_its_ranks = hosts_.b.loss.as_its_rank_is_seen_to_end = true;
  scenario_.workload.iters = 1'000'000;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_EQ(mode.error, "host b is gone");
}

// The others' ranks lose their peers at once; that the host is lost shows later.
TEST_F(ClusterJob, an_error_that_a_lost_host_has_caused_is_none_of_the_plugin) {
  hosts_.b.loss.after = std::chrono::milliseconds(100);
  hosts_.b.loss.kills_its_ranks = hosts_.b.loss.as_its_rank_is_seen_to_end = true;
  hosts_.b.loss.ends_late_by = std::chrono::seconds(1);
  scenario_.workload.iters = 1'000'000;
  const RunResult result = all();
  const ModeResult& mode = result.modes.at(0);
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_TRUE(mode.error.starts_with("host b is gone; then ")) << mode.error;
  EXPECT_NE(mode.error.find("node0/rank0"), std::string::npos) << mode.error;
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kUnknown);
}

TEST_F(ClusterJob, what_was_measured_ends_when_a_lost_host_was_last_heard) {
  hosts_.b.loss.after = std::chrono::milliseconds(1000);
  hosts_.b.loss.silent_before = std::chrono::milliseconds(500);
  scenario_.workload.iters = 1'000'000;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  const auto cut = std::find_if(mode.events.begin(), mode.events.end(),
                                [](const LoggedEvent& event) { return event.name == "cancelled"; });
  ASSERT_NE(cut, mode.events.end());
  EXPECT_EQ(cut->time_ns, hosts_.b.heard_ns());
  EXPECT_EQ(mode.timeline.end_ns, hosts_.b.heard_ns());
}

TEST_F(ClusterJob, a_launcher_that_ends_cuts_the_job_short) {
  hosts_.launcher_ends_after = std::chrono::milliseconds(100);
  scenario_.workload.iters = 1'000'000;
  const RunResult result = all();
  EXPECT_EQ(result.modes.at(0).outcome, Outcome::kCancelled);
  EXPECT_EQ(result.modes.at(0).error, "the launcher (mpi) ended with status 1");
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kUnknown);
}

// An agent that was stopped is noticed only when it is asked where the ranks are.
TEST_F(ClusterJob, a_host_that_does_not_say_why_the_job_hangs_is_what_it_waits_for) {
  hosts_.b.loss.as_it_is_asked_for_threads = true;
  misbehave("hang:0:3");
  scenario_.timeouts.stall = std::chrono::seconds(1);
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_EQ(mode.error, "host b is gone");
}

// A rank that SIGKILL has not ended within the bound, for example: its process is in the kernel.
TEST_F(ClusterJob, a_rank_whose_end_nobody_tells_is_killed_by_no_known_signal) {
  hosts_.b.loss.tells_no_ends = true;
  scenario_.timeouts.close = std::chrono::seconds(1);
  const RunResult result = all();
  const RankResult& rank = result.modes.at(0).ranks.at(1);
  EXPECT_EQ(rank.outcome, Outcome::kKilled);
  EXPECT_EQ(rank.signal, 0);
  EXPECT_EQ(rank.error, kEndUnknown) << "cli/cluster_result_test.cc takes it from there";
}

TEST_F(ClusterJob, a_host_that_is_lost_between_two_modes_takes_no_result_with_it) {
  scenario_.modes.push_back({ModeKind::kMigrate, "migrate", {}, std::nullopt});
  scenario_.modes.push_back({ModeKind::kBalance, "balance", {}, std::nullopt});
  hosts_.b.loss.jobs_until = 1;
  const RunResult result = all();
  ASSERT_EQ(result.modes.size(), 2u) << "the third was not tried";
  EXPECT_EQ(result.modes[0].outcome, Outcome::kOk) << result.modes[0].error;
  EXPECT_EQ(result.modes[1].mode, "migrate");
  EXPECT_EQ(result.modes[1].outcome, Outcome::kCancelled);
  EXPECT_NE(result.modes[1].error.find("host b did not answer 'prepare'"), std::string::npos);
  EXPECT_TRUE(result.cancelled);
}

TEST_F(ClusterJob, a_host_that_is_lost_between_two_pairs_leaves_those_before) {
  scenario_.modes.push_back({ModeKind::kMigrate, "migrate", {}, std::nullopt});
  scenario_.pairs = 3;
  hosts_.b.loss.jobs_until = 3;
  const RunResult result = all();
  ASSERT_EQ(result.modes.size(), 2u);
  EXPECT_TRUE(result.cancelled);
  ASSERT_EQ(result.jobs.size(), 4u);
  EXPECT_EQ(std::count_if(result.jobs.begin(), result.jobs.end(),
                          [](const ModeResult& job) { return job.outcome == Outcome::kOk; }),
            3);
}

TEST_F(ClusterJob, a_host_that_is_lost_before_the_first_job_is_an_error_of_the_run) {
  hosts_.a.loss.jobs_until = 0;
  EXPECT_THROW(run(), UsageError);
}

TEST_F(ClusterJob, settings_that_differ_between_hosts_are_told) {
  EXPECT_EQ(noted(run(), "environment_differs"), "");
  hosts_.a.more_environment = {{"NCCL_IB_HCA", "mlx5_0"}, {"R2CC_NODE_NAME", "node0"}, {"NCCL_ALGO", "Ring"}};
  hosts_.b.more_environment = {
      {"NCCL_IB_HCA", "mlx5_7"}, {"R2CC_NODE_NAME", "node1"}, {"R2CC_PROBE_MS", "9"}};
  EXPECT_EQ(noted(run(), "environment_differs"),
            "NCCL_ALGO is 'Ring' on a, and not set on b; R2CC_PROBE_MS is '9' on b, and not set on a");
}

}  // namespace
}  // namespace r2bench
