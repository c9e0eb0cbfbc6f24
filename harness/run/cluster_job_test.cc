// SPDX-License-Identifier: Apache-2.0
// Jobs whose hosts are lost at the wrong moment: hosts of this process stand for those of a launcher.
#include <algorithm>

#include "harness/hosts/cluster.h"
#include "harness/hosts/local_host.h"
#include "harness/judge/verdict.h"
#include "harness/run/build_paths.h"
#include "harness/run/testing/run_fixture.h"

namespace r2bench {
namespace {

/// A rank's port that may never tell the rank's end.
class LentPort final : public RankPort {
 public:
  LentPort(RankPort& port, const bool& tells_ends) : port_(port), tells_ends_(tells_ends) {}
  bool send(const nlohmann::json& message) override { return port_.send(message); }
  std::optional<nlohmann::json> receive() override { return port_.receive(); }
  pid_t pid() const override { return port_.pid(); }
  std::optional<int> ended() override { return tells_ends_ ? port_.ended() : std::nullopt; }
  uint64_t signal(int number) override { return port_.signal(number); }

 private:
  RankPort& port_;
  const bool& tells_ends_;
};

/// A LocalHost that can be lost.
class LentHost final : public Host {
 public:
  LentHost(const BuildPaths& paths, const std::string& folder, std::string name)
      : local_(paths.bin_dir, paths.lib_dir, folder), name_(std::move(name)) {}

  int jobs_until_lost = 100;
  bool lost_when_it_settles = false;
  bool lost_when_asked_for_threads = false;
  std::optional<std::chrono::milliseconds> lost_after;  ///< from its start
  bool tells_ends = true;
  std::map<std::string, std::string> more_environment;

  void prepare(const HostPlan& plan) override {
    if (--jobs_until_lost < 0) throw FabricError("host " + name_ + " did not answer 'prepare'");
    local_.prepare(plan);
    environment_ = local_.environment();
    for (const auto& [variable, value] : more_environment) environment_[variable] = value;
  }
  void start() override {
    local_.start();
    started_ = std::chrono::steady_clock::now();
  }
  void tick() override { local_.tick(); }
  faultinject::FaultBoard& board() override { return local_.board(); }
  RankPort& rank(int rank) override {
    return *ports_.try_emplace(rank, std::make_unique<LentPort>(local_.rank(rank), tells_ends)).first->second;
  }
  uint64_t drain(int rank, std::vector<r2ccl::trace::Event>& out) override { return local_.drain(rank, out); }
  std::vector<HostNote> notes() override { return local_.notes(); }
  void put_back() override { local_.put_back(); }
  void decline(r2ccl::trace::EventType type) override { local_.decline(type); }
  std::string evidence() const override { return local_.evidence(); }
  std::map<int, std::vector<std::string>> devices() const override { return local_.devices(); }
  const std::map<std::string, std::string>& environment() const override { return environment_; }
  ThreadReport threads() override {
    lost_ = lost_ || lost_when_asked_for_threads;
    return local_.threads();
  }
  void settle() override { lost_ = lost_ || lost_when_it_settles; }
  int log_error() const override { return local_.log_error(); }
  void release() override {
    ports_.clear();
    local_.release();
  }
  std::optional<std::string> failure() override {
    lost_ = lost_ || (lost_after && std::chrono::steady_clock::now() > started_ + *lost_after);
    if (!lost_) return std::nullopt;
    return "host " + name_ + " is gone";
  }
  HostFacts facts() const override {
    HostFacts facts = local_.facts();
    facts.name = name_;
    return facts;
  }

 private:
  LocalHost local_;
  std::string name_;
  std::map<int, std::unique_ptr<LentPort>> ports_;
  std::chrono::steady_clock::time_point started_;
  bool lost_ = false;
  std::map<std::string, std::string> environment_;
};

class LentHosts final : public Cluster {
 public:
  explicit LentHosts(const std::string& folder)
      : a(find_build({}, Engine::kCpu), folder, "a"), b(find_build({}, Engine::kCpu), folder, "b") {}
  std::vector<Host*> hosts(const std::string&) override { return {&a, &b}; }
  std::optional<std::string> failure() override { return std::nullopt; }
  std::string master_address() override { return "10.1.2.3"; }

  LentHost a, b;
};

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
  hosts_.b.lost_when_it_settles = true;
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_NE(mode.error.find("host b is gone"), std::string::npos) << mode.error;
}

// What the job would have done is not known: that is no failure of the plugin.
TEST_F(ClusterJob, a_host_that_is_lost_while_the_job_runs_makes_the_verdict_unknown) {
  hosts_.b.lost_after = std::chrono::milliseconds(100);
  scenario_.workload.iters = 1'000'000;
  const RunResult result = all();
  EXPECT_EQ(result.modes.at(0).outcome, Outcome::kCancelled);
  EXPECT_EQ(result.modes.at(0).error, "host b is gone");
  EXPECT_EQ(judge(scenario_, result).verdict, Verdict::kUnknown);
}

// An agent that was stopped is noticed only when it is asked where the ranks are.
TEST_F(ClusterJob, a_host_that_does_not_say_why_the_job_hangs_is_what_it_waits_for) {
  hosts_.b.lost_when_asked_for_threads = true;
  misbehave("hang:0:3");
  scenario_.timeouts.stall = std::chrono::seconds(1);
  const ModeResult mode = run();
  EXPECT_EQ(mode.outcome, Outcome::kCancelled);
  EXPECT_EQ(mode.error, "host b is gone");
}

// A rank that SIGKILL has not ended within the bound, for example: its process is in the kernel.
TEST_F(ClusterJob, a_rank_whose_end_nobody_tells_is_killed_by_no_known_signal) {
  hosts_.b.tells_ends = false;
  scenario_.timeouts.close = std::chrono::seconds(1);
  const RunResult result = all();
  const RankResult& rank = result.modes.at(0).ranks.at(1);
  EXPECT_EQ(rank.outcome, Outcome::kKilled);
  EXPECT_EQ(rank.signal, 0);
  EXPECT_EQ(rank.error, kEndUnknown) << "report/consistency_test.cc takes it from there";
}

TEST_F(ClusterJob, a_host_that_is_lost_between_two_modes_takes_no_result_with_it) {
  scenario_.modes.push_back({ModeKind::kMigrate, "migrate", {}, std::nullopt});
  scenario_.modes.push_back({ModeKind::kBalance, "balance", {}, std::nullopt});
  hosts_.b.jobs_until_lost = 1;
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
  hosts_.b.jobs_until_lost = 3;
  const RunResult result = all();
  ASSERT_EQ(result.modes.size(), 2u);
  EXPECT_TRUE(result.cancelled);
  ASSERT_EQ(result.jobs.size(), 4u);
  EXPECT_EQ(std::count_if(result.jobs.begin(), result.jobs.end(),
                          [](const ModeResult& job) { return job.outcome == Outcome::kOk; }),
            3);
}

TEST_F(ClusterJob, a_host_that_is_lost_before_the_first_job_is_an_error_of_the_run) {
  hosts_.a.jobs_until_lost = 0;
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
