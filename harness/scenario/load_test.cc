// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/load.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kNicDown = R"(version: 1
name: nic_down
description: one NIC dies
seed: 42
fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 4, nic_rate: 1 Gbit/s, latency: 5 us, link: infiniband, ports_per_nic: 2, mtu: 2048}
workload: {engine: cpu, op: allreduce, dtype: float64, bytes: 16 MiB, iters: 200, verify: true, channels: 4}
modes: [baseline, {mode: migrate, label: noack, env: {R2CC_STRICT_ACK: 0}}]
env: {NCCL_IB_TIMEOUT: 14}
faults:
  - {at: {iter: 60}, target: node1/nic0, kind: port_down}
timeouts: {stall: 20 s, close: 30 s}
expect:
  all: {fault_witness: ">= 1"}
  baseline: {outcome: error}
  noack: {correctness: exact, retained_bw: ">= 0.95 * limit"}
)";

TEST(Load, reads_what_a_file_says) {
  const std::vector<Scenario> all = parse_scenarios("nic_down.yaml", kNicDown);
  ASSERT_EQ(all.size(), 1u);
  const Scenario& s = all[0];
  EXPECT_EQ(s.name, "nic_down");
  EXPECT_EQ(s.seed, 42u);
  EXPECT_EQ(s.fabric.nics_per_node, 4);
  EXPECT_EQ(s.fabric.ports, (VirtualPorts{LinkLayer::kInfiniBand, 2, 2048}));
  EXPECT_EQ(s.fabric.nic_rate_bits_per_s, 1'000'000'000u);
  EXPECT_EQ(s.fabric.latency, std::chrono::microseconds(5));
  EXPECT_EQ(s.workload.op, Operation::kAllReduce);
  EXPECT_EQ(s.workload.dtype, DataType::kFloat64);
  EXPECT_EQ(s.workload.bytes, 16u << 20);
  EXPECT_EQ(s.workload.channels, 4);
  ASSERT_EQ(s.modes.size(), 2u);
  EXPECT_EQ(s.modes[1].label, "noack");
  EXPECT_EQ(s.modes[1].kind, ModeKind::kMigrate);
  EXPECT_EQ(s.modes[1].env.at("R2CC_STRICT_ACK"), "0");
  EXPECT_EQ(s.env.at("NCCL_IB_TIMEOUT"), "14");
  ASSERT_EQ(s.faults.size(), 1u);
  EXPECT_EQ(s.faults[0].kind, &faultinject::fault_kind("port_down"));
  EXPECT_EQ(s.faults[0].line, 10);
  EXPECT_EQ(s.timeouts.stall, seconds(20));
  EXPECT_EQ(s.timeouts.close, seconds(30));
  EXPECT_EQ(s.timeouts.setup, seconds(60)) << "not given";
  ASSERT_EQ(s.expectations.size(), 4u);
  EXPECT_EQ(s.expectations[3].metric, "retained_bw");
  EXPECT_EQ(s.expectations[3].line, 15);
}

TEST(Load, defaults_stand_where_the_file_is_silent) {
  const Scenario s = parse_scenarios("folder/quiet.yaml", "version: 1\nmodes: [migrate]\n")[0];
  EXPECT_EQ(s.name, "quiet");
  EXPECT_EQ(s.fabric.nodes, 2);
  EXPECT_EQ(s.fabric.nic_rate_bits_per_s, 0u);
  EXPECT_EQ(s.workload.dtype, DataType::kFloat32);
  EXPECT_TRUE(s.workload.verify);
  EXPECT_EQ(s.workload.plugin, "r2ccl");
  EXPECT_EQ(s.repeats, 1);
}

TEST(Load, faults_are_armed_when_all_are_warm_unless_the_file_says_before) {
  EXPECT_FALSE(parse_scenarios("x.yaml", kNicDown).front().arm_at_start);
  EXPECT_TRUE(parse_scenarios("x.yaml", std::string(kNicDown) + "arm: start\n").front().arm_at_start);
  EXPECT_THROW(parse_scenarios("x.yaml", std::string(kNicDown) + "arm: soon\n"), ScenarioError);
}

TEST(Load, what_kind_of_device_the_virtual_hca_is_may_be_said) {
  const std::string text = std::string(kNicDown).replace(std::string(kNicDown).find("NCCL_IB_TIMEOUT: 14"),
                                                         19, "VHCA_DMABUF: 0, VHCA_DELAY_VISIBILITY: 20");
  const std::map<std::string, std::string> said{{"VHCA_DELAY_VISIBILITY", "20"}, {"VHCA_DMABUF", "0"}};
  EXPECT_EQ(parse_scenarios("nic_down.yaml", text).at(0).env, said);
}

TEST(Load, unlimited_is_a_rate) {
  EXPECT_EQ(parse_scenarios("x.yaml", "version: 1\nmodes: [migrate]\nfabric: {nic_rate: unlimited}\n")[0]
                .fabric.nic_rate_bits_per_s,
            0u);
}

TEST(Load, the_command_line_overrides) {
  LoadOptions options;
  options.seed = 7;
  options.repeats = 20;
  options.modes = {"noack", "migrate"};
  options.set = {{"workload.bytes", "4 MiB"}, {"env.NCCL_IB_TIMEOUT", "16"}};
  const Scenario s = parse_scenarios("nic_down.yaml", kNicDown, options)[0];
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.repeats, 20);
  ASSERT_EQ(s.modes.size(), 2u);
  EXPECT_EQ(s.modes[0].label, "noack");
  EXPECT_EQ(s.modes[1].label, "migrate");
  EXPECT_EQ(s.workload.bytes, 4u << 20);
  EXPECT_EQ(s.env.at("NCCL_IB_TIMEOUT"), "16");
  EXPECT_EQ(s.overrides.at("workload.bytes"), "4 MiB");
}

TEST(Load, expectations_of_a_mode_that_was_left_out_go_with_it) {
  LoadOptions options;
  options.modes = {"baseline"};
  const Scenario s = parse_scenarios("nic_down.yaml", kNicDown, options)[0];
  ASSERT_EQ(s.expectations.size(), 2u);
  EXPECT_EQ(s.expectations[0].mode, "all");
  EXPECT_EQ(s.expectations[1].mode, "baseline");
}

TEST(Load, a_matrix_gives_one_scenario_per_cell) {
  const std::vector<Scenario> all = parse_scenarios("m.yaml", R"(version: 1
modes: [migrate]
matrix:
  workload.op: [allreduce, sendrecv]
  workload.bytes: [1 MiB, 16 MiB, 64 MiB]
)");
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].name, "m-allreduce-1MiB");
  EXPECT_EQ(all[5].name, "m-sendrecv-64MiB");
  EXPECT_EQ(all[5].workload.op, Operation::kSendRecv);
  EXPECT_EQ(all[5].workload.bytes, 64u << 20);
  EXPECT_EQ(all[0].workload.op, Operation::kAllReduce);
  EXPECT_EQ(all[3].matrix.at("workload.op"), "sendrecv");
}

TEST(Load, a_key_that_is_set_does_not_vary) {
  const std::string text = R"(version: 1
modes: [migrate]
matrix:
  workload.op: [allreduce, sendrecv]
  workload.bytes: [1 MiB, 16 MiB, 64 MiB]
  seed: [1, 2]
)";
  LoadOptions options;
  options.set = {{"workload.bytes", "'4 MiB'"}};
  options.seed = 9;
  const std::vector<Scenario> all = parse_scenarios("m.yaml", text, options);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "m-sendrecv-4MiB-9");
  EXPECT_EQ(all[1].workload.bytes, 4u << 20);
  EXPECT_EQ(all[1].seed, 9u);
  EXPECT_EQ(all[1].matrix.at("workload.bytes"), "4 MiB");
  EXPECT_EQ(all[1].matrix.at("seed"), "9");
  EXPECT_EQ(all[1].overrides.at("workload.bytes"), "'4 MiB'");
}

// A gate compares cells of the same name, one of each with what the reference has otherwise.
TEST(Load, a_reference_has_the_cells_and_names_of_the_candidate) {
  const std::string text = R"(version: 1
name: m
modes: [migrate]
matrix: {workload.bytes: [1 MiB, 16 MiB], workload.op: [allreduce, sendrecv]}
)";
  LoadOptions candidate, reference;
  candidate.set = reference.set = {{"workload.op", "sendrecv"}};
  reference.reference = {{"workload.bytes", "4 MiB"}, {"workload.op", "allreduce"}};
  const std::vector<Scenario> ours = parse_scenarios("m.yaml", text, candidate),
                              theirs = parse_scenarios("m.yaml", text, reference);
  ASSERT_EQ(ours.size(), 2u);
  ASSERT_EQ(theirs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(theirs[i].name, ours[i].name);
    EXPECT_EQ(theirs[i].workload.bytes, 4u << 20);
    EXPECT_EQ(theirs[i].workload.op, Operation::kAllReduce);
  }
  EXPECT_EQ(ours[1].workload.bytes, 16u << 20);
  EXPECT_EQ(theirs[0].overrides.at("workload.bytes"), "4 MiB");
}

TEST(Load, a_matrix_may_vary_an_entry_of_the_list_of_faults) {
  const std::vector<Scenario> all = parse_scenarios("m.yaml", R"(version: 1
modes: [balance]
fabric: {nics_per_node: 4}
faults:
  - {at: {iter: 2}, target: node0/nic0, kind: noop}
  - {at: {iter: 3}, target: node1/nic0, kind: port_down}
matrix: {faults.1.target: [node1/nic3, "node1/nic[0-1]"]}
)");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].matrix.at("faults.1.target"), "node1/nic3");
  ASSERT_EQ(all[0].faults.size(), 2u);
  EXPECT_EQ(all[0].faults[0].target.text, "node0/nic0");
  EXPECT_EQ(all[0].faults[1].target.text, "node1/nic3");
  EXPECT_EQ(all[1].faults[1].target.text, "node1/nic[0-1]");
}

TEST(Load, a_change_at_one_place_is_not_seen_at_an_alias_of_it) {
  const std::string text = R"(version: 1
modes: [{mode: migrate, label: a, env: &e {X: 1}}, {mode: migrate, label: b, env: *e}]
fabric: {nics_per_node: 4}
faults:
  - &f {at: {iter: 2}, target: &t node1/nic0, kind: throttle, rate: 1 Mbit/s}
  - *f
  - {at: {iter: 3}, target: *t, kind: noop}
)";
  LoadOptions options;
  options.set = {{"faults.0.target", "node1/nic2"}, {"faults.1.at.iter", "7"}};
  const Scenario set = parse_scenarios("a.yaml", text, options)[0];
  ASSERT_EQ(set.faults.size(), 3u);
  EXPECT_EQ(set.faults[0].target.text, "node1/nic2");
  EXPECT_EQ(set.faults[0].trigger.value, 2u);
  EXPECT_EQ(set.faults[1].target.text, "node1/nic0");
  EXPECT_EQ(set.faults[1].trigger.value, 7u);
  EXPECT_EQ(set.faults[2].target.text, "node1/nic0");

  const std::vector<Scenario> cells = parse_scenarios(
      "a.yaml", text + "matrix: {faults.1.target: [node1/nic1, node1/nic3], workload.iters: [50]}\n");
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[1].faults[0].target.text, "node1/nic0");
  EXPECT_EQ(cells[1].faults[1].target.text, "node1/nic3");
  EXPECT_EQ(cells[1].workload.iters, 50);

  options.set = {{"faults.9.target", "node1/nic2"}};
  EXPECT_THROW(parse_scenarios("a.yaml", text, options), ScenarioError);
  options.set = {{"seed.x", "1"}};
  EXPECT_THROW(parse_scenarios("a.yaml", "seed: 3\n" + text, options), ScenarioError);
}

TEST(Load, faults_of_ranks_are_the_harnesss_own) {
  const Scenario s = parse_scenarios("slow.yaml", R"(version: 1
modes: [migrate]
faults:
  - {at: {iter: 20}, target: node1/rank0, kind: sigstop, for: 2 s}
  - {at: {time: 300 ms}, target: node0/rank0, kind: receiver_sleep, for: 500 ms, name: nap}
  - {at: {iter: 20}, target: node1/rank0, kind: sigstop, for: 1 s}
  - {at: {iter: 30}, target: node1/rank0, kind: kill}
)")[0];
  ASSERT_EQ(s.rank_faults.size(), 4u);
  EXPECT_TRUE(s.faults.empty());
  EXPECT_EQ(s.rank_faults[0].name, "sigstop node1/rank0");
  EXPECT_EQ(s.rank_faults[0].node, 1);
  EXPECT_EQ(s.rank_faults[0].at_iter, 20);
  EXPECT_EQ(s.rank_faults[0].duration, seconds(2));
  EXPECT_EQ(s.rank_faults[1].name, "nap");
  EXPECT_EQ(s.rank_faults[1].at_time, milliseconds(300));
  EXPECT_EQ(s.rank_faults[2].name, "sigstop node1/rank0 #2");
}

TEST(Load, faults_of_one_name_are_numbered_past_names_that_are_taken) {
  const Scenario s = parse_scenarios("x.yaml", R"(version: 1
modes: [migrate]
faults:
  - {name: a, at: {iter: 3}, target: node1/nic0, kind: qp_error}
  - {name: "a #2", at: {iter: 3}, target: node1/nic0, kind: qp_error}
  - {name: a, at: {iter: 3}, target: node1/nic0, kind: qp_error}
  - {name: "a #2", at: {iter: 3}, target: node1/nic0, kind: qp_error}
  - {name: a, at: {iter: 20}, target: node1/rank0, kind: kill}
)")[0];
  std::vector<std::string> names{s.rank_faults[0].name};
  for (const faultinject::FaultSpec& fault : s.faults) names.push_back(fault.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a #4", "a", "a #2", "a #3", "a #2 #2"}));
}

TEST(Load, pairs_compare_modes) {
  const Scenario s = parse_scenarios("p.yaml", R"(version: 1
modes: [baseline, migrate]
pairs: 20
expect:
  migrate: {overhead_pct: "<= 3 %"}
)")[0];
  EXPECT_EQ(s.pairs, 20);
}

TEST(Load, the_first_baseline_is_the_reference_of_pairs_wherever_it_stands) {
  const Scenario s = parse_scenarios("p.yaml", R"(version: 1
modes: [migrate, baseline, {mode: baseline, label: other}]
pairs: 20
expect:
  migrate: {overhead_pct: "<= 3 %"}
  other: {overhead_pct: "<= 3 %"}
)")[0];
  EXPECT_EQ(s.expectations.size(), 2u);
}

}  // namespace
}  // namespace r2bench
