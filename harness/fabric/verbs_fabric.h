// The RDMA devices that this host has. All 'nodes' run on this host and share its devices out among them.
#pragma once

#include <memory>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

std::unique_ptr<DeviceFabric> make_verbs_fabric(const Fabric& shape, int first, int count);

}  // namespace r2bench
