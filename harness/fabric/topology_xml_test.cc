// SPDX-License-Identifier: Apache-2.0
// What is written is what hwloc, and the core's own reader, find in it.
#include "harness/fabric/topology_xml.h"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <map>

#include "r2ccl/topology/topology.h"

namespace r2bench {
namespace {

using r2ccl::topology::Distance;

Fabric shape(int sockets, int switches, int gpus, int nics, int ranks = 1) {
  Fabric fabric;
  fabric.nics_per_node = nics;
  fabric.ranks_per_node = ranks;
  fabric.topology = {"", sockets, switches, gpus, 50};
  return fabric;
}

class Loaded {
 public:
  explicit Loaded(const std::string& xml) {
    EXPECT_EQ(hwloc_topology_init(&topology), 0);
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    EXPECT_EQ(hwloc_topology_set_xmlbuffer(topology, xml.c_str(), int(xml.size()) + 1), 0);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
  }
  ~Loaded() { hwloc_topology_destroy(topology); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  hwloc_topology_t topology = nullptr;
};

class TopologyXml : public testing::TestWithParam<Fabric> {};

TEST_P(TopologyXml, holds_what_was_declared) {
  const Fabric& fabric = GetParam();
  const NodeTopology& declared = *fabric.topology;
  const Loaded loaded(topology_xml(fabric));
  EXPECT_EQ(hwloc_get_nbobjs_by_type(loaded.topology, HWLOC_OBJ_PACKAGE), declared.sockets);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(loaded.topology, HWLOC_OBJ_NUMANODE), declared.sockets);

  std::map<std::string, int> node_of_nic;
  for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(loaded.topology, os)) != nullptr;) {
    EXPECT_EQ(os->attr->osdev.type, HWLOC_OBJ_OSDEV_OPENFABRICS);
    EXPECT_EQ(os->parent->type, HWLOC_OBJ_PCI_DEVICE);
    EXPECT_EQ(os->parent->attr->pcidev.class_id, 0x0207);
    const hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(loaded.topology, os);
    EXPECT_EQ(hwloc_bitmap_weight(home->nodeset), 1);
    node_of_nic[os->name] = hwloc_bitmap_first(home->nodeset);
  }
  ASSERT_EQ(node_of_nic.size(), size_t(fabric.nics_per_node));
  for (int nic = 0; nic < fabric.nics_per_node; ++nic)
    EXPECT_EQ(node_of_nic.at("vhca" + std::to_string(nic)), socket_of_nic(fabric, nic));

  int gpus = 0;
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(loaded.topology, pci)) != nullptr;)
    gpus += pci->attr->pcidev.class_id == 0x0302;
  EXPECT_EQ(gpus, declared.gpus());
}

TEST_P(TopologyXml, has_the_distances_that_were_declared) {
  const Fabric& fabric = GetParam();
  const TopologyBusIds ids = topology_bus_ids(fabric);
  std::vector<std::string> all = ids.nics;
  all.insert(all.end(), ids.gpus.begin(), ids.gpus.end());
  auto sorted = all;
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end()) << "two devices have one address";

  const auto read = r2ccl::topology::Topology::from_xml(topology_xml(fabric), all);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto& topology = *const_cast<r2ccl::Result<r2ccl::topology::Topology>&>(read);
  const int nics = fabric.nics_per_node;
  for (int a = 0; a < nics; ++a) {
    EXPECT_EQ(topology.numa_node(a), socket_of_nic(fabric, a));
    for (int b = 0; b < int(all.size()); ++b) {
      if (a == b) continue;
      const bool gpu = b >= nics;
      const auto home = gpu ? switch_of_gpu(fabric, b - nics) : switch_of_nic(fabric, b);
      const int socket = gpu ? socket_of_gpu(fabric, b - nics) : socket_of_nic(fabric, b);
      const Distance wanted = home && home == switch_of_nic(fabric, a) ? Distance::kSameSwitch
                              : socket == socket_of_nic(fabric, a)     ? Distance::kSameSocket
                                                                       : Distance::kCross;
      EXPECT_EQ(topology.between(a, b), wanted) << "NIC " << a << " and device " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TopologyXml,
                         testing::Values(shape(2, 4, 4, 8, 8), shape(2, 0, 1, 2), shape(1, 0, 1, 1),
                                         shape(8, 8, 8, 16), shape(3, 2, 1, 7), shape(4, 1, 8, 2)));

}  // namespace
}  // namespace r2bench
