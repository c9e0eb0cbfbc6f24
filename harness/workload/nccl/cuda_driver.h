// SPDX-License-Identifier: Apache-2.0
// The CUDA driver API, as far as the nccl workload needs it: bound at run time from libcuda.so.1, so that
// this project builds and runs without CUDA. The declarations are our own; names and numbers are the driver's
// ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace r2bench::cuda {

using Device = int;
using Address = uint64_t;  ///< of GPU memory
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kAttributePciBus = 33, kAttributePciDevice = 34, kAttributePciDomain = 50;
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76;
inline constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;

/// One sentence for the user.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The functions of libcuda, each under its name without "cu" and without the ABI's suffix.
struct Driver {
  /// Loads the library and initialises it. Throws CudaError.
  static const Driver& instance();

  /// Throws CudaError unless `result` is success; `call` is what was tried.
  void check(int result, const char* call) const;
  /// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
  std::string describe(int result) const;

  int (*Init)(unsigned);
  int (*DriverGetVersion)(int*);
  int (*DeviceGetCount)(int*);
  int (*DeviceGet)(Device*, int);
  int (*DeviceGetName)(char*, int, Device);
  int (*DeviceGetAttribute)(int*, int, Device);
  int (*DevicePrimaryCtxRetain)(Context*, Device);
  int (*CtxSetCurrent)(Context);
  int (*ModuleLoadDataEx)(Module*, const void*, unsigned, int*, void**);
  int (*ModuleGetFunction)(Function*, Module, const char*);
  int (*LaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                      void**, void**);
  int (*MemAlloc)(Address*, size_t);
  int (*MemFree)(Address);
  int (*MemcpyHtoDAsync)(Address, const void*, size_t, Stream);
  int (*MemcpyDtoH)(void*, Address, size_t);
  int (*MemsetD8Async)(Address, unsigned char, size_t, Stream);
  int (*StreamCreate)(Stream*, unsigned);
  int (*StreamSynchronize)(Stream);
  int (*StreamWaitEvent)(Stream, Event, unsigned);
  int (*StreamBeginCapture)(Stream, int);
  int (*StreamEndCapture)(Stream, Graph*);
  int (*EventCreate)(Event*, unsigned);
  int (*EventRecord)(Event, Stream);
  int (*EventQuery)(Event);
  int (*GraphInstantiateWithFlags)(GraphExec*, Graph, unsigned long long);
  int (*GraphLaunch)(GraphExec, Stream);
  int (*GraphDestroy)(Graph);
  int (*GraphExecDestroy)(GraphExec);
  int (*GetErrorName)(int, const char**);
  int (*GetErrorString)(int, const char**);

 private:
  Driver();
};

/// Where a GPU is on the PCI bus.
struct PciPlace {
  int domain = 0, bus = 0, device = 0;
};

/// One GPU, made current on the calling thread.
class Gpu {
 public:
  /// `index` modulo the number of GPUs. Throws CudaError.
  explicit Gpu(int index);

  int index() const { return index_; }
  int count() const { return count_; }
  /// "NVIDIA H100 80GB HBM3"
  std::string name() const;
  /// "9.0"
  std::string capability() const;
  /// Of the driver: "13.0".
  static std::string driver_version();
  PciPlace place() const;

 private:
  int attribute(int number) const;

  int index_ = 0, count_ = 0;
  Device device_ = 0;
};

}  // namespace r2bench::cuda
