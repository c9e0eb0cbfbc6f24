// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/vhca_fabric.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "harness/vhca/fabric/fabric_host.h"

namespace r2bench {
namespace {

vhca::FabricSpec spec_of(const Fabric& shape) {
  const VirtualPorts& ports = shape.ports;
  vhca::FabricSpec spec;
  spec.link_layer =
      ports.link == LinkLayer::kInfiniBand ? vhca::LinkLayer::kInfiniBand : vhca::LinkLayer::kEthernet;
  spec.ports_per_nic = size_t(ports.per_nic);
  spec.mtu = uint32_t(ports.mtu);
  if (shape.topology) spec.cross_percent = unsigned(shape.topology->cross_percent);
  std::vector<vhca::PortSpec> nics;
  for (int nic = 0; nic < shape.nics_per_node; ++nic)
    nics.push_back(
        {shape.nic_rate_bits_per_s, shape.latency, shape.topology ? socket_of_nic(shape, nic) : -1});
  for (int n = 0; n < shape.nodes; ++n) spec.nodes.push_back({node_name(n), nics});
  return spec;
}

/// What the processes of the fabric at `path` need, whoever has made it.
class VhcaPorts : public DeviceFabric {
 public:
  VhcaPorts(const Fabric& shape, std::string path, std::string folder)
      : path_(std::move(path)), folder_(std::move(folder)) {
    // Where the copy is the limit; on a crowded machine they cost more than they bring
    // (vhca/memory/huge_pages.h).
    huge_pages_ = shape.nic_rate_bits_per_s == 0 && !std::getenv("VHCA_HUGE_PAGES") &&
                  unsigned(shape.ranks()) <= std::thread::hardware_concurrency();
  }

  std::string evidence() const override { return "emulated"; }
  std::string shared() const override { return path_; }
  std::map<std::string, std::string> environment(int node) const override {
    std::map<std::string, std::string> variables{{"VHCA_FABRIC", path_},
                                                 {"VHCA_NODE", node_name(node)},
                                                 {"R2CC_NODE_NAME", node_name(node)},
                                                 {"R2CC_NODE_SCOPE", node_name(node) + "@" + path_}};
    if (huge_pages_) variables["VHCA_HUGE_PAGES"] = "1";
    return variables;
  }
  std::vector<std::string> library_folders() const override { return {folder_}; }
  std::optional<uint64_t> carried_bytes(int, int) const override { return std::nullopt; }

 private:
  std::string path_;
  std::string folder_;
  bool huge_pages_ = false;
};

class VhcaFabric final : public VhcaPorts {
 public:
  VhcaFabric(const Fabric& shape, vhca::FabricHost host, std::string folder)
      : VhcaPorts(shape, host.path(), std::move(folder)), host_(std::move(host)) {}

  std::optional<uint64_t> carried_bytes(int node, int nic) const override {
    const vhca::PortCounters counters = host_.counters(size_t(node), size_t(nic));
    return counters.tx_bytes + counters.rx_bytes;
  }

 private:
  vhca::FabricHost host_;
};

std::string library_folder(const std::string& lib_dir) {
  const std::string folder = lib_dir + "/vhca";
  if (access((folder + "/libibverbs.so.1").c_str(), R_OK) != 0)
    throw FabricError("the virtual HCA is missing: there is no " + folder +
                      "/libibverbs.so.1; build it first");
  return folder;
}

}  // namespace

std::unique_ptr<DeviceFabric> make_vhca_fabric(const Fabric& shape, const std::string& lib_dir) {
  const std::string folder = library_folder(lib_dir);
  try {
    return std::make_unique<VhcaFabric>(shape, vhca::FabricHost::create(spec_of(shape)), folder);
  } catch (const std::invalid_argument& e) {
    throw FabricError(std::string("the fabric cannot be made: ") + e.what());
  }
}

std::unique_ptr<DeviceFabric> join_vhca_fabric(const Fabric& shape, const std::string& lib_dir,
                                               const std::string& path) {
  if (access(path.c_str(), R_OK | W_OK) != 0)
    throw FabricError("the virtual fabric " + path + " cannot be reached from here (" + strerror(errno) +
                      "): virtual NICs are shared memory of one machine; choose fabric verbs for several");
  return std::make_unique<VhcaPorts>(shape, path, library_folder(lib_dir));
}

}  // namespace r2bench
