// SPDX-License-Identifier: Apache-2.0
// What ports say of themselves, as real ones do.
#include "r2ccl/verbs/port.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace r2ccl::verbs {
namespace {

ibv_port_attr attributes(int speed, int width) {
  ibv_port_attr it{};
  it.active_speed = uint8_t(speed);
  it.active_width = uint8_t(width);
  return it;
}

TEST(Port, iwarp_and_ports_without_a_link_layer_carry_no_reliable_connections) {
  EXPECT_TRUE(carries_reliable_connections(IBV_TRANSPORT_IB, IBV_LINK_LAYER_INFINIBAND));
  EXPECT_TRUE(carries_reliable_connections(IBV_TRANSPORT_IB, IBV_LINK_LAYER_ETHERNET));
  EXPECT_FALSE(carries_reliable_connections(IBV_TRANSPORT_IWARP, IBV_LINK_LAYER_ETHERNET));
  EXPECT_FALSE(carries_reliable_connections(IBV_TRANSPORT_UNSPECIFIED, IBV_LINK_LAYER_UNSPECIFIED)) << "EFA";
  EXPECT_FALSE(carries_reliable_connections(IBV_TRANSPORT_IB, IBV_LINK_LAYER_UNSPECIFIED));
}

TEST(Port, speed_is_the_product_of_lanes_and_their_rate) {
  EXPECT_EQ(port_mbps(attributes(32, 2), ""), 100000) << "4X EDR";
  EXPECT_EQ(port_mbps(attributes(64, 2), ""), 200000) << "4X HDR";
  EXPECT_EQ(port_mbps(attributes(128, 2), ""), 400000) << "4X NDR";
  EXPECT_EQ(port_mbps(attributes(32, 1), ""), 25000) << "25G Ethernet";
}

TEST(Port, what_the_kernel_calls_ndr_may_be_faster) {
  EXPECT_TRUE(wants_rate(attributes(128, 2)));
  EXPECT_FALSE(wants_rate(attributes(64, 2))) << "nobody need read a file for it";
  EXPECT_EQ(port_mbps(attributes(128, 2), "800 Gb/sec (4X XDR)"), 800000);
  EXPECT_EQ(port_mbps(attributes(128, 2), "400 Gb/sec (4X NDR)"), 400000);
  EXPECT_EQ(port_mbps(attributes(64, 2), "800 Gb/sec (4X XDR)"), 200000) << "it is not asked";
  for (const char* nonsense : {"", "fast", "-1 Gb/sec", "1e9 Gb/sec", "nan Gb/sec", "800", "800 Mb/sec"})
    EXPECT_EQ(port_mbps(attributes(128, 2), nonsense), 400000) << nonsense;
}

TEST(Port, its_rate_is_read_from_sysfs) {
  char made[] = "/tmp/r2ccl_sysfs_XXXXXX";
  ASSERT_NE(mkdtemp(made), nullptr);
  const std::filesystem::path ports = std::filesystem::path(made) / "class/infiniband/mlx5_3/ports/1";
  std::filesystem::create_directories(ports);
  std::ofstream(ports / "rate") << "800 Gb/sec (4X XDR)\n";
  EXPECT_EQ(rate_in_sysfs("mlx5_3", 1, made), "800 Gb/sec (4X XDR)");
  EXPECT_EQ(rate_in_sysfs("mlx5_3", 2, made), "");
  EXPECT_EQ(rate_in_sysfs("mlx5_4", 1, made), "");
  std::filesystem::remove_all(made);
}

TEST(Port, nics_without_a_guid_of_their_own_are_told_apart_by_name) {
  const std::vector<uint64_t> taken{7};
  EXPECT_EQ(distinct_guid(8, "mlx5_1", taken), 8u);
  const uint64_t first = distinct_guid(0, "mlx5_1", taken), second = distinct_guid(0, "mlx5_2", taken);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  EXPECT_EQ(distinct_guid(0, "mlx5_1", {}), first) << "in every process of the node";
  EXPECT_NE(distinct_guid(7, "mlx5_1", taken), 7u);
  EXPECT_NE(distinct_guid(0, "mlx5_1", std::vector{first}), first);
}

PortAddress infiniband(uint16_t lid, uint16_t subnet, uint16_t flid = 0) {
  PortAddress it;
  it.link_layer = IBV_LINK_LAYER_INFINIBAND;
  it.lid = lid;
  it.gid.raw[0] = 0xfe;
  it.gid.raw[1] = 0x80;
  it.gid.raw[4] = uint8_t(flid >> 8);
  it.gid.raw[5] = uint8_t(flid);
  it.gid.raw[6] = uint8_t(subnet >> 8);
  it.gid.raw[7] = uint8_t(subnet);
  it.gid.raw[15] = uint8_t(lid);
  return it;
}

TEST(Port, within_a_subnet_the_lid_suffices) {
  const ibv_ah_attr to = address_vector({2, 0, false}, infiniband(3, 1), infiniband(4, 1), {});
  EXPECT_EQ(to.is_global, 0);
  EXPECT_EQ(to.dlid, 4);
  EXPECT_EQ(to.port_num, 2);
}

TEST(Port, a_port_that_wants_a_global_route_header_gets_one) {
  const ibv_ah_attr to = address_vector({1, 0, true}, infiniband(3, 1), infiniband(4, 1), {});
  EXPECT_EQ(to.is_global, 1);
  EXPECT_EQ(to.dlid, 4);
  EXPECT_EQ(to.grh.dgid.raw[15], 4);
  EXPECT_EQ(to.grh.hop_limit, 255);
}

TEST(Port, another_subnet_is_reached_through_its_router) {
  EXPECT_EQ(routable_lid(infiniband(4, 2, 0x123).gid), 0x123);
  const ibv_ah_attr to = address_vector({1, 1, false}, infiniband(3, 1), infiniband(4, 2, 0x123), {});
  EXPECT_EQ(to.is_global, 1);
  EXPECT_EQ(to.dlid, 0x123);
  EXPECT_EQ(to.grh.sgid_index, 1);
  EXPECT_EQ(address_vector({1, 0, false}, infiniband(3, 1), infiniband(4, 2), {}).dlid, 4) << "no FLID";
}

TEST(Port, over_ethernet_the_gid_is_the_address) {
  Config config;
  config.traffic_class = 106;
  config.service_level = 3;
  PortAddress local, remote;
  remote.gid.raw[15] = 9;
  const ibv_ah_attr to = address_vector({1, 3, false}, local, remote, config);
  EXPECT_EQ(to.is_global, 1);
  EXPECT_EQ(to.grh.dgid.raw[15], 9);
  EXPECT_EQ(to.grh.sgid_index, 3);
  EXPECT_EQ(to.grh.traffic_class, 106);
  EXPECT_EQ(to.sl, 3);
}

}  // namespace
}  // namespace r2ccl::verbs
