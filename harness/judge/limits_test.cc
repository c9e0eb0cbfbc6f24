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

// Live migration moves channels one by one, each to the rail with the fewest.

TEST_F(Limit, channels_of_a_lost_nic_go_to_several_others) {
  const auto lost = {fault("port_down")};
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5) << "one channel on each NIC";
  scenario.workload.channels = 8;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 2.0 / 3) << "3, 3 and 2 where there were 2";
  EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, lost), 0);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 0.75);
  scenario.workload.channels = 32;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 8.0 / 11) << "11, 11 and 10 where there were 8";
  scenario.workload.channels = 6;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1) << "2, 2 and 2 where there were 2, 2, 1 and 1";
  scenario.workload.channels = 1;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 1);
}

TEST_F(Limit, channels_that_lose_their_nics_in_turn_are_spread_anew) {
  scenario.workload.channels = 12;
  scenario.faults = {fault("port_down"), fault("port_down", "node1/nic1"), fault("port_down", "node1/nic2")};
  mode.kind = ModeKind::kMigrate;
  for (size_t i = 0; i < 3; ++i) strike(10 + 10 * double(i), i);
  const ModeResult evaluated = result();
  EXPECT_DOUBLE_EQ(evaluated.faults[0].limit, 3.0 / 4);
  EXPECT_DOUBLE_EQ(evaluated.faults[1].limit, 3.0 / 6);
  EXPECT_DOUBLE_EQ(evaluated.faults[2].limit, 3.0 / 12) << "all but one NIC lost";
}

TEST_F(Limit, both_ports_of_a_card_share_the_others) {
  scenario.fabric.nics_per_node = 8;
  const auto lost = {fault("port_down", "node1/nic[0-1]")};
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5);
  scenario.workload.channels = 16;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 2.0 / 3) << "four channels over six NICs";
}

TEST_F(Limit, a_rail_needs_both_of_its_nics) {
  scenario.workload.channels = 8;
  const auto lost = {fault("port_down", "node1/nic0"), fault("port_down", "node0/nic1")};
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5) << "all eight on the rails of nic2 and nic3";
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, lost), 0.75);
  scenario.fabric.nodes = 4;
  EXPECT_DOUBLE_EQ(
      of(ModeKind::kMigrate, {fault("port_down", "node1/nic0"), fault("port_down", "node3/nic1")}), 2.0 / 3)
      << "they have no rail in common";
  scenario.fabric.nodes = 2;
  scenario.fabric.nics_per_node = 2;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, lost), 0.5) << "nic0 to nic1, for lack of a rail that is whole";
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down", "node1/nic*")}), 0);
}

TEST_F(Limit, channels_stay_on_a_slow_nic_and_others_avoid_it) {
  scenario.workload.channels = 8;
  const auto slow = fault("throttle", "node1/nic1", kGbit / 2);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {slow}), 0.5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {slow, fault("port_down")}), 0.5) << "2 at half the rate, 3, 3";
}

TEST_F(Limit, a_queue_pair_takes_its_own_channel_away_and_no_other) {
  scenario.workload.channels = 16;
  auto broken = fault("qp_error");
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {broken}), 4.0 / 5);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {broken, broken}), 4.0 / 5) << "a second one goes elsewhere";
  EXPECT_DOUBLE_EQ(of(ModeKind::kBaseline, {broken}), 0);
  EXPECT_DOUBLE_EQ(of(ModeKind::kBalance, {broken}), 0.75);
  broken.target.qp.kind = faultinject::QpSelector::Kind::kAll;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {broken}), 4.0 / 6);
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {broken, fault("port_down", "node1/nic1")}), 4.0 / 7)
      << "eight over nic2, nic3 and nic0, where its own count until they are back";
  scenario.fabric.nics_per_node = 1;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {broken}), 1) << "on the same NIC again";
}

TEST_F(Limit, every_peer_has_channels_of_its_own) {
  scenario.fabric.nodes = 4;
  scenario.workload.op = Operation::kAllToAll;
  EXPECT_DOUBLE_EQ(of(ModeKind::kMigrate, {fault("port_down")}), 3.0 / 4) << "those to three peers, one each";
}

// What NCCL or a command of the user's opens is known once it has been used.
class LimitOfStreams : public Limit {
 protected:
  LimitOfStreams() {
    scenario.workload.engine = Engine::kNccl;
    job.record.streams.clear();
    operation(0, 10);
    operation(10, 2000, false);
  }
  /// So many from node 0 to node 1 with their home on that NIC.
  void streams(uint16_t nic, int count, uint32_t bytes = 1000) {
    for (int i = 0; i < count; ++i) {
      const auto stream = uint32_t(job.record.streams.size());
      job.record.streams.push_back({1, stream, 1, 0});
      job.record.deliveries.push_back({at(5), bytes, stream, nic, nic, stream});
      job.record.deliveries.push_back({at(15), bytes, stream, uint16_t(3 - nic), uint16_t(3 - nic), stream});
    }
  }
  double lost() {
    scenario.faults = {fault("port_down")};
    mode.kind = ModeKind::kMigrate;
    job.firings.clear();
    strike(12);
    return result().faults.back().limit;
  }
};

TEST_F(LimitOfStreams, nothing_seen_is_one_channel_on_each_nic) { EXPECT_DOUBLE_EQ(lost(), 0.5); }

TEST_F(LimitOfStreams, are_those_that_were_used_before_the_fault) {
  for (uint16_t nic : {0, 1, 2, 3}) streams(nic, 2);
  EXPECT_DOUBLE_EQ(lost(), 2.0 / 3);
  streams(0, 1);
  EXPECT_DOUBLE_EQ(lost(), 3.0 / 3) << "three on nic0, so two anywhere had room";
}

TEST_F(LimitOfStreams, count_by_what_they_carry) {
  streams(0, 2, 1000);
  streams(1, 1, 2000);
  streams(2, 1, 2000);
  streams(3, 1, 2000);
  streams(0, 3, 0);
  EXPECT_DOUBLE_EQ(lost(), 2.0 / 3);
}

}  // namespace
}  // namespace r2bench
