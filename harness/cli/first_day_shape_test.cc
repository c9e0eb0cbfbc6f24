// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/first_day_shape.h"

#include <gtest/gtest.h>

#include "harness/cli/first_day_steps.h"
#include "harness/scenario/load.h"

namespace r2bench {
namespace {

using Fit = std::optional<NodesAndNics>;

TEST(FirstDayShape, balance_takes_the_ports_that_there_are) {
  const NodesAndNics gray_throttle{2, 8}, least{2, 2};
  for (int ports = 2; ports <= 8; ++ports)
    EXPECT_EQ(fitting(gray_throttle, least, 2, ports), Fit({2, ports})) << ports;
  EXPECT_EQ(fitting(gray_throttle, least, 2, 12), Fit({2, 8}));
  EXPECT_EQ(fitting(gray_throttle, least, 2, 1), std::nullopt);
}

TEST(FirstDayShape, two_nodes_of_one_host_share_its_ports) {
  EXPECT_EQ(fitting({2, 4}, {2, 2}, 1, 4), Fit({2, 2}));
  EXPECT_EQ(fitting({2, 4}, {2, 2}, 1, 7), Fit({2, 3}));
  EXPECT_EQ(fitting({2, 4}, {2, 2}, 1, 3), std::nullopt) << "one NIC a node has no other way";
  EXPECT_EQ(fitting({2, 2}, {2, 1}, 1, 2), Fit({2, 1})) << "no_fault needs none";
}

TEST(FirstDayShape, four_nodes_on_two_hosts_share_their_ports_or_become_fewer) {
  const NodesAndNics allreduce{4, 4}, least{3, 2};
  EXPECT_EQ(fitting(allreduce, least, 2, 8), Fit({4, 4}));
  EXPECT_EQ(fitting(allreduce, least, 2, 4), Fit({4, 2}));
  EXPECT_EQ(fitting(allreduce, least, 2, 2), std::nullopt) << "three nodes want two on one of the hosts";
  EXPECT_EQ(fitting(allreduce, least, 3, 2), Fit({3, 2}));
  EXPECT_EQ(fitting(allreduce, least, 4, 2), Fit({4, 2}));
}

TEST(FirstDayShape, each_host_has_a_node) { EXPECT_EQ(fitting({2, 4}, {2, 2}, 3, 4), Fit({3, 4})); }

TEST(FirstDayShape, says_what_lacks_and_what_it_sets) {
  EXPECT_EQ(why_not_fitting({3, 2}, 2, 2),
            "it needs 3 nodes with 2 NICs each; 2 hosts with 2 active ports each cannot give them");
  EXPECT_EQ(why_not_fitting({2, 1}, 1, 1),
            "it needs 2 nodes with 1 NIC each; 1 host with 1 active port cannot give them");
  EXPECT_EQ(set_options({4, 4}, {4, 4}), "");
  EXPECT_EQ(set_options({2, 8}, {2, 4}), "--set fabric.nics_per_node=4");
  EXPECT_EQ(set_options({4, 4}, {3, 2}), "--set fabric.nodes=3 --set fabric.nics_per_node=2");
}

TEST(FirstDayShape, every_step_that_runs_a_scenario_says_what_it_needs_and_loads_with_it) {
  size_t scenarios = 0;
  for (const FirstDayStep& step : first_day_steps()) {
    EXPECT_EQ(!step.scenario.empty(), step.command.find("$LAUNCH") != std::string::npos) << step.name;
    if (step.scenario.empty()) continue;
    ++scenarios;
    EXPECT_NE(step.command.find(" run " + step.scenario + " "), std::string::npos) << step.name;
    const LoadOptions least{{},
                            {},
                            {},
                            {{"fabric.nodes", std::to_string(step.least.nodes)},
                             {"fabric.nics_per_node", std::to_string(step.least.nics)}}};
    const std::string path = std::string(R2BENCH_SOURCE_DIR) + "/scenarios/" + step.scenario + ".yaml";
    for (const Scenario& cell : load_scenarios(path, least)) {
      EXPECT_EQ(cell.fabric.nodes, step.least.nodes) << step.name;
      EXPECT_EQ(cell.fabric.nics_per_node, step.least.nics) << step.name;
    }
  }
  EXPECT_EQ(scenarios, 16u);
}

}  // namespace
}  // namespace r2bench
