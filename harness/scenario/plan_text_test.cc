// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/plan_text.h"

#include <gtest/gtest.h>

#include "harness/scenario/load.h"

namespace r2bench {
namespace {

TEST(PlanText, says_all_that_the_file_says_of_each_fault) {
  const Scenario scenario = parse_scenarios("x.yaml", R"(version: 1
fabric: {nodes: 2, nics_per_node: 4}
workload: {iters: 200}
modes: [baseline, {mode: migrate, label: tuned, env: {R2CC_B: 3}}]
env: {R2CC_A: 1, R2CC_B: 2}
faults:
  - {at: {iter: 60}, target: node1/nic0, kind: throttle, rate: 100 Mbit/s, for: 2 s, repeat: 3, every: 4 s}
  - {on: migration_started, target: node1/nic1, kind: port_down, events: false}
  - {at: {iter: 9}, target: node1/rank0, kind: sigstop, for: 50 ms}
  - {at: {time: 1 s}, target: node0/rank0, kind: kill}
)")[0];
  EXPECT_EQ(plan_in_words(scenario),
            (std::vector<std::string>{
                "during iteration 60: throttle node1/nic0 (rate: 100 Mbit/s), for 2 s, 3 times, every 4 s",
                "at the event migration_started: port_down node1/nic1 (events: false)",
                "when iteration 9 starts: sigstop node1/rank0, for 50 ms",
                "after 1 s: kill node0/rank0",
            }));
  using Env = std::map<std::string, std::string>;
  EXPECT_EQ(stated_environment(scenario, scenario.modes[0]), (Env{{"R2CC_A", "1"}, {"R2CC_B", "2"}}));
  EXPECT_EQ(stated_environment(scenario, scenario.modes[1]), (Env{{"R2CC_A", "1"}, {"R2CC_B", "3"}}));
}

}  // namespace
}  // namespace r2bench
