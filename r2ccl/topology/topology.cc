// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/topology/topology.h"

#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "r2ccl/topology/components.h"
#include "r2ccl/topology/pci_bridge.h"
#include "r2ccl/topology/pci_path.h"

namespace r2ccl::topology {
namespace {

namespace fs = std::filesystem;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

/// Packages, NUMA nodes and PCI devices only.
HwlocTopology prepare() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // A container may be confined to one NUMA node while its NICs hang on another one.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  leave_out_components(raw);
  return topology;
}

hwloc_obj_t find(hwloc_topology_t topology, const std::string& bus_id) {
  return bus_id.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(topology, bus_id.c_str());
}

/// The PCI device of a verbs device.
hwloc_obj_t find_device(hwloc_topology_t topology, const std::string& name) {
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device)) != nullptr;) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !device->name || name != device->name)
      continue;
    hwloc_obj_t above = device->parent;
    while (above && above->type != HWLOC_OBJ_PCI_DEVICE) above = above->parent;
    return above;
  }
  return nullptr;
}

bool load_xml(hwloc_topology_t topology, const std::string& xml) {
  return xml.size() < INT_MAX &&
         hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1) == 0 &&
         hwloc_topology_load(topology) == 0;
}

/// The NUMA node of a PCI device, -1 when it hangs on the whole machine or on several nodes.
int numa_node_of_device(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t locality = hwloc_get_non_io_ancestor_obj(topology, device);
  if (!locality || !locality->nodeset || hwloc_bitmap_weight(locality->nodeset) != 1) return -1;
  return hwloc_bitmap_first(locality->nodeset);
}

Distance distance(hwloc_topology_t topology, hwloc_obj_t a, hwloc_obj_t b) {
  if (!a || !b) return Distance::kUnknown;
  const auto& pa = a->attr->pcidev;
  const auto& pb = b->attr->pcidev;
  if (pa.domain == pb.domain && pa.bus == pb.bus && pa.dev == pb.dev) return Distance::kSameCard;
  for (hwloc_obj_t above_a = a->parent; above_a; above_a = above_a->parent) {
    for (hwloc_obj_t above_b = b->parent; above_b; above_b = above_b->parent) {
      if (above_a != above_b) continue;
      // The nearest object above both. A host bridge or an object of the CPU side is not a switch.
      if (is_pci_bridge(above_a)) return Distance::kSameSwitch;
      const hwloc_obj_t local_a = hwloc_get_non_io_ancestor_obj(topology, a);
      const hwloc_obj_t local_b = hwloc_get_non_io_ancestor_obj(topology, b);
      const hwloc_obj_t package_a = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, a);
      const hwloc_obj_t package_b = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, b);
      const int node_a = numa_node_of_device(topology, a);
      if (node_a >= 0 && node_a == numa_node_of_device(topology, b)) return Distance::kSameSocket;
      if (package_a && package_a == package_b) return Distance::kSameSocket;
      // Both hang on the whole machine: it has one socket, or the firmware does not tell.
      if (local_a == local_b && local_a == hwloc_get_root_obj(topology)) {
        return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE) <= 1 ? Distance::kSameSocket
                                                                          : Distance::kUnknown;
      }
      return Distance::kCross;
    }
  }
  return Distance::kUnknown;
}

}  // namespace

const char* name(Distance distance) {
  switch (distance) {
    case Distance::kSame:
      return "same";
    case Distance::kSameSwitch:
      return "same switch";
    case Distance::kSameCard:
      return "same card";
    case Distance::kSameSocket:
      return "same socket";
    case Distance::kCross:
      return "cross socket";
    case Distance::kUnknown:
      break;
  }
  return "unknown";
}

std::string pci_path_of(const std::string& nic_name, const std::string& sysfs) {
  std::error_code failed;
  const fs::path device = fs::canonical(fs::path(sysfs) / "class/infiniband" / nic_name / "device", failed);
  if (failed) return {};
  std::string path(trim_to_pci(device.native()));
  if (path.empty()) return {};
  std::string first_function = path;
  first_function.back() = '0';
  return fs::exists(first_function, failed) ? first_function : path;
}

bool is_interface_of(const std::string& interface, const std::string& nic_name, const std::string& sysfs) {
  std::error_code failed;
  return !interface.empty() &&
         fs::exists(fs::path(sysfs) / "class/infiniband" / nic_name / "device/net" / interface, failed);
}

int numa_node_of(const void* address) {
  int node = -1;
  const long rc = syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_NODE | MPOL_F_ADDR);
  return rc == 0 ? node : -1;
}

std::vector<int> order_by_distance(const std::vector<Distance>& distances, int nic) {
  const int count = static_cast<int>(distances.size());
  std::vector<int> order;
  for (int step = 1; step < count; ++step) order.push_back((nic + step) % count);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return distances[static_cast<size_t>(a)] < distances[static_cast<size_t>(b)];
  });
  return order;
}

struct Topology::State {
  std::vector<std::string> pci_paths;  // as NCCL wants them
  std::vector<std::string> bus_ids;
  std::vector<int> numa_nodes;
  std::vector<Distance> matrix;
  std::map<int, int> packages;  // of each NUMA node
  std::once_flag looked;

  void measure(hwloc_topology_t topology) {
    const size_t count = bus_ids.size();
    std::vector<hwloc_obj_t> devices(count, nullptr);
    if (topology) {
      std::transform(bus_ids.begin(), bus_ids.end(), devices.begin(),
                     [&](const std::string& id) { return find(topology, id); });
    }
    for (hwloc_obj_t node = nullptr;
         topology && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
      if (const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, node))
        packages[static_cast<int>(node->os_index)] = static_cast<int>(package->logical_index);
    for (size_t a = 0; a < count; ++a) {
      if (devices[a]) numa_nodes[a] = numa_node_of_device(topology, devices[a]);
      for (size_t b = 0; b < count; ++b) {
        matrix[a * count + b] = a == b ? Distance::kSame : distance(topology, devices[a], devices[b]);
      }
    }
  }

  void look_at_machine() {
    std::call_once(looked, [this] {
      HwlocTopology topology;
      if (std::any_of(bus_ids.begin(), bus_ids.end(), [](const std::string& id) { return !id.empty(); })) {
        topology = prepare();
        if (topology && hwloc_topology_load(topology.get()) != 0) topology.reset();
      }
      measure(topology.get());
    });
  }

  explicit State(std::vector<std::string> ids)
      : pci_paths(ids.size()),
        bus_ids(std::move(ids)),
        numa_nodes(bus_ids.size(), -1),
        matrix(bus_ids.size() * bus_ids.size(), Distance::kUnknown) {}
};

Result<Topology> Topology::from_file(const std::string& file, const std::vector<std::string>& nic_names,
                                     const std::string& sysfs) {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidConfig, "R2CC_TOPOLOGY=" + file + ": " + why};
  };
  std::ifstream in(file);
  std::ostringstream text;
  if (in) text << in.rdbuf();  // a folder opens, and then cannot be read
  const std::string xml = std::move(text).str();
  if (!in || xml.empty()) return refuse("cannot be read");
  const HwlocTopology topology = prepare();
  if (!topology) return Error{ErrorCode::kSystem, "hwloc_topology_init failed"};
  hwloc_topology_set_type_filter(topology.get(), HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (!load_xml(topology.get(), xml))
    return refuse("hwloc cannot read it; 'lstopo --of xml' writes such a file");
  std::vector<std::string> paths, ids(nic_names.size());
  for (size_t nic = 0; nic < nic_names.size(); ++nic) {
    paths.push_back(pci_path_of(nic_names[nic], sysfs));
    const hwloc_obj_t found = find_device(topology.get(), nic_names[nic]);
    if (!found) continue;
    char id[32];
    const auto& at = found->attr->pcidev;
    std::snprintf(id, sizeof id, "%04x:%02x:%02x.%01x", unsigned(at.domain), at.bus, at.dev, at.func);
    ids[nic] = id;
  }
  if (!nic_names.empty() &&
      std::all_of(ids.begin(), ids.end(), [](const std::string& id) { return id.empty(); }))
    return refuse("it has no OpenFabrics device " + nic_names.front() +
                  ", nor any other NIC of this process");
  auto state = std::make_unique<State>(std::move(ids));
  state->pci_paths = std::move(paths);
  std::call_once(state->looked, [&] { state->measure(topology.get()); });
  return Topology(std::move(state));
}

Topology::Topology(std::unique_ptr<State> state) : state_(std::move(state)) {}
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

Topology Topology::of_machine(const std::vector<std::string>& nic_names, const std::string& sysfs) {
  std::vector<std::string> paths;
  std::vector<std::string> ids;
  for (const std::string& nic : nic_names) {
    paths.push_back(pci_path_of(nic, sysfs));
    ids.emplace_back(last_component(paths.back()));
  }
  auto state = std::make_unique<State>(std::move(ids));
  state->pci_paths = std::move(paths);
  return Topology(std::move(state));
}

Result<Topology> Topology::from_xml(const std::string& xml, const std::vector<std::string>& bus_ids) {
  const HwlocTopology topology = prepare();
  if (!topology) return Error{ErrorCode::kSystem, "hwloc_topology_init failed"};
  if (!load_xml(topology.get(), xml))
    return Error{ErrorCode::kInvalidArgument, "hwloc cannot read this topology XML"};
  auto state = std::make_unique<State>(bus_ids);
  std::call_once(state->looked, [&] { state->measure(topology.get()); });
  return Topology(std::move(state));
}

int Topology::nics() const { return static_cast<int>(state_->bus_ids.size()); }

const std::string& Topology::pci_path(int nic) const {
  return state_->pci_paths.at(static_cast<size_t>(nic));
}

int Topology::numa_node(int nic) const {
  state_->look_at_machine();
  return state_->numa_nodes.at(static_cast<size_t>(nic));
}

Distance Topology::between(int a, int b) const {
  state_->look_at_machine();
  const size_t count = state_->bus_ids.size();
  return state_->matrix.at(static_cast<size_t>(a) * count + static_cast<size_t>(b));
}

Distance Topology::from_memory(int numa_node, int nic) const {
  const int home = this->numa_node(nic);
  if (home < 0 || numa_node < 0) return Distance::kUnknown;
  const auto here = state_->packages.find(home), there = state_->packages.find(numa_node);
  const bool same_package =
      here != state_->packages.end() && there != state_->packages.end() && here->second == there->second;
  return home == numa_node || same_package ? Distance::kSameSocket : Distance::kCross;
}

std::vector<int> Topology::backup_order(int nic) const {
  std::vector<Distance> distances;
  distances.reserve(state_->bus_ids.size());
  for (int other = 0; other < nics(); ++other) distances.push_back(between(nic, other));
  return order_by_distance(distances, nic);
}

}  // namespace r2ccl::topology
