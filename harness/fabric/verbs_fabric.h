// SPDX-License-Identifier: Apache-2.0
// The RDMA devices that this host has, dealt out to those of the job's nodes that run on it.
#pragma once

#include <memory>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

std::unique_ptr<DeviceFabric> make_verbs_fabric(const Fabric& shape, int first, int count,
                                                const DeviceWish& wish);

}  // namespace r2bench
