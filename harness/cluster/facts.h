// SPDX-License-Identifier: Apache-2.0
// What one host knows of its RDMA ports: by verbs, sysfs and the tools that it has. Plain data that travels
// as JSON; what nobody could tell stays empty and is never a guess.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

struct GidFacts {
  int index = 0;
  std::string gid;   ///< as sysfs writes it
  std::string type;  ///< "RoCE v2", "IB/RoCE v1", ""
};

/// A switch or root port above the device.
struct BridgeFacts {
  std::string address;
  std::optional<int>
      acs_control;  ///< the bits that are on; empty: it has no such capability, or only root may read it
};

struct PortFacts {
  std::string device;
  int port = 1;
  std::string state, link_layer;    ///< "ACTIVE", "Ethernet" …, as sysfs says
  std::string rate;                 ///< "100 Gb/sec (4X EDR)"
  int active_mtu = 0, max_mtu = 0;  ///< of RDMA, in bytes
  std::vector<GidFacts> gids;
  std::string interface;
  int interface_mtu = 0;
  std::vector<std::string> addresses;  ///< "10.10.0.1/24"
  std::string firmware, board, driver;
  std::string pci, pci_speed, pci_speed_max;  ///< "16.0 GT/s PCIe"
  int pci_width = 0, pci_width_max = 0;
  int numa_node = -1;
  std::vector<BridgeFacts> bridges;
  std::string
      dpu_mode;  ///< "DPU", "NIC", "unknown" (its tool is missing or may not ask); empty: no BlueField
  std::optional<std::string> pfc;         ///< priorities with flow control: "3"; "none"
  std::optional<std::string> rate_limit;  ///< "25Gbit"; "none"
  std::optional<bool> ecn;                ///< of RoCE, by the driver's own sysfs
  bool soft = false;
  bool default_route = false;  ///< the machine's default route leaves by its interface, or by one above that
  std::string left_out;        ///< why neither the preflight nor a run takes it; empty: both do

  std::string name() const { return device + (port == 1 ? "" : "/" + std::to_string(port)); }
  /// The GID that a connection takes: RoCE v2 with an IPv4 address, else RoCE v2; empty for InfiniBand, or
  /// where there is none.
  std::optional<GidFacts> chosen_gid() const;
};

struct RdmaHostFacts {
  std::string host;
  std::string kernel;
  uint64_t memlock_bytes = 0;  ///< UINT64_MAX: unlimited
  bool root = false;
  bool gpus = false;
  bool peer_memory = false;  ///< nvidia_peermem is loaded
  std::vector<std::string> missing_tools;
  std::vector<PortFacts> ports;
};

/// Of this machine. `root`: where /sys and /proc lie. `tools`: ask programs and the kernel, too; else only
/// where `root` is "/".
RdmaHostFacts rdma_facts_of_this_host(const std::string& root = "/",
                                      std::optional<bool> tools = std::nullopt);

/// Control register of the ACS capability in a PCI configuration space of 4096 bytes; empty: there is none,
/// or it was cut off.
std::optional<int> acs_control(const std::string& config);

void to_json(nlohmann::json& json, const RdmaHostFacts& facts);
void from_json(const nlohmann::json& json, RdmaHostFacts& facts);

}  // namespace r2bench
