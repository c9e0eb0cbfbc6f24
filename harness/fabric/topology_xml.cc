// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/topology_xml.h"

#include <cstdio>
#include <functional>
#include <sstream>

namespace r2bench {
namespace {

constexpr int kBuses = 256;  // of a PCI domain; each socket gets an equal share of them
const char* const kRootPort = "0604 [8086:352a] [0000:0000] 04";
const char* const kSwitchPort = "0604 [1000:c030] [0000:0000] b0";
const char* const kNic = "0207 [15b3:1021] [15b3:0001] 00";
const char* const kGpu = "0302 [10de:2330] [10de:0001] a1";
constexpr unsigned long long kMemoryBytes = 1ull << 40;

std::string bus_id(int bus, int device) {
  char text[24];
  std::snprintf(text, sizeof text, "0000:%02x:%02x.0", unsigned(bus) & 0xff, unsigned(device) & 0xff);
  return text;
}

std::string bus_range(int first, int last) {
  char text[24];
  std::snprintf(text, sizeof text, "0000:[%02x-%02x]", unsigned(first) & 0xff, unsigned(last) & 0xff);
  return text;
}

std::string bit_set(unsigned bits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", bits);
  return text;
}

/// A GPU or a NIC of one socket.
struct Device {
  bool is_nic = false;
  int number = 0;
};

class Writer {
 public:
  Writer(const Fabric& fabric, TopologyBusIds& ids)
      : fabric_(fabric), topology_(*fabric.topology), ids_(ids) {
    ids_.nics.resize(size_t(fabric.nics_per_node));
    ids_.gpus.resize(size_t(topology_.gpus()));
  }

  std::string write() {
    text_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
             "<topology version=\"2.0\">\n";
    const std::string all = bit_set((1u << topology_.sockets) - 1);
    open("type=\"Machine\" os_index=\"0\"" + sets(all) + " allowed_cpuset=\"" + all +
         "\" allowed_nodeset=\"" + all + '"');
    for (int socket = 0; socket < topology_.sockets; ++socket) write_socket(socket);
    close();
    text_ << "</topology>\n";
    return text_.str();
  }

 private:
  static std::string sets(const std::string& bits) {
    std::string text;
    for (const char* name : {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"})
      text += std::string(" ") + name + "=\"" + bits + '"';
    return text;
  }
  void open(const std::string& attributes, bool closed = false) {
    text_ << std::string(depth_, ' ') << "<object " << attributes << " gp_index=\"" << ++last_index_ << '"'
          << (closed ? "/>\n" : ">\n");
    if (!closed) ++depth_;
  }
  void close() { text_ << std::string(--depth_, ' ') << "</object>\n"; }
  void open_bridge(int depth, int first_bus, int last_bus, const std::string& id, const char* type) {
    open("type=\"Bridge\" bridge_type=\"" + std::string(depth == 0 ? "0-1" : "1-1") + "\" depth=\"" +
         std::to_string(depth) + "\" bridge_pci=\"" + bus_range(first_bus, last_bus) + '"' +
         (depth == 0 ? "" : " pci_busid=\"" + id + "\" pci_type=\"" + type + '"'));
  }

  void write_socket(int socket) {
    const std::string bits = bit_set(1u << socket), index = " os_index=\"" + std::to_string(socket) + '"';
    open("type=\"Package\"" + index + sets(bits));
    open("type=\"NUMANode\"" + index + sets(bits) + " local_memory=\"" + std::to_string(kMemoryBytes) + '"',
         true);
    open("type=\"PU\"" + index + sets(bits), true);
    const int first = socket * (kBuses / topology_.sockets);
    next_bus_ = first;
    const int host_bus = next_bus_++;
    open_bridge(0, first, first + kBuses / topology_.sockets - 1, "", "");
    int root_port = 0;
    const auto below = [&](const std::optional<int>& home, const std::function<void(Device)>& f) {
      for (int gpu = 0; gpu < topology_.gpus(); ++gpu)
        if (socket_of_gpu(fabric_, gpu) == socket && switch_of_gpu(fabric_, gpu) == home) f({false, gpu});
      for (int nic = 0; nic < fabric_.nics_per_node; ++nic)
        if (socket_of_nic(fabric_, nic) == socket && switch_of_nic(fabric_, nic) == home) f({true, nic});
    };
    const auto on_port = [&](int bus, int port, int depth, const char* type, Device device) {
      const int device_bus = next_bus_++;
      open_bridge(depth, device_bus, device_bus, bus_id(bus, port), type);
      write_device(device, device_bus);
      close();
    };
    below(std::nullopt, [&](Device device) { on_port(host_bus, ++root_port, 1, kRootPort, device); });
    for (int i = 0; i < topology_.switches_per_socket; ++i) {
      const int home = socket * topology_.switches_per_socket + i;
      std::vector<Device> devices;
      below(home, [&](Device device) { devices.push_back(device); });
      const int upstream = next_bus_++, downstream = next_bus_++, last = downstream + int(devices.size());
      open_bridge(1, upstream, last, bus_id(host_bus, ++root_port), kRootPort);
      open_bridge(2, downstream, last, bus_id(upstream, 0), kSwitchPort);
      for (size_t d = 0; d < devices.size(); ++d) on_port(downstream, int(d), 3, kSwitchPort, devices[d]);
      close();
      close();
    }
    close();
    close();
  }

  void write_device(Device device, int bus) {
    const std::string id = bus_id(bus, 0);
    (device.is_nic ? ids_.nics : ids_.gpus)[size_t(device.number)] = id;
    const std::string attributes = "type=\"PCIDev\" pci_busid=\"" + id + "\" pci_type=\"";
    if (!device.is_nic) {
      open(attributes + kGpu + '"', true);
      return;
    }
    open(attributes + kNic + '"');
    open("type=\"OSDev\" name=\"vhca" + std::to_string(device.number) + "\" osdev_type=\"3\"", true);
    close();
  }

  const Fabric& fabric_;
  const NodeTopology& topology_;
  TopologyBusIds& ids_;
  std::ostringstream text_;
  size_t depth_ = 1;
  int last_index_ = 0;
  int next_bus_ = 0;
};

}  // namespace

std::string topology_xml(const Fabric& fabric) {
  TopologyBusIds ids;
  return Writer(fabric, ids).write();
}

TopologyBusIds topology_bus_ids(const Fabric& fabric) {
  TopologyBusIds ids;
  Writer(fabric, ids).write();
  return ids;
}

}  // namespace r2bench
