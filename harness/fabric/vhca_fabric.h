// Virtual HCAs: shared memory of this process, and the stand-in libibverbs in front of the library path.
#pragma once

#include <memory>
#include <string>

#include "harness/fabric/device_fabric.h"

namespace r2bench {

/// Throws FabricError when `lib_dir` has no virtual HCA, or when there cannot be such a fabric.
std::unique_ptr<DeviceFabric> make_vhca_fabric(const Fabric& shape, const std::string& lib_dir);

}  // namespace r2bench
