// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/keys.h"

namespace vhca {

void* resolve_key(const Fabric& fabric, std::uint32_t key, ProcessId owner, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t bytes, std::uint32_t rights) {
  const MrSlot& mr = fabric.memory_regions[key & (kMaxMemoryRegions - 1)];
  if (key == 0 || mr.key.load(std::memory_order_acquire) != key) return nullptr;
  if (mr.owner.load(std::memory_order_relaxed) != owner || mr.pd != pd || (mr.access & rights) != rights)
    return nullptr;
  const std::uint64_t offset = address - mr.iova;
  if (address < mr.iova || offset > mr.length || bytes > mr.length - offset) return nullptr;
  return reinterpret_cast<void*>(mr.address + offset);
}

}  // namespace vhca
