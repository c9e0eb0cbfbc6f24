// SPDX-License-Identifier: Apache-2.0
// GPU memory for tests on a machine without GPUs: loads the stand-in libcuda.so.1 (stand_in_cuda.cc) into the
// process. VHCA_STAND_IN_CUDA is its path.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace vhca::test {

class StandInGpu {
 public:
  /// Loads the library, once per process, before anything is registered.
  StandInGpu() : library_(::dlopen(VHCA_STAND_IN_CUDA, RTLD_NOW | RTLD_GLOBAL)) {
    if (!library_) throw std::runtime_error(::dlerror());
    check(call<int(unsigned)>("cuInit")(0));
  }

  template <typename F>
  F* call(const char* name) const {
    auto* const function = reinterpret_cast<F*>(::dlsym(library_, name));
    if (!function) throw std::runtime_error(std::string("no ") + name);
    return function;
  }

  std::uint64_t allocate(std::size_t bytes, int gpu = 0) const {
    void *context = nullptr, *popped = nullptr;
    check(call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, gpu));
    check(call<int(void*)>("cuCtxPushCurrent_v2")(context));
    std::uint64_t at = 0;
    check(call<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2")(&at, bytes));
    check(call<int(void**)>("cuCtxPopCurrent_v2")(&popped));
    return at;
  }
  void free(std::uint64_t at) const { check(call<int(std::uint64_t)>("cuMemFree_v2")(at)); }
  /// What the GPU sees there.
  unsigned char* view(std::uint64_t at) const {
    return call<unsigned char*(std::uint64_t)>("stand_in_view")(at);
  }
  int descriptor(std::uint64_t at) const { return call<int(std::uint64_t)>("stand_in_descriptor")(at); }
  void mark(std::uint64_t at, bool exportable, bool managed) const {
    call<void(std::uint64_t, int, int)>("stand_in_mark")(at, exportable, managed);
  }
  void fail_copies(int error) const { call<void(int)>("stand_in_fail")(error); }
  /// "copies", "opens" (of other processes' allocations), "open" (those now).
  int count(const char* what) const { return call<int(const char*)>("stand_in_count")(what); }

 private:
  static void check(int error) {
    if (error != 0) throw std::runtime_error("stand-in CUDA: error " + std::to_string(error));
  }
  void* library_;
};

}  // namespace vhca::test
