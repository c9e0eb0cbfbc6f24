// Orders what NICs have written into a GPU's memory before what that GPU reads, from the host: so it does not
// matter which NICs wrote, or whether they still live. It is a fence at the GPU: writes that are still under
// way to it (between PCIe switches) are not waited for, as a read through the NIC would; unverified on
// hardware. It needs the CUDA driver of the process (libcuda, 11.3 or later), looked for when the first flush
// is asked for and not before.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "r2ccl/base/result.h"

namespace r2ccl {

/// The functions of the driver that a flush takes, by the names of cuda.h. Each returns 0 or a CUresult.
struct CudaDriver {
  int (*cuPointerGetAttribute)(void* value, int attribute, uint64_t pointer) = nullptr;
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void** context, int device) = nullptr;
  int (*cuCtxGetCurrent)(void** context) = nullptr;
  int (*cuCtxPushCurrent)(void* context) = nullptr;
  int (*cuCtxPopCurrent)(void** context) = nullptr;
  int (*cuFlushGPUDirectRDMAWrites)(int target, int scope) = nullptr;

  /// Error kGpuMemory when the library or one of its functions is not there.
  static Result<CudaDriver> load(const char* library = "libcuda.so.1");
};

class GpuFlush {
 public:
  GpuFlush() = default;
  /// With a driver of the caller's instead of libcuda.
  explicit GpuFlush(const CudaDriver& driver) : driver_(driver) {}

  /// Returns when all that NICs wrote into the allocation of `address`, before now, is visible to its GPU.
  /// The calling thread's CUDA context is afterwards what it was; it needs none. Error kGpuMemory when the
  /// driver is not there or refuses, or when the GPU needs flushes and offers none to the host. Any thread.
  Result<void> flush(const void* address);

 private:
  static constexpr int kMaxGpus = 64;
  struct Gpu {
    bool needs_flush = true;
    void* primary = nullptr;  // retained for as long as the process lives
  };
  Result<Gpu*> gpu(int ordinal);

  std::mutex mutex_;  // guards the following; they are made once
  std::optional<Result<CudaDriver>> driver_;
  std::array<std::optional<Gpu>, kMaxGpus> gpus_;
};

}  // namespace r2ccl
