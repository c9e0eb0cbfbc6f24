// SPDX-License-Identifier: Apache-2.0
// Distances and stand-ins on a two-socket machine, and what happens with devices that no machine knows.
#include "r2ccl/topology/topology.h"
#include "r2ccl/topology/nic_order.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "r2ccl/topology/pci_path.h"

namespace r2ccl::topology {
namespace {

// Two packages with one NUMA node each.
//   package 0: root port 00:01.0 with a switch: NICs 03:00.0, and 04:00.0 + 04:00.1 (one card, two ports);
//              root port 00:02.0: NIC 06:00.0
//   package 1: root port 80:01.0: NIC 81:00.0
constexpr char kTwoSockets[] = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3"
         complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"
           gp_index="3" local_memory="1073741824"/>
   <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
   <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-06]">
    <object type="Bridge" gp_index="11" bridge_type="1-1" depth="1" bridge_pci="0000:[01-04]" pci_busid="0000:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 01" pci_link_speed="15.7">
     <object type="Bridge" gp_index="12" bridge_type="1-1" depth="2" bridge_pci="0000:[02-04]" pci_busid="0000:01:00.0" pci_type="0604 [10b5:8747] [0000:0000] ca" pci_link_speed="15.7">
      <object type="Bridge" gp_index="13" bridge_type="1-1" depth="3" bridge_pci="0000:[03-03]" pci_busid="0000:02:08.0" pci_type="0604 [10b5:8747] [0000:0000] ca" pci_link_speed="15.7">
       <object type="PCIDev" gp_index="14" pci_busid="0000:03:00.0" pci_type="0207 [15b3:1017] [15b3:0001] 00" pci_link_speed="15.7"/>
      </object>
      <object type="Bridge" gp_index="15" bridge_type="1-1" depth="3" bridge_pci="0000:[04-04]" pci_busid="0000:02:10.0" pci_type="0604 [10b5:8747] [0000:0000] ca" pci_link_speed="15.7">
       <object type="PCIDev" gp_index="16" pci_busid="0000:04:00.0" pci_type="0207 [15b3:1017] [15b3:0001] 00" pci_link_speed="15.7"/>
       <object type="PCIDev" gp_index="17" pci_busid="0000:04:00.1" pci_type="0207 [15b3:1017] [15b3:0001] 00" pci_link_speed="15.7"/>
      </object>
     </object>
    </object>
    <object type="Bridge" gp_index="18" bridge_type="1-1" depth="1" bridge_pci="0000:[06-06]" pci_busid="0000:00:02.0" pci_type="0604 [8086:0001] [0000:0000] 01" pci_link_speed="15.7">
     <object type="PCIDev" gp_index="19" pci_busid="0000:06:00.0" pci_type="0200 [15b3:1017] [15b3:0001] 00" pci_link_speed="15.7"/>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="5">
   <object type="NUMANode" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2"
           gp_index="6" local_memory="1073741824"/>
   <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2" gp_index="7"/>
   <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[80-81]">
    <object type="Bridge" gp_index="21" bridge_type="1-1" depth="1" bridge_pci="0000:[81-81]" pci_busid="0000:80:01.0" pci_type="0604 [8086:0001] [0000:0000] 01" pci_link_speed="15.7">
     <object type="PCIDev" gp_index="22" pci_busid="0000:81:00.0" pci_type="0207 [15b3:1017] [15b3:0001] 00" pci_link_speed="15.7"/>
    </object>
   </object>
  </object>
 </object>
</topology>
)xml";

enum Nic { kRemote, kOnSwitch, kPortA, kPortB, kOwnRootPort, kStranger };

Topology two_sockets() {
  Result<Topology> topology = Topology::from_xml(
      kTwoSockets, {"0000:81:00.0", "0000:03:00.0", "0000:04:00.0", "0000:04:00.1", "0000:06:00.0", ""});
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return std::move(topology.value());
}

TEST(TopologyTest, tells_switch_card_socket_and_cross_apart) {
  const Topology t = two_sockets();
  EXPECT_EQ(t.between(kOnSwitch, kOnSwitch), Distance::kSame);
  EXPECT_EQ(t.between(kOnSwitch, kPortA), Distance::kSameSwitch);
  EXPECT_EQ(t.between(kPortA, kPortB), Distance::kSameCard);
  EXPECT_EQ(t.between(kOnSwitch, kOwnRootPort), Distance::kSameSocket);
  EXPECT_EQ(t.between(kOnSwitch, kRemote), Distance::kCross);
  EXPECT_EQ(t.between(kRemote, kOnSwitch), Distance::kCross);
  EXPECT_EQ(t.between(kStranger, kRemote), Distance::kUnknown);
}

TEST(TopologyTest, knows_the_numa_node_of_a_nic_and_its_distance_from_memory) {
  const Topology t = two_sockets();
  EXPECT_EQ(t.numa_node(kPortB), 0);
  EXPECT_EQ(t.numa_node(kRemote), 1);
  EXPECT_EQ(t.numa_node(kStranger), -1);
  EXPECT_EQ(t.from_memory(0, kPortB), Distance::kSameSocket);
  EXPECT_EQ(t.from_memory(1, kPortB), Distance::kCross);
  EXPECT_EQ(t.from_memory(-1, kPortB), Distance::kUnknown);
  EXPECT_EQ(t.from_memory(0, kStranger), Distance::kUnknown);
}

TEST(TopologyTest, a_file_takes_the_place_of_the_machine) {
  char folder[] = "/tmp/r2ccl-topology-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/machine.xml";
  std::string xml = kTwoSockets;
  const auto name_it = [&](const std::string& bus_id, const std::string& name) {
    const size_t at = xml.find("pci_busid=\"" + bus_id + "\"");
    const size_t end = xml.find("/>", at);
    ASSERT_NE(end, std::string::npos);
    xml.replace(end, 2,
                "><object type=\"OSDev\" gp_index=\"9" + bus_id.substr(5, 2) + "\" name=\"" + name +
                    "\" osdev_type=\"3\"/></object>");
  };
  name_it("0000:03:00.0", "mlx5_0");
  name_it("0000:81:00.0", "mlx5_1");
  std::ofstream(file) << xml;
  {
    auto t = Topology::from_file(file, {"mlx5_1", "mlx5_0", "other"}, folder);
    ASSERT_TRUE(t.ok()) << t.error().message;
    EXPECT_EQ(t->numa_node(0), 1);
    EXPECT_EQ(t->numa_node(1), 0);
    EXPECT_EQ(t->numa_node(2), -1);
    EXPECT_EQ(t->between(0, 1), Distance::kCross);
    EXPECT_EQ(t->pci_path(0), "");
  }
  const auto none = Topology::from_file(file, {"mlx5_7"}, folder);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find(file), std::string::npos) << none.error().message;
  EXPECT_NE(none.error().message.find("mlx5_7"), std::string::npos) << none.error().message;
  const auto missing = Topology::from_file(file + ".not", {"mlx5_0"}, folder);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidConfig);
  const auto folder_itself = Topology::from_file(folder, {"mlx5_0"}, folder);
  ASSERT_FALSE(folder_itself.ok());
  EXPECT_NE(folder_itself.error().message.find(folder), std::string::npos) << folder_itself.error().message;
  name_it("0000:06:00.0", "nameless");
  xml.replace(xml.find(" name=\"nameless\""), std::string(" name=\"nameless\"").size(), "");
  std::ofstream(file) << xml;
  EXPECT_TRUE(Topology::from_file(file, {"mlx5_0"}, folder).ok()) << "a device without a name is nobody's";
  std::ofstream(file) << "<topology><object type=";
  EXPECT_FALSE(Topology::from_file(file, {"mlx5_0"}, folder).ok());
  std::filesystem::remove_all(folder);
}

TEST(TopologyTest, stand_ins_come_from_near_to_far) {
  const Topology t = two_sockets();
  EXPECT_EQ(t.backup_order(kPortA), (std::vector<int>{kOnSwitch, kPortB, kOwnRootPort, kRemote, kStranger}));
  EXPECT_EQ(t.backup_order(kRemote), (std::vector<int>{kOnSwitch, kPortA, kPortB, kOwnRootPort, kStranger}));
}

TEST(TopologyTest, devices_without_a_pci_path_take_the_next_nic_in_turn) {
  const Topology t = Topology::of_machine({"no_such_a", "no_such_b", "no_such_c", "no_such_d"});
  EXPECT_EQ(t.pci_path(0), "");
  EXPECT_EQ(t.numa_node(0), -1);
  EXPECT_EQ(t.backup_order(0), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(t.backup_order(2), (std::vector<int>{3, 0, 1}));
}

TEST(TopologyTest, one_nic_has_no_stand_in) {
  EXPECT_TRUE(Topology::of_machine({"no_such_a"}).backup_order(0).empty());
}

TEST(TopologyTest, equals_are_spread_so_that_no_two_nics_pick_the_same_stand_in) {
  const std::vector<Distance> equal(4, Distance::kSameSocket);
  std::vector<int> first;
  for (int nic = 0; nic < 4; ++nic) first.push_back(order_by_distance(equal, nic).front());
  EXPECT_EQ(first, (std::vector<int>{1, 2, 3, 0}));
}

TEST(TopologyTest, refuses_xml_that_is_none) {
  const Result<Topology> topology = Topology::from_xml("<not a topology>", {""});
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.error().code, ErrorCode::kInvalidArgument);
}

TEST(TopologyTest, loads_the_machine_for_a_nic_with_a_pci_path_that_hwloc_does_not_know) {
  char made[] = "/tmp/r2ccl_sysfs_XXXXXX";
  ASSERT_NE(mkdtemp(made), nullptr);
  namespace fs = std::filesystem;
  const fs::path root(made);
  for (const char* function : {"ffff:fe:1f.0", "ffff:fe:1f.1"}) {
    fs::create_directories(root / "devices/pciffff:fe" / function);
  }
  for (const char* nic : {"fake0", "fake1"}) fs::create_directories(root / "class/infiniband" / nic);
  fs::create_directory_symlink(root / "devices/pciffff:fe/ffff:fe:1f.0",
                               root / "class/infiniband/fake0/device");
  fs::create_directory_symlink(root / "devices/pciffff:fe/ffff:fe:1f.1",
                               root / "class/infiniband/fake1/device");

  const Topology t = Topology::of_machine({"fake0", "fake1"}, root);
  const std::string canonical = fs::canonical(root / "devices/pciffff:fe/ffff:fe:1f.0");
  EXPECT_EQ(t.pci_path(0), canonical);
  EXPECT_EQ(t.pci_path(1), canonical) << "NCCL counts the functions of a card as one PCI device";
  EXPECT_EQ(t.between(0, 1), Distance::kUnknown);
  EXPECT_EQ(t.backup_order(0), std::vector<int>{1});

  fs::create_directories(root / "devices/pciffff:fe/ffff:fe:1f.1/net/ib1");
  EXPECT_TRUE(is_interface_of("ib1", "fake1", root));
  EXPECT_FALSE(is_interface_of("ib1", "fake0", root)) << "of another function";
  EXPECT_FALSE(is_interface_of("ib0", "fake1", root));
  EXPECT_FALSE(is_interface_of("", "fake1", root));
  fs::remove_all(root);
}

TEST(NicOrder, is_that_of_pci_addresses_and_nics_without_one_come_last) {
  char made[] = "/tmp/r2ccl_sysfs_XXXXXX";
  ASSERT_NE(mkdtemp(made), nullptr);
  namespace fs = std::filesystem;
  const fs::path root(made);
  const auto add = [&](const char* nic, const char* address) {
    const fs::path device = root / "devices/pci0000:00" / address;
    fs::create_directories(device);
    fs::create_directories(root / "class/infiniband" / nic);
    fs::create_directory_symlink(device, root / "class/infiniband" / nic / "device");
  };
  add("mlx5_0", "0001:01:00.0");
  add("mlx5_1", "0000:c1:00.1");
  add("mlx5_2", "0000:c1:00.0");
  add("mlx5_3", "0000:0f:00.0");
  fs::create_directories(root / "class/infiniband/rxe0");
  const std::vector<std::string> names{"rxe0", "mlx5_0", "mlx5_1", "none", "mlx5_2", "mlx5_3"};
  EXPECT_EQ(order_by_pci(names, root), (std::vector<size_t>{5, 4, 2, 1, 0, 3}));
  EXPECT_TRUE(order_by_pci({}, root).empty());
  fs::remove_all(root);
}

TEST(NicOrder, the_fastest_are_kept_and_stay_in_order) {
  const std::vector<int> speeds{400000, 100000, 100000, 400000, 400000, 200000};
  EXPECT_EQ(fastest(speeds, 4), (std::vector<size_t>{0, 3, 4, 5}));
  EXPECT_EQ(fastest(speeds, 5), (std::vector<size_t>{0, 1, 3, 4, 5})) << "of equals the first";
  EXPECT_EQ(fastest(speeds, 8), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
}

TEST(TopologyTest, finds_the_numa_node_of_touched_memory_or_says_unknown) {
  std::vector<char> memory(1 << 16, 1);
  EXPECT_GE(numa_node_of(memory.data()), -1);
  EXPECT_EQ(numa_node_of(nullptr), -1);
}

TEST(PciPathTest, finds_the_pci_device_in_a_path) {
  EXPECT_TRUE(is_bus_id("0000:3b:00.1"));
  EXPECT_TRUE(is_bus_id("10000:e1:00.0"));
  EXPECT_FALSE(is_bus_id("pci0000:00"));
  EXPECT_FALSE(is_bus_id("0000:3b:00"));
  EXPECT_FALSE(is_bus_id("virtio1"));
  EXPECT_EQ(trim_to_pci("/sys/devices/pci0000:00/0000:00:03.0/virtio1"),
            "/sys/devices/pci0000:00/0000:00:03.0");
  EXPECT_EQ(trim_to_pci("/sys/devices/virtual/net/lo"), "");
}

}  // namespace
}  // namespace r2ccl::topology
