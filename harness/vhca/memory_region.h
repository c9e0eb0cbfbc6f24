// SPDX-License-Identifier: Apache-2.0
// Memory regions: keys, bounds and rights. Everybody who moves data asks here first.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "harness/vhca/fabric_layout.h"
#include "harness/vhca/objects.h"

namespace vhca {

// The address, in the owner's address space (of GPU memory: a reference, see gpu_memory.h), of [address,
// address + bytes) as the key's holder names it; nullptr if the key is not valid, not of that owner and PD,
// lacks a right (ibv_access_flags) or the range leaves the region. bytes > 0.
void* resolve_key(const Fabric& fabric, std::uint32_t key, ProcessId owner, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t bytes, std::uint32_t rights);

// Host memory, or a GPU's where this process has loaded CUDA (EOPNOTSUPP when that cannot be served).
ibv_mr* register_memory(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
// [offset, offset + length) of a dma-buf: of any descriptor that can be mapped; or of a GPU's memory, which
// is recognised by its iova being its address in this process, as whoever exports it has it. Errors as a
// kernel gives them: EBADF, EINVAL (no length, beyond the end, not at the same place of a page as the iova,
// not mappable, rights), and EOPNOTSUPP with VHCA_DMABUF=0, which stands for a device without it.
ibv_mr* register_dma_buf(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                         int access);
int deregister_memory(ibv_mr* mr);

}  // namespace vhca
