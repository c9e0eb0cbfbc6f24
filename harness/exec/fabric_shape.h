// SPDX-License-Identifier: Apache-2.0
// What a shared fabric looks like, and whether that is what a command asked for. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "faultinject/plan/plan.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// Only what the command line said; the rest is whatever there is.
struct WantedShape {
  std::optional<std::string> kind;  ///< vhca, or none: the host's own devices
  std::optional<int> nodes, nics;   ///< NICs of each node
  std::optional<uint64_t> rate_bits_per_s;
  std::optional<std::chrono::nanoseconds> latency;
  std::optional<LinkLayer> link;
  std::optional<int> ports;  ///< of each NIC
  std::optional<int> mtu;    ///< bytes
  std::optional<uint64_t> seed;
};

struct FabricShape {
  std::string kind = "vhca";
  Fabric fabric;      ///< nodes, nics_per_node, nic_rate_bits_per_s, latency, ports
  uint64_t seed = 1;  ///< of the fault board

  std::vector<faultinject::NodeShape> nodes() const;
};

/// The fabric that is made when there is none yet: 2 nodes with 4 NICs of unlimited rate unless told. Throws
/// std::invalid_argument for a kind that does not exist, and for a rate, a latency, a link layer, ports or an
/// MTU of devices that have their own.
FabricShape shape_of(const WantedShape& wanted);

/// "vhca, 2 nodes with 4 NICs each, 1 Gbit/s, 5 us", then what is not as usual: "infiniband, 2 ports each,
/// MTU 2048"
std::string describe(const FabricShape& shape);

/// What was asked for and is not so ("--nics 2, but it has 4; …"); empty when all is as wanted.
std::string mismatch(const WantedShape& wanted, const FabricShape& there);

/// Throws std::invalid_argument that lists the nodes when there is none of that name.
void check_node(const FabricShape& shape, const std::string& node);

nlohmann::json to_json(const FabricShape& shape);
FabricShape shape_from(const nlohmann::json& json);

}  // namespace r2bench
