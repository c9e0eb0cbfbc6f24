// SPDX-License-Identifier: Apache-2.0
// The GPU kernels of the nccl workload: fill a buffer, count wrong elements, count bytes that are not as
// poison left them. make_ptx.py compiles them to gpu_pattern.ptx, which the driver compiles for the GPU at
// hand.
#include "harness/workload/nccl/gpu/gpu_pattern.h"

namespace {

__device__ uint64_t first_index() { return uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ uint64_t stride() { return uint64_t(gridDim.x) * blockDim.x; }
__device__ void add(unsigned long long* total, unsigned long long count) {
  if (count) atomicAdd(total, count);
}

}  // namespace

extern "C" {

__global__ void r2bench_fill(void* data, uint64_t first, uint64_t count, r2bench::gpu::Pattern pattern,
                             uint32_t factor) {
  for (uint64_t k = first_index(); k < count; k += stride())
    r2bench::gpu::fill_element(pattern, data, first, k, factor);
}

__global__ void r2bench_count_wrong(const void* data, uint64_t first, uint64_t count,
                                    r2bench::gpu::Pattern pattern, const uint32_t* factors, uint32_t members,
                                    double error, unsigned long long* total) {
  unsigned long long wrong = 0;
  for (uint64_t k = first_index(); k < count; k += stride())
    wrong += r2bench::gpu::is_wrong(pattern, data, first, k, factors, members, error);
  add(total, wrong);
}

__global__ void r2bench_count_touched(const uint8_t* data, uint64_t bytes, unsigned long long* total) {
  unsigned long long touched = 0;
  for (uint64_t k = first_index(); k < bytes; k += stride()) touched += data[k] != 0xff;
  add(total, touched);
}
}
