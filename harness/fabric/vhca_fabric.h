// SPDX-License-Identifier: Apache-2.0
// Virtual HCAs: shared memory of this process, and the stand-in libibverbs in front of the library path.
#pragma once

#include <memory>
#include <string>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

/// Throws FabricError when `lib_dir` has no virtual HCA, or when there cannot be such a fabric.
std::unique_ptr<DeviceFabric> make_vhca_fabric(const Fabric& shape, const std::string& lib_dir);

/// Uses the fabric that another process of this machine has made: `path` is its shared(). Throws FabricError
/// when it cannot be reached: the virtual HCAs of a job live in the memory of one machine.
std::unique_ptr<DeviceFabric> join_vhca_fabric(const Fabric& shape, const std::string& lib_dir,
                                               const std::string& path);

}  // namespace r2bench
