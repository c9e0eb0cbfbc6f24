// SPDX-License-Identifier: Apache-2.0
// Memory regions: registering gives memory a key, deregistering takes it away.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "harness/vhca/process/objects.h"

namespace vhca {

// Host memory, or a GPU's where this process has loaded CUDA (EOPNOTSUPP when that cannot be served). EFAULT
// where there is no memory.
ibv_mr* register_memory(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
// [offset, offset + length) of a dma-buf: of any descriptor that can be mapped; or of a GPU's memory, which
// is recognised by its iova being its address in this process, as whoever exports it has it. Errors as a
// kernel gives them: EBADF, EINVAL (no length, beyond the end, not at the same place of a page as the iova,
// not mappable, rights), and EOPNOTSUPP with VHCA_DMABUF=0, which stands for a device without it.
ibv_mr* register_dma_buf(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                         int access);
int deregister_memory(ibv_mr* mr);
// Ends what was registered with the context and not deregistered. The objects stay.
void end_regions_of(const Context& context);

}  // namespace vhca
