// SPDX-License-Identifier: Apache-2.0
// What a buffer's memory is, and how NICs get at it.
#pragma once

#include <cstdint>

namespace r2ccl {

struct BufferMemory {
  enum class Kind : uint8_t {
    kHost,
    kGpu,     ///< by its address alone: the kernel has a module that knows the GPU's memory
    kDmaBuf,  ///< GPU memory by a descriptor
  };
  Kind kind = Kind::kHost;
  int fd = -1;          ///< kDmaBuf; stays the caller's, who may close it after reg()
  uint64_t offset = 0;  ///< kDmaBuf: bytes of it before the buffer
};

}  // namespace r2ccl
