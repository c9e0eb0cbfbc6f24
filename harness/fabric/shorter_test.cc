// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/shorter.h"

#include <gtest/gtest.h>

#include "harness/scenario/load.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;

Scenario with(const std::string& faults, int iters = 200) {
  return parse_scenarios("t.yaml", R"(
version: 1
name: t
fabric: {kind: vhca, nodes: 2, nics_per_node: 4, nic_rate: 16 Mbit/s}
workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 16 MiB, warmup: 3, iters: )" +
                                       std::to_string(iters) + "}\nmodes: [migrate]\nfaults:\n" + faults)
      .front();
}
const std::string kDown = "  - {at: {iter: 60}, target: node1/nic0, kind: port_down}\n";

TEST(Shorter, expects_twice_the_time_from_the_fault_on) {
  // 16 MiB over 64 Mbit/s: 2.097152 s.
  EXPECT_NEAR(expected_time(with(kDown)).count(), 2.097152 * (60 + 2 * 140), 1e-6);
}

TEST(Shorter, is_the_least_divisor_that_fits) {
  EXPECT_EQ(shorter_divisor(with(kDown), 714s), 1);
  EXPECT_EQ(shorter_divisor(with(kDown), 713s), 2);
  EXPECT_EQ(shorter_divisor(with(kDown), 180s), 4);
}

TEST(Shorter, leaves_ten_iterations_to_each_part_of_the_story) {
  EXPECT_EQ(shorter_divisor(with(kDown), 1s), 6);
  EXPECT_EQ(shorter_divisor(with(kDown + "  - {at: {iter: 100}, target: node0/nic1, kind: port_down}\n"), 1s),
            4);
  EXPECT_EQ(shorter_divisor(with(kDown, 75), 1s), 1);
}

TEST(Shorter, keeps_off_scenarios_with_times_of_their_own) {
  for (const char* fault : {"{at: {iter: 60}, target: node1/nic0, kind: port_down, for: 200 ms}",
                            "{at: {time: 1 s}, target: node1/nic0, kind: port_down}",
                            "{at: {iter: 60}, phase: {up_to: 5 ms}, target: node1/nic0, kind: port_down}",
                            "{at: {iter: 60}, target: node1/nic0, kind: port_flap}",
                            "{at: {iter: 60}, target: node1/rank0, kind: sigstop, for: 2 s}"})
    EXPECT_EQ(shorter_divisor(with("  - " + std::string(fault) + "\n"), 1s), 1) << fault;
}

TEST(Shorter, moves_what_happens_at_an_iteration_and_nothing_else) {
  const Scenario plain = with(kDown + "  - {at: {wr: 60}, target: node1/nic1, kind: port_down}\n");
  const Scenario less = shorter(plain, 4);
  EXPECT_EQ(less.workload.iters, 50);
  EXPECT_EQ(less.workload.warmup, 3);
  EXPECT_EQ(less.workload.bytes, plain.workload.bytes);
  EXPECT_EQ(less.faults[0].trigger.value, 15u);
  EXPECT_EQ(less.faults[1].trigger.count, 60u);
  EXPECT_EQ(less.overrides.at("shorter"), "4");
  EXPECT_EQ(less.fabric.nic_rate_bits_per_s, plain.fabric.nic_rate_bits_per_s);
  EXPECT_EQ(shorter(plain, 1).overrides.count("shorter"), 0u);
  EXPECT_THROW(shorter(plain, 0), std::invalid_argument);
  EXPECT_THROW(shorter(plain, 1000), std::invalid_argument);
}

}  // namespace
}  // namespace r2bench
