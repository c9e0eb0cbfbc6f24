// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "harness/hosts/launched_cluster.h"

namespace r2bench {
namespace {

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Sets variables for the time of a test.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<std::string, std::string>> variables) {
    for (auto& [variable, value] : variables) {
      names_.push_back(variable);
      setenv(variable.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const std::string& variable : names_) unsetenv(variable.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST(Launchers, nodes_are_dealt_out_in_blocks) {
  EXPECT_EQ(nodes_of_hosts(2, 1), (std::vector<NodesHere>{{0, 2, {}}}));
  EXPECT_EQ(nodes_of_hosts(2, 2), (std::vector<NodesHere>{{0, 1, {}}, {1, 1, {}}}));
  EXPECT_EQ(nodes_of_hosts(5, 2), (std::vector<NodesHere>{{0, 3, {}}, {3, 2, {}}}));
}

TEST(Launchers, mpirun_starts_one_agent_on_each_host) {
  ClusterOptions options;
  options.launcher = Launcher::kMpi;
  options.program = "/opt/r2bench";
  auto command = launcher_command(options);
  EXPECT_TRUE(has(command, "ppr:1:node"));
  EXPECT_TRUE(has(command, kSecretVariable)) << "by its name: its value must not stand in a command line";
  EXPECT_FALSE(has(command, "--host")) << "those that mpirun has been given";
  EXPECT_EQ(command.back(), "mpi");
  options.hosts = {"a", "b"};
  command = launcher_command(options);
  EXPECT_TRUE(has(command, "a,b"));
}

TEST(Launchers, srun_starts_one_agent_on_each_host) {
  ClusterOptions options;
  options.launcher = Launcher::kSlurm;
  options.program = "/opt/r2bench";
  options.hosts = {"a", "b"};
  const auto command = launcher_command(options);
  EXPECT_TRUE(has(command, "--ntasks-per-node=1"));
  EXPECT_TRUE(has(command, "--nodelist=a,b"));
  EXPECT_EQ(command.back(), "slurm");
}

TEST(Launchers, srun_does_not_take_the_tasks_of_the_allocation) {
  const std::map<std::string, std::string> allocation = {{"SLURM_JOB_ID", "7"},
                                                         {"SLURM_NPROCS", "16"},
                                                         {"SLURM_NTASKS", "16"},
                                                         {"SLURM_NTASKS_PER_NODE", "8"},
                                                         {"SLURM_NTASKS_PER_SOCKET", "4"}};
  ClusterOptions options;
  options.launcher = Launcher::kSlurm;
  EXPECT_EQ(launcher_environment(options, allocation),
            (std::map<std::string, std::string>{{"SLURM_JOB_ID", "7"}}));
  options.launcher = Launcher::kEnv;
  EXPECT_EQ(launcher_environment(options, allocation), allocation);
}

TEST(Launchers, what_a_launcher_tells_an_agent_of_its_place_is_not_for_ranks) {
  const auto own = [](Launcher launcher, std::vector<std::string> variables) {
    std::map<std::string, std::string> environment;
    for (const std::string& variable : variables) environment[variable] = "1";
    return launchers_own(launcher, environment);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(
      own(Launcher::kEnv, {"RANK", "RANKS", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PATH"}),
      (Names{"MASTER_PORT", "RANK", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"}));
  EXPECT_EQ(
      own(Launcher::kMpi, {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "OMPI_MCA_btl", "RANK", "NCCL_DEBUG"}),
      (Names{"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"}));
  EXPECT_EQ(own(Launcher::kSlurm, {"SLURM_PROCID", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID", "PMI_RANK"}),
            (Names{"PMI_RANK", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID"}));
  EXPECT_EQ(own(Launcher::kLocal, {"RANK"}), Names{});
}

TEST(Launchers, a_process_knows_its_place) {
  {
    const Environment mpi({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
    EXPECT_EQ(launched_place(Launcher::kMpi).order, 1);
    EXPECT_EQ(launched_place(Launcher::kMpi).count, 3);
  }
  // torchrun with two processes on each of two hosts.
  const Environment torchrun(
      {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  EXPECT_EQ(launched_place(Launcher::kEnv).order, 1);
  EXPECT_EQ(launched_place(Launcher::kEnv).count, 2);
  EXPECT_FALSE(launched_place(Launcher::kEnv).first_of_host);
  EXPECT_THROW(launched_place(Launcher::kSlurm), FabricError);
}

std::string why_no_place(const std::vector<std::pair<std::string, std::string>>& variables) {
  const Environment environment(variables);
  try {
    launched_place(Launcher::kEnv);
  } catch (const FabricError& error) {
    return error.what();
  }
  return "";
}

TEST(Launchers, what_is_no_number_is_named) {
  EXPECT_NE(why_no_place({{"RANK", "0"}, {"WORLD_SIZE", "x"}}).find("WORLD_SIZE='x'"), std::string::npos);
  EXPECT_NE(why_no_place({{"RANK", "1 "}, {"WORLD_SIZE", "2"}}).find("RANK='1 '"), std::string::npos);
  EXPECT_NE(why_no_place({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).find("WORLD_SIZE='0'"), std::string::npos);
  EXPECT_NE(why_no_place({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("RANK='2'"), std::string::npos);
  EXPECT_NE(why_no_place({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "x"}}).find("LOCAL_RANK='x'"),
            std::string::npos);
  EXPECT_NE(why_no_place({{"RANK", "0"}}).find("WORLD_SIZE"), std::string::npos);
}

}  // namespace
}  // namespace r2bench
