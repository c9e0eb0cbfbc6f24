// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "harness/vhca/base/log.h"

namespace vhca {
namespace {

template <typename F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  if (!function) log_line("this process's libcuda.so.1 has no %s: GPU memory cannot be registered", name);
  return function != nullptr;
}

bool find_all(void* library, CudaDriver& driver) {
  return find(library, "cuInit", driver.cuInit) &&
         find(library, "cuPointerGetAttribute", driver.cuPointerGetAttribute) &&
         find(library, "cuMemGetAddressRange_v2", driver.cuMemGetAddressRange) &&
         find(library, "cuIpcGetMemHandle", driver.cuIpcGetMemHandle) &&
         find(library, "cuIpcOpenMemHandle_v2", driver.cuIpcOpenMemHandle) &&
         find(library, "cuIpcCloseMemHandle", driver.cuIpcCloseMemHandle) &&
         find(library, "cuDeviceGetCount", driver.cuDeviceGetCount) &&
         find(library, "cuDeviceGetUuid", driver.cuDeviceGetUuid) &&
         find(library, "cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain) &&
         find(library, "cuCtxPushCurrent_v2", driver.cuCtxPushCurrent) &&
         find(library, "cuCtxPopCurrent_v2", driver.cuCtxPopCurrent) &&
         find(library, "cuStreamCreate", driver.cuStreamCreate) &&
         find(library, "cuStreamSynchronize", driver.cuStreamSynchronize) &&
         find(library, "cuMemcpyHtoDAsync_v2", driver.cuMemcpyHtoDAsync) &&
         find(library, "cuMemcpyDtoHAsync_v2", driver.cuMemcpyDtoHAsync) &&
         find(library, "cuMemcpyDtoDAsync_v2", driver.cuMemcpyDtoDAsync);
}

}  // namespace

const CudaDriver* cuda_driver() {
  static std::mutex lock;
  static CudaDriver driver;
  static std::atomic<const CudaDriver*> found{nullptr};
  static bool incomplete = false;
  if (const CudaDriver* known = found.load(std::memory_order_acquire)) return known;
  const std::lock_guard guard(lock);
  if (incomplete) return nullptr;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // kept: it must not go before us
  if (!library) return nullptr;
  if (!found.load() && !find_all(library, driver)) {
    incomplete = true;
    return nullptr;
  }
  found.store(&driver, std::memory_order_release);
  return &driver;
}

}  // namespace vhca
