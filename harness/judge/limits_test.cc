// SPDX-License-Identifier: Apache-2.0
// What the NICs that are left can carry, of four with one channel each.
#include "harness/judge/testing/evaluate_fixture.h"

namespace r2bench {
namespace {

class Limit : public EvaluateTest {
 protected:
  Limit() { scenario.fabric.nics_per_node = 4; }
  double of(ModeKind kind, std::vector<faultinject::FaultSpec> faults) {
    mode.kind = kind;
    scenario.faults = std::move(faults);
    job.firings.clear();
    for (size_t i = 0; i < scenario.faults.size(); ++i) strike(10 + double(i), i);
    return result().faults.back().limit;
  }
};

TEST_F(Limit, of_far_memory_is_what_a_linear_program_gives) {
  scenario.fabric.nics_per_node = 8;
  scenario.fabric.ranks_per_node = 2;
  scenario.fabric.topology = NodeTopology{"", 2, 4, 4, 50};
  scenario.workload.groups = Groups::kLocalRank;
  const auto lost = {fault("port_down", "node1/nic[0-2]")};
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1.0 / 3);
  scenario.fabric.topology->cross_percent = 100;
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 5.0 / 8);
  scenario.fabric.ranks_per_node = 1;  // four channels on near NICs: the far ones are idle
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 1);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1);
  scenario.workload.channels = 8;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5);
}

TEST_F(Limit, a_lost_nic_or_queue_pair_costs_a_nic_in_each_mode) {
  for (const char* kind : {"port_down", "blackhole", "qp_error", "ack_lost"}) {
    EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {fault(kind)}), 0);
    EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault(kind)}), 0.5) << "one backup carries two";
    EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {fault(kind)}), 0.75);
    EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {fault(kind)}), 0.75);
  }
}

TEST_F(Limit, a_slow_nic_slows_its_own_channels_or_all_a_little) {
  const auto throttle = fault("throttle", "node1/nic0", kGbit / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {throttle}), 0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {throttle}), 3.25 / 4);
  EXPECT_DOUBLE_EQ(of(ModeKind::kAllReduce, {throttle}), 3.25 / 4);
}

TEST_F(Limit, what_takes_no_bandwidth_leaves_it_whole) {
  for (ModeKind kind : {ModeKind::kBaseline, ModeKind::kMigrate, ModeKind::kBalance}) {
    EXPECT_DOUBLE_EQ(of(kind, {fault("noop")}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault("delay")}), 1);
    EXPECT_DOUBLE_EQ(of(kind, {fault("throttle", "node1/nic0", 2 * kGbit)}), 1) << "wider than it";
  }
  scenario.fabric.nic_rate_bits_per_s = 0;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("throttle", "node1/nic0", kGbit)}), 1);
}

TEST_F(Limit, faults_of_one_time_add_up_on_a_node_but_not_across_nodes) {
  const auto down = [](const char* target) { return fault("port_down", target); };
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node0/nic1")}), 0.75);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), down("node1/nic1")}), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {down("node1/nic0"), down("node1/nic1"), down("node1/nic2")}),
                   0.25);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic[0-2]")}), 0.25);
  const auto throttle = fault("throttle", "node1/nic0", kGbit / 2);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {down("node1/nic0"), throttle}), 0.75) << "one NIC, at its worst";
}

TEST_F(Limit, only_what_acts_at_that_moment_counts) {
  scenario.faults = {fault("port_down"), fault("port_down", "node1/nic1")};
  mode.kind = ModeKind::kBalance;
  strike(10).healed_ns = at(20);
  strike(20, 1);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 0.75) << "the second is still to come";
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 0.75) << "the first is over";
}

TEST_F(Limit, a_nic_without_channels_is_not_missed) {
  scenario.workload.channels = 2;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down", "node1/nic3")}), 1);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down")}), 1) << "nic2 and nic3 were idle";
}

// --- faults ------------------------------------------------------------------------------------------------

}  // namespace
}  // namespace r2bench
