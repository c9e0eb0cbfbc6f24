// SPDX-License-Identifier: Apache-2.0
// Pages of shared memory for rings of any size. Lock-free: a run of pages is claimed page by page with
// compare-and-swap, so a process that dies in the middle leaves nothing but pages that carry its id. Must
// never hand out a page twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

// Offset in the fabric of `bytes` zeroed bytes that belong to `owner`; 0 when there is no room.
std::uint64_t allocate_pages(Fabric& fabric, ProcessId owner, std::size_t bytes);
// Gives back what allocate_pages returned for the same size, the memory itself included.
void free_pages(Fabric& fabric, ProcessId owner, std::uint64_t offset, std::size_t bytes);
void release_all_pages(Fabric& fabric, ProcessId owner);

template <typename T>
T* at_offset(Fabric& fabric, std::uint64_t offset) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(&fabric) + offset);
}

}  // namespace vhca
