// Virtual HCAs: shared memory of this process, and the stand-in libibverbs in front of the library path.
#pragma once

#include <memory>
#include <string>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

enum class LinkLayer { kEthernet, kInfiniBand };
const char* name(LinkLayer link);

/// What all ports of virtual NICs are like, besides rate and latency. Other NICs have their own.
struct VirtualPorts {
  LinkLayer link = LinkLayer::kEthernet;
  int per_nic = 1;  ///< 1 … 4
  int mtu = 4096;   ///< bytes: 256, 512, 1024, 2048 or 4096
};

/// Throws FabricError when `lib_dir` has no virtual HCA, or when there cannot be such a fabric.
std::unique_ptr<DeviceFabric> make_vhca_fabric(const Fabric& shape, const std::string& lib_dir,
                                               const VirtualPorts& ports = {});

}  // namespace r2bench
