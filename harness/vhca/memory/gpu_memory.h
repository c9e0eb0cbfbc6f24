// SPDX-License-Identifier: Apache-2.0
// Memory regions in a GPU's memory: how they are recognised when they are registered, what others must know
// to reach them, and how they travel through code that moves bytes. Nobody but gpu_copy.h touches the bytes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

// In place of an address in the owner's address space, a region in GPU memory gives out a reference: its slot
// and a place in it, in a number that is no address of any process. So a look at its highest bit tells the
// two apart, and a copy that does not know of it fails with EFAULT.
inline constexpr std::uint64_t kGpuReference = 1ull << 63;
inline constexpr unsigned kGpuOffsetBits = 46;
static_assert(kMrSlotBits + kGpuOffsetBits < 64);

inline bool is_gpu(const void* address) { return reinterpret_cast<std::intptr_t>(address) < 0; }
bool any_gpu_of_several(const iovec* list, std::size_t count);
inline bool any_gpu(const iovec* list, std::size_t count) {
  if (count == 1) [[likely]]
    return is_gpu(list->iov_base);
  return any_gpu_of_several(list, count);
}
inline std::uint64_t gpu_reference(std::size_t slot) {
  return kGpuReference | static_cast<std::uint64_t>(slot) << kGpuOffsetBits;
}
inline std::size_t gpu_slot(const void* reference) {
  return (reinterpret_cast<std::uintptr_t>(reference) & ~kGpuReference) >> kGpuOffsetBits;
}
inline std::uint64_t gpu_offset(const void* reference) {
  return reinterpret_cast<std::uintptr_t>(reference) & ((1ull << kGpuOffsetBits) - 1);
}

enum class GpuExport {
  kHost,     // the memory is no GPU's, as far as the driver of this process knows (or there is no driver)
  kDone,     // `out` is filled
  kRefused,  // it is a GPU's, and cannot be served; a line on stderr says why
};

// What the driver says of [address, address + bytes).
GpuExport export_gpu_memory(const void* address, std::size_t bytes, GpuRegion& out);

}  // namespace vhca
