// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/cuda_driver.h"

#include <dlfcn.h>

namespace r2bench::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename F>
void bind(void* library, F& function, const char* symbol) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  if (!function)
    throw CudaError(std::string(kLibrary) + " has no " + symbol +
                    "; update the NVIDIA driver (11.4 or later is needed)");
}

}  // namespace

Driver::Driver() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* why = dlerror();
    throw CudaError(std::string("no CUDA driver: ") + (why ? why : kLibrary) +
                    "; the engine nccl needs a GPU and the NVIDIA driver");
  }
  bind(library, Init, "cuInit");
  bind(library, DriverGetVersion, "cuDriverGetVersion");
  bind(library, DeviceGetCount, "cuDeviceGetCount");
  bind(library, DeviceGet, "cuDeviceGet");
  bind(library, DeviceGetName, "cuDeviceGetName");
  bind(library, DeviceGetAttribute, "cuDeviceGetAttribute");
  bind(library, DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  bind(library, CtxSetCurrent, "cuCtxSetCurrent");
  bind(library, ModuleLoadDataEx, "cuModuleLoadDataEx");
  bind(library, ModuleGetFunction, "cuModuleGetFunction");
  bind(library, LaunchKernel, "cuLaunchKernel");
  bind(library, MemAlloc, "cuMemAlloc_v2");
  bind(library, MemFree, "cuMemFree_v2");
  bind(library, MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  bind(library, MemcpyDtoH, "cuMemcpyDtoH_v2");
  bind(library, MemsetD8Async, "cuMemsetD8Async");
  bind(library, StreamCreate, "cuStreamCreate");
  bind(library, StreamSynchronize, "cuStreamSynchronize");
  bind(library, StreamWaitEvent, "cuStreamWaitEvent");
  bind(library, StreamBeginCapture, "cuStreamBeginCapture_v2");
  bind(library, StreamEndCapture, "cuStreamEndCapture");
  bind(library, EventCreate, "cuEventCreate");
  bind(library, EventRecord, "cuEventRecord");
  bind(library, EventQuery, "cuEventQuery");
  bind(library, GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
  bind(library, GraphLaunch, "cuGraphLaunch");
  bind(library, GraphDestroy, "cuGraphDestroy");
  bind(library, GraphExecDestroy, "cuGraphExecDestroy");
  bind(library, GetErrorName, "cuGetErrorName");
  bind(library, GetErrorString, "cuGetErrorString");
  check(Init(0), "cuInit");
}

const Driver& Driver::instance() {
  static const Driver driver;
  return driver;
}

std::string Driver::describe(int result) const {
  const char *text = nullptr, *name = nullptr;
  GetErrorString(result, &text);
  GetErrorName(result, &name);
  return std::string(text ? text : "unknown error") + " (" + (name ? name : std::to_string(result).c_str()) +
         ")";
}

void Driver::check(int result, const char* call) const {
  if (result != kSuccess) throw CudaError(std::string(call) + " failed: " + describe(result));
}

Gpu::Gpu(int index) {
  const Driver& driver = Driver::instance();
  driver.check(driver.DeviceGetCount(&count_), "cuDeviceGetCount");
  if (count_ == 0)
    throw CudaError("the CUDA driver shows no GPU; look at CUDA_VISIBLE_DEVICES and nvidia-smi");
  index_ = index % count_;
  driver.check(driver.DeviceGet(&device_, index_), "cuDeviceGet");
  // The primary context is the one that the CUDA runtime inside NCCL uses.
  Context context = nullptr;
  driver.check(driver.DevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
  driver.check(driver.CtxSetCurrent(context), "cuCtxSetCurrent");
}

std::string Gpu::name() const {
  const Driver& driver = Driver::instance();
  char text[256] = "";
  driver.check(driver.DeviceGetName(text, sizeof(text), device_), "cuDeviceGetName");
  return text;
}

int Gpu::attribute(int number) const {
  const Driver& driver = Driver::instance();
  int value = 0;
  driver.check(driver.DeviceGetAttribute(&value, number, device_), "cuDeviceGetAttribute");
  return value;
}

std::string Gpu::capability() const {
  return std::to_string(attribute(kAttributeMajor)) + "." + std::to_string(attribute(kAttributeMinor));
}

std::string Gpu::driver_version() {
  const Driver& driver = Driver::instance();
  int version = 0;
  driver.check(driver.DriverGetVersion(&version), "cuDriverGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

PciPlace Gpu::place() const {
  return {attribute(kAttributePciDomain), attribute(kAttributePciBus), attribute(kAttributePciDevice)};
}

}  // namespace r2bench::cuda
