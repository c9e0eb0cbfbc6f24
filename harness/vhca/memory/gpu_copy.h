// SPDX-License-Identifier: Apache-2.0
// Copies between GPU memory, this process's and another's, and host memory, by the CUDA driver of the
// initiator: it opens the other's allocation by CUDA IPC, once for each, so the target's threads do nothing.
// The calling thread's CUDA context is afterwards what it was.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/memory/cuda_driver.h"
#include "harness/vhca/memory/memory_move.h"

namespace vhca {

// Scope in which the primary context of a GPU is the calling thread's. Retained for the life of the process.
class GpuScope {
 public:
  GpuScope(const CudaDriver& driver, int gpu);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;
  int error() const { return error_; }  // 0, or a CUresult
  void* stream() const { return stream_; }

 private:
  const CudaDriver& driver_;
  void* stream_ = nullptr;
  int error_ = 0;
};

// Where one side of a stretch is: host memory of this process, or a reference to GPU memory (gpu_memory.h)
// that `owner` has registered.
struct GpuSide {
  void* at;
  ProcessId owner;
};

// Copies `bytes`, at least one of the sides being GPU memory. kGone when `hold` (nullptr: none is needed) was
// revoked before the copy began; kRemoteFault and kLocalFault (by which process's memory it is that the
// driver refuses) with a line on stderr. Returns when the bytes are there.
MoveStatus copy_gpu(Fabric& fabric, ProcessId self, GpuSide to, GpuSide from, std::size_t bytes,
                    const Hold* hold);

}  // namespace vhca
