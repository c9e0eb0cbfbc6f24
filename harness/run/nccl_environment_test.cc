// SPDX-License-Identifier: Apache-2.0
// What ranks of NCCL find in their environment.
#include "harness/run/nccl_environment.h"

#include <gtest/gtest.h>

#include "harness/scenario/load.h"

namespace r2bench {
namespace {

std::map<std::string, std::string> variables_of(const std::string& mode, int nics = 2) {
  const Scenario scenario = parse_scenarios("two_by_two.yaml", R"(version: 1
name: two_by_two
description: Two nodes of two ranks each.
fabric: {nodes: 2, ranks_per_node: 2, nics_per_node: )" + std::to_string(nics) +
                                                                   R"(}
workload: {engine: nccl, bytes: 4 MiB, iters: 256}
modes: [)" + mode + "]\n")[0];
  std::map<std::string, std::string> environment;
  add_nccl_variables(environment, scenario, scenario.modes.at(0), "/plugin.so", "node0", "7");
  return environment;
}

// Or the transports that are compared would not carry the same: one the traffic between nodes, another that
// between GPUs of a node, too.
TEST(NcclEnvironment, leaves_the_ways_inside_a_node_to_every_transport) {
  for (const char* mode :
       {"{mode: baseline, transport: ib}", "{mode: baseline, transport: ib_failover}", "migrate"}) {
    const auto environment = variables_of(mode);
    for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL"})
      EXPECT_FALSE(environment.contains(name)) << mode << " sets " << name;
    EXPECT_EQ(environment.at("NCCL_HOSTID"), "node0-7") << mode;
  }
}

// NCCL_NET would go before the name that each communicator gives.
TEST(NcclEnvironment, leaves_the_network_of_a_comparison_to_each_communicator) {
  const auto plugin = variables_of("{mode: migrate, transport: plugin_beside_ib}"),
             control = variables_of("{mode: baseline, transport: ib_beside_ib}");
  for (const auto& environment : {plugin, control}) {
    EXPECT_FALSE(environment.contains("NCCL_NET"));
    EXPECT_FALSE(environment.contains("NCCL_NET_FORCE_MERGE"));
    EXPECT_EQ(environment.at("NCCL_IB_MERGE_NICS"), "0");
    EXPECT_EQ(environment.at("NCCL_IB_GID_INDEX"), "1");
  }
  EXPECT_EQ(plugin.at("NCCL_NET_PLUGIN"), "/plugin.so");
  EXPECT_EQ(control.at("NCCL_NET_PLUGIN"), "none");
}

TEST(NcclEnvironment, gives_each_transport_the_same_nics) {
  const auto ib = variables_of("{mode: baseline, transport: ib}"), plugin = variables_of("migrate");
  EXPECT_EQ(ib.at("NCCL_NET"), "IB");
  EXPECT_EQ(ib.at("NCCL_NET_PLUGIN"), "none");
  EXPECT_EQ(ib.at("NCCL_NET_FORCE_MERGE"), "vhca0,vhca1");
  EXPECT_FALSE(ib.contains("NCCL_IB_RESILIENCY_PORT_FAILOVER"));
  EXPECT_EQ(plugin.at("NCCL_NET"), "R2CCL");
  EXPECT_EQ(plugin.at("NCCL_NET_PLUGIN"), "/plugin.so");
  EXPECT_EQ(variables_of("{mode: baseline, transport: ib_failover}").at("NCCL_IB_RESILIENCY_PORT_FAILOVER"),
            "1");
}

TEST(NcclEnvironment, merges_no_more_than_four_nics_into_one) {
  const auto merged = [](int nics) {
    return variables_of("{mode: baseline, transport: ib_failover}", nics).at("NCCL_NET_FORCE_MERGE");
  };
  EXPECT_EQ(merged(1), "vhca0");
  EXPECT_EQ(merged(4), "vhca0,vhca1,vhca2,vhca3");
  EXPECT_EQ(merged(5), "vhca0,vhca1;vhca2,vhca3,vhca4");
  EXPECT_EQ(merged(8), "vhca0,vhca1,vhca2,vhca3;vhca4,vhca5,vhca6,vhca7");
}

}  // namespace
}  // namespace r2bench
