// SPDX-License-Identifier: Apache-2.0
// NCCL's C interface, bound at run time from any libnccl (2.19 or later): one process can tell one version
// from another, and this project builds without NCCL. The declarations are our own; names and numbers are
// NCCL's ABI.
#pragma once

#include <climits>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "harness/scenario/scenario.h"
#include "harness/workload/nccl/cuda_driver.h"

namespace r2bench::nccl {

using Comm = struct CommHandle*;
inline constexpr size_t kUniqueIdBytes = 128;
struct UniqueId {
  char bytes[kUniqueIdBytes];
};

inline constexpr int kSuccess = 0;
inline constexpr int kInProgress = 7;
inline constexpr int kScalarOnHost = 1;
inline constexpr int kShrinkAtRest = 0, kShrinkAbort = 1;

/// The beginning of ncclConfig_t as NCCL 2.17 has it; later versions take the rest as not set.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  ///< not set
  const char* net_name = nullptr;  ///< the network of this communicator alone
};

/// NCCL reported an error: its sentence, and what it said last.
class NcclError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of a reduction that NCCL has by itself; premulsum is made per communicator.
int operation_number(Reduction reduction);

struct Library {
  /// `path` as dlopen takes it. Throws NcclError.
  explicit Library(const std::string& path);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// "2.28.9"
  std::string version() const;
  /// Throws NcclError unless `result` is success. `comm` may be NULL.
  void check(int result, const char* call, Comm comm = nullptr) const;
  /// Throws NcclError when the communicator has failed since it was last asked.
  void check_async(Comm comm) const;
  /// Throws NcclError when this version lacks what such a renewal calls.
  void check_can(RenewBy by) const;
  /// Throws NcclError when this version lacks a function: its name, what needs it, and which version has it.
  template <typename F>
  void check_has(F* function, const char* symbol, const char* who, const char* since) const {
    if (!function)
      throw NcclError("NCCL " + version() + " has no " + symbol + ", which " + who + " needs; " + since +
                      " and later have");
  }

  int (*GetVersion)(int*);
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(Comm*, int, UniqueId, int);
  int (*CommInitRankConfig)(Comm*, int, UniqueId, int, Config*);  ///< may be NULL
  int (*CommDestroy)(Comm);
  int (*CommAbort)(Comm);
  int (*CommGetAsyncError)(Comm, int*);
  const char* (*GetErrorString)(int);
  const char* (*GetLastError)(Comm);  ///< may be NULL
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void*, void*, size_t, int, int, Comm, cuda::Stream);
  int (*AllGather)(const void*, void*, size_t, int, Comm, cuda::Stream);
  int (*ReduceScatter)(const void*, void*, size_t, int, int, Comm, cuda::Stream);
  int (*Broadcast)(const void*, void*, size_t, int, int, Comm, cuda::Stream);
  int (*Send)(const void*, size_t, int, int, Comm, cuda::Stream);
  int (*Recv)(void*, size_t, int, int, Comm, cuda::Stream);
  int (*RedOpCreatePreMulSum)(int*, void*, int, int, Comm);
  // nullptr where the version has none.
  int (*CommShrink)(Comm, int* without, int count, Comm* smaller, void* config, int flags);  ///< 2.27
  int (*CommRevoke)(Comm, int flags);                                                        ///< 2.28.7
  int (*CommFinalize)(Comm);                                                                 ///< 2.14
  int (*CommRegister)(Comm, void*, size_t, void** handle);                                   ///< 2.19
  int (*CommDeregister)(Comm, void* handle);                                                 ///< 2.19

 private:
  std::string describe(int result, Comm comm) const;
};

}  // namespace r2bench::nccl
