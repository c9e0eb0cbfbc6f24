#include "r2ccl/channel/gpu_flush.h"

#include <dlfcn.h>

#include <string>

namespace r2ccl {
namespace {

// Of cuda.h, whose numbers are part of the driver's ABI.
constexpr int kPointerContext = 1, kPointerOrdinal = 9;
constexpr int kFlushOptions = 117, kWritesOrdering = 118;
constexpr int kFlushByHost = 1;
constexpr int kCurrentContext = 0, kToOwner = 100;

Error failure(const std::string& what) { return Error{ErrorCode::kGpuMemory, what}; }
Error failure(const char* call, int code) {
  return failure(std::string(call) + " returned CUDA error " + std::to_string(code));
}

template <typename F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  return function != nullptr;
}

/// Scope in which another CUDA context is the calling thread's.
class Current {
 public:
  Current(const CudaDriver& driver, void* context) : driver_(driver) {
    void* now = nullptr;
    if (driver.cuCtxGetCurrent(&now) == 0 && now == context) return;
    error_ = driver.cuCtxPushCurrent(context);
    pushed_ = error_ == 0;
  }
  ~Current() {
    void* popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  int error() const { return error_; }

 private:
  const CudaDriver& driver_;
  int error_ = 0;
  bool pushed_ = false;
};

}  // namespace

Result<CudaDriver> CudaDriver::load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays: the process's CUDA uses it, too
  if (!handle)
    return failure(std::string("received GPU memory has to be flushed, and the CUDA driver is not there: ") +
                   dlerror());
  CudaDriver driver;
  const bool complete = find(handle, "cuPointerGetAttribute", driver.cuPointerGetAttribute) &&
                        find(handle, "cuDeviceGetAttribute", driver.cuDeviceGetAttribute) &&
                        find(handle, "cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain) &&
                        find(handle, "cuCtxGetCurrent", driver.cuCtxGetCurrent) &&
                        find(handle, "cuCtxPushCurrent_v2", driver.cuCtxPushCurrent) &&
                        find(handle, "cuCtxPopCurrent_v2", driver.cuCtxPopCurrent) &&
                        find(handle, "cuFlushGPUDirectRDMAWrites", driver.cuFlushGPUDirectRDMAWrites);
  if (!complete)
    return failure(
        std::string("received GPU memory has to be flushed, and the CUDA driver is older than 11.3: ") +
        dlerror());
  return driver;
}

Result<GpuFlush::Gpu*> GpuFlush::gpu(int ordinal) {
  if (ordinal < 0 || ordinal >= kMaxGpus)
    return failure("GPU " + std::to_string(ordinal) + " of more than 64");
  std::optional<Gpu>& known = gpus_[size_t(ordinal)];
  if (known) return &*known;
  const CudaDriver& driver = **driver_;
  Gpu gpu;
  int ordering = 0, options = 0;
  if (const int error = driver.cuDeviceGetAttribute(&ordering, kWritesOrdering, ordinal); error != 0)
    return failure("cuDeviceGetAttribute", error);
  if (const int error = driver.cuDeviceGetAttribute(&options, kFlushOptions, ordinal); error != 0)
    return failure("cuDeviceGetAttribute", error);
  gpu.needs_flush = ordering < kToOwner;
  if (gpu.needs_flush && (options & kFlushByHost) == 0)
    return failure("GPU " + std::to_string(ordinal) +
                   " needs its memory to be flushed after NICs wrote it, and offers no flush to the host");
  if (gpu.needs_flush)
    if (const int error = driver.cuDevicePrimaryCtxRetain(&gpu.primary, ordinal); error != 0)
      return failure("cuDevicePrimaryCtxRetain", error);
  return &known.emplace(gpu);
}

Result<void> GpuFlush::flush(const void* address) {
  const CudaDriver* driver = nullptr;
  int ordinal = -1;
  Gpu found;
  {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_.emplace(CudaDriver::load());
    if (!*driver_) return driver_->error();
    driver = &**driver_;
    if (const int error = driver->cuPointerGetAttribute(&ordinal, kPointerOrdinal, uint64_t(address));
        error != 0)
      return failure("cuPointerGetAttribute of a received buffer", error);
    auto known = gpu(ordinal);
    if (!known) return known.error();
    found = **known;
  }
  if (!found.needs_flush) return {};
  // Memory that was mapped by virtual memory management belongs to no context.
  void* context = nullptr;
  if (driver->cuPointerGetAttribute(&context, kPointerContext, uint64_t(address)) != 0 || !context)
    context = found.primary;
  const Current scope(*driver, context);
  if (scope.error() != 0) return failure("cuCtxPushCurrent", scope.error());
  if (const int error = driver->cuFlushGPUDirectRDMAWrites(kCurrentContext, kToOwner); error != 0)
    return failure("cuFlushGPUDirectRDMAWrites", error);
  return {};
}

}  // namespace r2ccl
