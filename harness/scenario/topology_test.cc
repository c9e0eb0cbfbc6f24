// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/topology.h"

#include <gtest/gtest.h>

#include "harness/scenario/load.h"

namespace r2bench {
namespace {

Scenario load(const std::string& fabric, const std::string& workload = "{}") {
  return parse_scenarios("t.yaml", "version: 1\nmodes: [migrate]\nfabric: {nic_rate: 1 Gbit/s, " + fabric +
                                       "}\nworkload: " + workload + "\n")[0];
}

TEST(Topology, a_known_machine_has_its_own_number_of_nics_unless_told) {
  const Fabric dgx = load("topology: dgx-h100").fabric;
  EXPECT_EQ(dgx.nics_per_node, 8);
  EXPECT_EQ(*dgx.topology, (NodeTopology{"dgx-h100", 2, 4, 4, 50}));
  EXPECT_EQ(load("topology: dgx-h100, nics_per_node: 4").fabric.nics_per_node, 4);
  EXPECT_EQ(load("topology: {preset: r7525, cross_socket: 70 %}").fabric.topology->cross_percent, 70);
  EXPECT_EQ(load("topology: r7525").fabric.nics_per_node, 2);
}

TEST(Topology, a_map_says_the_rest_itself) {
  const Fabric fabric =
      load("nics_per_node: 6, topology: {sockets: 2, switches_per_socket: 3, cross_socket: 25%}").fabric;
  EXPECT_EQ(*fabric.topology, (NodeTopology{"", 2, 3, 3, 25}));
  EXPECT_EQ(fabric.nics_per_node, 6);
  EXPECT_FALSE(load("nodes: 2").fabric.topology);
}

TEST(Topology, devices_and_ranks_are_dealt_in_blocks) {
  const Fabric dgx = load("topology: dgx-h100, ranks_per_node: 2").fabric;
  EXPECT_EQ(socket_of_nic(dgx, 3), 0);
  EXPECT_EQ(socket_of_nic(dgx, 4), 1);
  EXPECT_EQ(switch_of_nic(dgx, 5), 5);
  EXPECT_EQ(switch_of_gpu(dgx, 5), 5);
  EXPECT_EQ(socket_of_rank(dgx, 0), 0);
  EXPECT_EQ(socket_of_rank(dgx, 1), 1);
  EXPECT_EQ(gpu_of_rank(dgx, 1), 4);
  EXPECT_EQ(nics_from_near(dgx, 1), (std::vector<int>{4, 5, 6, 7, 0, 1, 2, 3}));

  const Fabric full = load("topology: dgx-h100, ranks_per_node: 8").fabric;
  EXPECT_EQ(gpu_of_rank(full, 5), 5);
  EXPECT_EQ(nics_from_near(full, 5), (std::vector<int>{5, 6, 7, 4, 0, 1, 2, 3}));

  const Fabric r7525 = load("topology: r7525, nics_per_node: 4, ranks_per_node: 4").fabric;
  EXPECT_EQ(switch_of_nic(r7525, 0), std::nullopt);
  EXPECT_EQ(gpu_of_rank(r7525, 3), 1);
  EXPECT_EQ(nics_from_near(r7525, 1), (std::vector<int>{1, 0, 2, 3}));
}

TEST(Topology, without_one_nothing_is_far) {
  const Fabric flat = load("nics_per_node: 4, ranks_per_node: 2").fabric;
  EXPECT_EQ(socket_of_nic(flat, 3), socket_of_rank(flat, 1));
  EXPECT_EQ(nics_from_near(flat, 1), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Topology, a_rank_has_a_channel_per_near_nic) {
  EXPECT_EQ(channels_of(load("topology: dgx-h100"), 0), 4);
  EXPECT_EQ(channels_of(load("topology: dgx-h100", "{channels: 8}"), 0), 8);
  EXPECT_EQ(channels_of(load("nics_per_node: 4"), 0), 4);
  // Three NICs: two on socket 0. Ranks that talk to each other have equally many channels.
  const std::string uneven = "ranks_per_node: 2, nics_per_node: 3, topology: r7525";
  EXPECT_EQ(channels_of(load(uneven), 0), 1);
  EXPECT_EQ(channels_of(load(uneven, "{groups: local_rank}"), 0), 2);
  EXPECT_EQ(channels_of(load(uneven, "{groups: local_rank}"), 1), 1);
  EXPECT_EQ(channels_of(load("ranks_per_node: 2, nics_per_node: 1, topology: r7525"), 1), 1)
      << "none is near";
}

TEST(Communicator, holds_all_ranks_or_those_of_one_place) {
  const std::string fabric = "nodes: 3, ranks_per_node: 2";
  EXPECT_EQ(communicator_of(load(fabric), 3), (Communicator{6, 3, 0, 1}));
  const Communicator odd = communicator_of(load(fabric, "{groups: local_rank}"), 3);
  EXPECT_EQ(odd, (Communicator{3, 1, 1, 2}));
  EXPECT_EQ(odd.rank_at(2), 5);
  EXPECT_EQ(odd.rank_at(3), 1);
  EXPECT_EQ(odd.rank_at(-1), 5);
}

}  // namespace
}  // namespace r2bench
