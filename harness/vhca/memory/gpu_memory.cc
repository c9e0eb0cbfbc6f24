// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/gpu_memory.h"

#include <algorithm>
#include <cstring>

#include "harness/vhca/base/log.h"
#include "harness/vhca/memory/cuda_driver.h"
#include "harness/vhca/memory/gpu_copy.h"

namespace vhca {

bool any_gpu_of_several(const iovec* list, std::size_t count) {
  return std::any_of(list, list + count, [](const iovec& piece) { return is_gpu(piece.iov_base); });
}

GpuExport export_gpu_memory(const void* address, std::size_t bytes, GpuRegion& out) {
  const CudaDriver* const cuda = cuda_driver();
  if (!cuda) return GpuExport::kHost;
  const auto pointer = reinterpret_cast<CudaDriver::Pointer>(address);
  unsigned type = 0, managed = 0;
  if (cuda->cuPointerGetAttribute(&type, CudaDriver::kMemoryType, pointer) != 0 ||
      type != CudaDriver::kDeviceMemory)
    return GpuExport::kHost;
  const auto refuse = [&](const char* call, int error) {
    log_line("%zu bytes of GPU memory at %p cannot be registered: %s returned CUDA error %d", bytes, address,
             call, error);
    return GpuExport::kRefused;
  };
  if (cuda->cuPointerGetAttribute(&managed, CudaDriver::kIsManaged, pointer) == 0 && managed) {
    log_line("managed memory at %p cannot be registered: no NIC reads or writes it", address);
    return GpuExport::kRefused;
  }
  int gpu = 0;
  if (const int error = cuda->cuPointerGetAttribute(&gpu, CudaDriver::kDeviceOrdinal, pointer))
    return refuse("cuPointerGetAttribute (device ordinal)", error);
  const GpuScope scope(*cuda, gpu);
  if (scope.error() != 0) return refuse("the primary context of its GPU", scope.error());
  CudaDriver::Pointer base = 0;
  std::size_t allocated = 0;
  if (const int error = cuda->cuMemGetAddressRange(&base, &allocated, pointer))
    return refuse("cuMemGetAddressRange", error);
  if (bytes > allocated - (pointer - base) || allocated >> kGpuOffsetBits != 0) {
    log_line("%zu bytes of GPU memory at %p cannot be registered: its allocation ends after %zu", bytes,
             address, static_cast<std::size_t>(allocated - (pointer - base)));
    return GpuExport::kRefused;
  }
  CudaDriver::IpcHandle handle;
  if (const int error = cuda->cuIpcGetMemHandle(&handle, base)) {
    log_line(
        "%zu bytes of GPU memory at %p cannot be registered: cuIpcGetMemHandle returned CUDA error %d. "
        "Memory of cuMemCreate is not served (NCCL: set NCCL_CUMEM_ENABLE=0)",
        bytes, address, error);
    return GpuExport::kRefused;
  }
  CudaDriver::Uuid uuid;
  if (const int error = cuda->cuDeviceGetUuid(&uuid, gpu)) return refuse("cuDeviceGetUuid", error);
  std::memcpy(out.ipc_handle, handle.bytes, sizeof out.ipc_handle);
  std::memcpy(out.gpu, uuid.bytes, sizeof out.gpu);
  out.address = pointer;
  out.base = base;
  out.bytes = allocated;
  return GpuExport::kDone;
}

}  // namespace vhca
