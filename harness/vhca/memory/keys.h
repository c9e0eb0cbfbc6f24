// SPDX-License-Identifier: Apache-2.0
// Keys of memory regions: bounds and rights. Everybody who moves data asks here first.
#pragma once

#include <cstdint>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

// The address, in the owner's address space (of GPU memory: a reference, see gpu_memory.h), of [address,
// address + bytes) as the key's holder names it; nullptr if the key is not valid, not of that owner and PD,
// lacks a right (ibv_access_flags) or the range leaves the region. bytes > 0.
void* resolve_key(const Fabric& fabric, std::uint32_t key, ProcessId owner, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t bytes, std::uint32_t rights);

}  // namespace vhca
