// SPDX-License-Identifier: Apache-2.0
// The CUDA driver of the process, where the program has loaded one: the functions that serving GPU memory
// takes. Must never load the driver: in a program without CUDA there is none, and nothing is asked of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vhca {

// The functions by the names of cuda.h; each returns 0 or a CUresult. The numbers are part of the driver's
// ABI.
struct CudaDriver {
  using Pointer = std::uint64_t;  // CUdeviceptr
  struct IpcHandle {              // CUipcMemHandle
    unsigned char bytes[64];
  };
  struct Uuid {
    unsigned char bytes[16];
  };

  int (*cuInit)(unsigned flags);
  int (*cuPointerGetAttribute)(void* value, int attribute, Pointer pointer);
  int (*cuMemGetAddressRange)(Pointer* base, std::size_t* bytes, Pointer pointer);
  int (*cuIpcGetMemHandle)(IpcHandle* handle, Pointer pointer);
  int (*cuIpcOpenMemHandle)(Pointer* pointer, IpcHandle handle, unsigned flags);
  int (*cuIpcCloseMemHandle)(Pointer pointer);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDeviceGetUuid)(Uuid* uuid, int device);
  int (*cuDevicePrimaryCtxRetain)(void** context, int device);
  int (*cuCtxPushCurrent)(void* context);
  int (*cuCtxPopCurrent)(void** context);
  int (*cuStreamCreate)(void** stream, unsigned flags);
  int (*cuStreamSynchronize)(void* stream);
  int (*cuMemcpyHtoDAsync)(Pointer to, const void* from, std::size_t bytes, void* stream);
  int (*cuMemcpyDtoHAsync)(void* to, Pointer from, std::size_t bytes, void* stream);
  int (*cuMemcpyDtoDAsync)(Pointer to, Pointer from, std::size_t bytes, void* stream);

  static constexpr int kMemoryType = 2, kDeviceOrdinal = 9, kIsManaged = 8;  // CU_POINTER_ATTRIBUTE_…
  static constexpr unsigned kDeviceMemory = 2;                               // CU_MEMORYTYPE_DEVICE
  static constexpr unsigned kNonBlockingStream = 1;
  static constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
};

// nullptr as long as nobody has loaded libcuda.so.1 into this process, or when that one lacks a function.
// Any thread.
const CudaDriver* cuda_driver();

}  // namespace vhca
