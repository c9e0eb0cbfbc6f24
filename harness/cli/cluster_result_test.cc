// SPDX-License-Identifier: Apache-2.0
// Jobs over several hosts, from the command line to result files that `validate` accepts, as it does those of
// one machine. The hosts are of this process and can be lost; the net plugin is none of ours (loopback TCP).
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program_fixture.h"
#include "harness/report/result_file.h"
#include "harness/run/testing/lent_hosts.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

class ClusterResult : public ProgramTest {
 protected:
  using Arrange = std::function<void(LentHosts&)>;

  /// Runs it on two hosts, and expects that the files of the result agree with each other and with the
  /// scenario. Returns the exit status of `run`.
  int run(const std::string& scenario, const Arrange& arrange = {}) {
    std::ofstream("s.yaml") << "version: 1\nname: s\nfabric: {kind: none, nodes: 2, nics_per_node: 2}\n"
                            << scenario;
    runner = [&](const Scenario& loaded, const RunOptions& asked, const std::atomic<bool>& cancel) {
      LentHosts hosts(asked.out_dir);
      if (arrange) arrange(hosts);
      RunOptions options = asked;
      options.cluster = &hosts;
      return run_scenario(loaded, options, cancel);
    };
    std::filesystem::remove_all("result");
    const int status = call({"run", "s.yaml", "--no-plot", "--quiet", "--out", "result"});
    printed = out.str() + err.str();
    EXPECT_EQ(call({"validate", "result/result.json"}), 0) << out.str() << err.str() << "in the result of\n"
                                                           << printed;
    return status;
  }
  nlohmann::json result() const { return read_json_file("result/result.json"); }
  static std::string work(int iterations) {
    return "workload: {plugin: " TESTNET_PLUGIN ", bytes: 1 MiB, warmup: 1, iters: " +
           std::to_string(iterations) + "}\n";
  }

  std::string printed;
};

constexpr int kForEver = 1'000'000;
constexpr const char* kBaseline = "modes: [baseline]\n";

TEST_F(ClusterResult, of_a_job_that_passes) {
  EXPECT_EQ(run(work(5) + "modes: [baseline, migrate]\nexpect: {all: {correctness: exact}}\n"), 0) << printed;
  ASSERT_EQ(result().at("runs").size(), 2u);
  EXPECT_EQ(result().at("verdict"), "pass");
}

TEST_F(ClusterResult, of_pairs_one_of_which_a_host_did_not_live_to_see) {
  EXPECT_EQ(run(work(5) + "pairs: 3\nmodes: [baseline, migrate]\n",
                [](LentHosts& hosts) { hosts.b.loss.jobs_until = 3; }),
            2)
      << printed;
}

TEST_F(ClusterResult, of_a_host_that_is_lost_between_two_modes) {
  EXPECT_EQ(
      run(work(5) + "modes: [baseline, migrate]\n", [](LentHosts& hosts) { hosts.b.loss.jobs_until = 1; }), 2)
      << printed;
}

TEST_F(ClusterResult, of_a_host_that_is_lost_while_the_job_runs) {
  EXPECT_EQ(run(work(kForEver) + kBaseline,
                [](LentHosts& hosts) {
                  hosts.b.loss.after = 500ms;
                  hosts.b.loss.silent_before = 200ms;
                }),
            2)
      << printed;
  EXPECT_EQ(result().at("runs").at(0).at("error"), "host b is gone");
}

TEST_F(ClusterResult, of_a_host_that_takes_its_ranks_along) {
  EXPECT_EQ(run(work(kForEver) + kBaseline,
                [](LentHosts& hosts) {
                  hosts.b.loss.after = 200ms;
                  hosts.b.loss.kills_its_ranks = hosts.b.loss.as_its_rank_is_seen_to_end = true;
                }),
            2)
      << printed;
}

TEST_F(ClusterResult, of_a_host_that_is_lost_before_it_has_told_all) {
  EXPECT_EQ(run(work(5) + kBaseline, [](LentHosts& hosts) { hosts.b.loss.as_it_settles = true; }), 2)
      << printed;
}

TEST_F(ClusterResult, of_a_launcher_that_ends) {
  EXPECT_EQ(run(work(kForEver) + kBaseline, [](LentHosts& hosts) { hosts.launcher_ends_after = 200ms; }), 2)
      << printed;
}

TEST_F(ClusterResult, of_a_rank_whose_end_nobody_tells) {
  EXPECT_EQ(run(work(5) + "timeouts: {close: 1 s}\n" + kBaseline,
                [](LentHosts& hosts) { hosts.b.loss.tells_no_ends = true; }),
            1)
      << printed;
  const nlohmann::json rank = result().at("runs").at(0).at("ranks").at(1);
  EXPECT_EQ(rank.at("outcome"), "killed") << rank;
}

TEST_F(ClusterResult, of_a_rank_that_is_killed_on_another_host) {
  EXPECT_EQ(run(work(kForEver) + "faults: [{at: {iter: 3}, target: node1/rank0, kind: kill}]\n" + kBaseline),
            1);
  EXPECT_EQ(result().at("runs").at(0).at("outcome"), "killed") << printed;
}

TEST_F(ClusterResult, of_a_command) {
  EXPECT_EQ(run(std::string("workload: {engine: exec, command: 'echo at $MASTER_ADDR'}\n") + kBaseline +
                "expect: {all: {outcome: ok}}\n"),
            0)
      << printed;
}

}  // namespace
}  // namespace r2bench
