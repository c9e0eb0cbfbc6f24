// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/topology_view.h"

#include <hwloc.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <ostream>
#include <stdexcept>

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/cli/resources.h"
#include "harness/fabric/topology_xml.h"
#include "harness/report/table.h"
#include "harness/run/runner.h"
#include "harness/scenario/load.h"
#include "r2ccl/topology/components.h"
#include "r2ccl/topology/pci_bridge.h"
#include "r2ccl/topology/topology.h"

namespace r2bench {
namespace {

using r2ccl::topology::Distance;
using r2ccl::topology::is_pci_bridge;

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<hwloc_topology, Destroy>;

Hwloc prepare() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::runtime_error("hwloc_topology_init failed");
  Hwloc topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  r2ccl::topology::leave_out_components(raw);
  return topology;
}

struct Device {
  enum class Kind { kNic, kGpu, kOther };
  Kind kind = Kind::kOther;
  std::string name;  ///< vhca0, gpu1, or the address of what has no name
  std::string bus_id;
  hwloc_obj_t object = nullptr;
  hwloc_obj_t root_port = nullptr;  ///< the outermost PCI bridge above it
  hwloc_obj_t switch_port =
      nullptr;                   ///< the bridge below that: a switch; null: it hangs on the root port itself
  hwloc_obj_t socket = nullptr;  ///< package, or the machine when it belongs to none
};

std::string bus_id_of(hwloc_obj_t object) {
  const auto& pci = object->attr->pcidev;
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", unsigned(pci.domain), unsigned(pci.bus),
                unsigned(pci.dev), unsigned(pci.func));
  return text;
}

/// PCI base classes: 0x02 network, 0x03 display, 0x12 accelerators. What a server has for its console is no
/// GPU.
Device::Kind kind_of(hwloc_obj_t object, const std::string& verbs_name) {
  const unsigned type = object->attr->pcidev.class_id, vendor = object->attr->pcidev.vendor_id;
  if (!verbs_name.empty() || type == 0x0207) return Device::Kind::kNic;
  const bool gpu_maker = vendor == 0x10de || vendor == 0x1002;
  if (type == 0x0302 || type >> 8 == 0x12 || (type >> 8 == 0x03 && gpu_maker)) return Device::Kind::kGpu;
  return Device::Kind::kOther;
}

std::vector<Device> find_devices(hwloc_topology_t topology) {
  std::vector<Device> found;
  int gpus = 0;
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(topology, pci)) != nullptr;) {
    Device device;
    std::string other_name;
    for (hwloc_obj_t child = pci->io_first_child; child; child = child->next_sibling) {
      if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name) continue;
      if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) device.name = child->name;
      if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) other_name = child->name;
    }
    device.kind = kind_of(pci, device.name);
    device.bus_id = bus_id_of(pci);
    device.object = pci;
    if (device.kind == Device::Kind::kGpu) device.name = "gpu" + std::to_string(gpus++);
    if (device.kind == Device::Kind::kOther && pci->attr->pcidev.class_id >> 8 == 0x02)
      device.name = other_name.empty() ? "network card" : other_name;
    if (device.name.empty() && device.kind == Device::Kind::kNic) device.name = device.bus_id;
    if (device.name.empty()) continue;  // disks and the like
    for (hwloc_obj_t above = pci->parent; above && is_pci_bridge(above); above = above->parent) {
      device.switch_port = device.root_port;
      device.root_port = above;
    }
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pci);
    device.socket = package ? package : hwloc_get_root_obj(topology);
    found.push_back(device);
  }
  return found;
}

std::string memory_text(hwloc_obj_t node) {
  const uint64_t bytes = node->attr->numanode.local_memory;
  if (bytes == 0) return "";
  return ", " + (bytes >= 1ull << 40 ? short_number(double(bytes) / double(1ull << 40)) + " TiB"
                                     : short_number(double(bytes) / double(1ull << 30)) + " GiB");
}

/// A tree, line by line.
struct Branch {
  std::string text;
  std::vector<Branch> below;
};

void print_branches(const std::vector<Branch>& branches, const std::string& lead, std::ostream& out) {
  for (size_t i = 0; i < branches.size(); ++i) {
    const bool last = i + 1 == branches.size();
    out << lead << (last ? "└─ " : "├─ ") << branches[i].text << "\n";
    print_branches(branches[i].below, lead + (last ? "   " : "│  "), out);
  }
}

Branch leaf(const Device& device, const TopologySource& source) {
  std::string text;
  switch (device.kind) {
    case Device::Kind::kNic:
      text = "NIC " + device.name;
      break;
    case Device::Kind::kGpu:
      text = "GPU " + device.name;
      break;
    case Device::Kind::kOther:
      text = device.name + ", no RDMA";
      break;
  }
  if (device.bus_id != device.name) text += "  " + device.bus_id;
  if (const auto speed = source.speed.find(device.name); speed != source.speed.end())
    text += "  " + speed->second;
  const double link = double(device.object->attr->pcidev.linkspeed);  // GB/s
  if (link > 0) text += "  PCIe " + short_number(8 * link) + " Gbit/s";
  return {text, {}};
}

Branch socket_branch(hwloc_topology_t topology, hwloc_obj_t socket, const std::vector<Device>& devices,
                     const TopologySource& source) {
  Branch branch{
      socket->type == HWLOC_OBJ_PACKAGE ? "socket " + std::to_string(socket->os_index) : "on no socket", {}};
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    if (socket->type == HWLOC_OBJ_PACKAGE && hwloc_bitmap_intersects(node->cpuset, socket->cpuset))
      branch.below.push_back({"NUMA node " + std::to_string(node->os_index) + memory_text(node), {}});
  std::vector<hwloc_obj_t> drawn;
  for (const Device& device : devices) {
    if (device.socket != socket) continue;
    if (!device.switch_port) {
      branch.below.push_back(leaf(device, source));
      continue;
    }
    if (std::find(drawn.begin(), drawn.end(), device.switch_port) != drawn.end()) continue;
    drawn.push_back(device.switch_port);
    Branch below{"PCIe switch  " + bus_id_of(device.switch_port), {}};
    for (const Device& other : devices)
      if (other.switch_port == device.switch_port) below.below.push_back(leaf(other, source));
    branch.below.push_back(below);
  }
  return branch;
}

/// "cross ×2"
std::string cell(Distance distance, const TopologySource& source) {
  switch (distance) {
    case Distance::kSame:
    case Distance::kSameCard:
      return "card ×1";
    case Distance::kSameSwitch:
      return "switch ×1";
    case Distance::kSameSocket:
      return "socket ×1";
    case Distance::kCross:
      return source.cross_socket ? "cross ×" + short_number(1 / *source.cross_socket) : "cross";
    case Distance::kUnknown:
      break;
  }
  return "?";
}

}  // namespace

TopologySource topology_of_machine() {
  const Hwloc topology = prepare();
  if (hwloc_topology_load(topology.get()) != 0) throw std::runtime_error("hwloc cannot look at this machine");
  char* buffer = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(topology.get(), &buffer, &length, 0) != 0)
    throw std::runtime_error("hwloc cannot write this machine's topology");
  TopologySource source{"This machine", std::string(buffer), std::nullopt, {}};
  hwloc_free_xmlbuffer(topology.get(), buffer);
  if (const char* text = std::getenv("R2CC_CROSS_SOCKET")) {
    char* end = nullptr;
    const long percent = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || percent < 0 || percent > 100)
      throw UsageError("R2CC_CROSS_SOCKET is '" + std::string(text) +
                       "', but must be percent, from 0 to 100");
    if (percent > 0) source.cross_socket = double(percent) / 100;
  }
  for (const Device& device : find_devices(topology.get())) {
    std::string rate;
    if (std::getline(std::ifstream("/sys/class/infiniband/" + device.name + "/ports/1/rate"), rate))
      source.speed[device.name] = rate;
  }
  return source;
}

TopologySource topology_of_file(const std::string& path) {
  errno = 0;
  return {path, read_file(path), std::nullopt, {}};
}

TopologySource topology_of_scenario(const std::string& path) {
  const Scenario scenario = load_scenarios(path).front();
  const Fabric& fabric = scenario.fabric;
  if (!fabric.topology)
    throw UsageError(
        path + ": the scenario declares no topology; write for example 'topology: dgx-h100' under 'fabric'");
  TopologySource source{"Each node of " + scenario.name + ": " + in_words(*fabric.topology),
                        topology_xml(fabric),
                        fabric.topology->cross_percent / 100.0,
                        {}};
  if (fabric.nic_rate_bits_per_s > 0)
    for (int nic = 0; nic < fabric.nics_per_node; ++nic)
      source.speed["vhca" + std::to_string(nic)] = faultinject::format_rate(fabric.nic_rate_bits_per_s);
  return source;
}

namespace {

std::vector<Branch> branches_of(hwloc_topology_t topology, const std::vector<Device>& devices,
                                const TopologySource& source) {
  std::vector<Branch> sockets;
  for (hwloc_obj_t socket = nullptr;
       (socket = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, socket)) != nullptr;)
    sockets.push_back(socket_branch(topology, socket, devices, source));
  const hwloc_obj_t machine = hwloc_get_root_obj(topology);
  if (std::any_of(devices.begin(), devices.end(), [&](const Device& d) { return d.socket == machine; }))
    sockets.push_back(socket_branch(topology, machine, devices, source));
  return sockets;
}

/// From each NUMA node and GPU to each NIC.
void print_distances(hwloc_topology_t topology, const r2ccl::topology::Topology& distances,
                     const std::vector<Device>& nics, const std::vector<Device>& gpus,
                     const TopologySource& source, std::ostream& out) {
  out << "\nFrom memory or a GPU to a NIC: below the same PCIe switch, on the same socket, or across "
         "sockets; "
         "and the cost of a byte\n";
  std::vector<Table::Column> titles = {{"", "", Table::Align::kLeft}};
  for (const Device& nic : nics) titles.push_back({nic.name, "", Table::Align::kLeft});
  Table table(titles);
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    std::vector<std::string> row = {"NUMA node " + std::to_string(node->os_index)};
    for (size_t n = 0; n < nics.size(); ++n)
      row.push_back(cell(distances.from_memory(int(node->os_index), int(n)), source));
    table.add(std::move(row));
  }
  for (size_t g = 0; g < gpus.size(); ++g) {
    std::vector<std::string> row = {gpus[g].name};
    for (size_t n = 0; n < nics.size(); ++n)
      row.push_back(cell(distances.between(int(nics.size() + g), int(n)), source));
    table.add(std::move(row));
  }
  for (const std::string& line : table.header("  "))
    if (!line.empty()) out << line << "\n";
  for (const std::string& line : table.rows("  ")) out << line << "\n";
  if (!source.cross_socket)
    out << "  The cost of crossing sockets is unknown; R2CC_CROSS_SOCKET sets the percentage of its rate "
           "that a "
           "NIC then carries\n";
}

void print_backups(const r2ccl::topology::Topology& distances, const std::vector<Device>& nics,
                   size_t columns, std::ostream& out) {
  out << "\nStandby NICs of each NIC, best first\n";
  for (size_t n = 0; n < nics.size(); ++n) {
    std::string text, last;
    for (const int other : distances.backup_order(int(n))) {
      if (size_t(other) >= nics.size()) continue;  // a GPU
      const std::string how = name(distances.between(int(n), other));
      text += (how == last ? " " : (text.empty() ? "" : "; ") + how + ": ") + nics[size_t(other)].name;
      last = how;
    }
    const std::string lead = "  " + nics[n].name + "  ";
    out << lead << wrap(text.empty() ? "nobody" : text, columns - width(lead), width(lead)) << "\n";
  }
}

}  // namespace

size_t draw_topology(const TopologySource& source, size_t columns, std::ostream& out) {
  const Hwloc topology = prepare();
  const int xml_bytes = source.xml.size() < size_t(INT_MAX) ? int(source.xml.size()) + 1 : 0;
  if (hwloc_topology_set_xmlbuffer(topology.get(), source.xml.c_str(), xml_bytes) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    throw UsageError(source.title + ": hwloc cannot read this; it must be what `lstopo --of xml` writes");
  const std::vector<Device> devices = find_devices(topology.get());
  out << source.title << "\n";
  print_branches(branches_of(topology.get(), devices, source), "", out);

  std::vector<Device> nics, gpus;
  for (const Device& device : devices) {
    if (device.kind == Device::Kind::kNic) nics.push_back(device);
    if (device.kind == Device::Kind::kGpu) gpus.push_back(device);
  }
  if (nics.empty()) return 0;
  std::vector<std::string> ids;
  for (const auto* list : {&nics, &gpus})
    for (const Device& device : *list) ids.push_back(device.bus_id);
  auto distances = r2ccl::topology::Topology::from_xml(source.xml, ids);
  if (!distances.ok()) throw UsageError(source.title + ": " + distances.error().message);
  print_distances(topology.get(), distances.value(), nics, gpus, source, out);
  print_backups(distances.value(), nics, columns, out);
  return nics.size();
}

}  // namespace r2bench
