// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/gpu_copy.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "harness/vhca/base/log.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/memory/gpu_memory.h"

namespace vhca {
namespace {

constexpr int kNoSuchGpu = 101;  // CUDA_ERROR_INVALID_DEVICE

struct Gpu {
  void* context = nullptr;
  void* stream = nullptr;
  CudaDriver::Uuid uuid{};
};

// Another process's allocation, open in this one.
struct Opened {
  CudaDriver::IpcHandle handle;
  ProcessId owner;
  std::uint32_t key;  // of the memory region that was last used with it
  int gpu;
  CudaDriver::Pointer at;
};

// CUDA's objects do not survive a fork: a child begins with none.
struct GpuCopyState {
  pid_t pid = ::getpid();
  GpuCopyState* of_parent = nullptr;  // its lock may be taken for good
  std::recursive_mutex lock;          // guards the following, and each copy
  std::map<int, Gpu> gpus;            // by number in this process; entries stay
  std::vector<Opened> opened;
};

GpuCopyState& state() {
  static std::atomic<GpuCopyState*> current{nullptr};
  GpuCopyState* seen = current.load(std::memory_order_acquire);
  while (!seen || seen->pid != ::getpid()) {
    auto fresh = std::make_unique<GpuCopyState>();
    fresh->of_parent = seen;
    if (current.compare_exchange_strong(seen, fresh.get())) return *fresh.release();
  }
  return *seen;
}

// Needs the lock.
int find_gpu(const CudaDriver& cuda, GpuCopyState& its, int number, Gpu*& out) {
  if (const auto known = its.gpus.find(number); known != its.gpus.end()) {
    out = &known->second;
    return 0;
  }
  Gpu gpu;
  if (const int error = cuda.cuInit(0)) return error;
  if (const int error = cuda.cuDeviceGetUuid(&gpu.uuid, number)) return error;
  if (const int error = cuda.cuDevicePrimaryCtxRetain(&gpu.context, number)) return error;
  if (const int error = cuda.cuCtxPushCurrent(gpu.context)) return error;
  const int error = cuda.cuStreamCreate(&gpu.stream, CudaDriver::kNonBlockingStream);
  void* popped = nullptr;
  cuda.cuCtxPopCurrent(&popped);
  if (error != 0) return error;
  out = &its.gpus.emplace(number, gpu).first->second;
  return 0;
}

// The number in this process of the GPU with that UUID; -1: it is none of this process's.
int number_of_gpu(const CudaDriver& cuda, GpuCopyState& its, const unsigned char* uuid) {
  for (const auto& [number, gpu] : its.gpus)
    if (std::memcmp(gpu.uuid.bytes, uuid, sizeof gpu.uuid.bytes) == 0) return number;
  int count = 0;
  if (cuda.cuInit(0) != 0 || cuda.cuDeviceGetCount(&count) != 0) return -1;
  for (int number = 0; number < count; ++number) {
    CudaDriver::Uuid its_uuid;
    if (cuda.cuDeviceGetUuid(&its_uuid, number) == 0 &&
        std::memcmp(its_uuid.bytes, uuid, sizeof its_uuid.bytes) == 0)
      return number;
  }
  return -1;
}

bool is_valid(const Fabric& fabric, std::uint32_t key) {
  return fabric.memory_regions[key & (kMaxMemoryRegions - 1)].key.load() == key;
}

// Nobody comes back for the allocations of regions that are gone; others are opened again when they are
// needed.
void close_stale(const CudaDriver& cuda, GpuCopyState& its, const Fabric& fabric) {
  std::erase_if(its.opened, [&](const Opened& entry) {
    if (is_valid(fabric, entry.key) && process_liveness(fabric, entry.owner) != Liveness::kDead) return false;
    const GpuScope scope(cuda, entry.gpu);
    if (scope.error() == 0) cuda.cuIpcCloseMemHandle(entry.at);
    return true;
  });
}

struct Place {
  CudaDriver::Pointer at = 0;  // GPU memory, in this process; 0: host memory
  int gpu = -1;
};

int open_remote(const CudaDriver& cuda, GpuCopyState& its, const Fabric& fabric, const GpuRegion& region,
                std::uint32_t key, ProcessId owner, int gpu, CudaDriver::Pointer& base) {
  for (Opened& entry : its.opened) {
    if (entry.owner != owner ||
        std::memcmp(entry.handle.bytes, region.ipc_handle, sizeof region.ipc_handle) != 0)
      continue;
    // As long as a region of the allocation lives its memory is the one that was opened. Afterwards the same
    // handle might stand for another.
    if (entry.key != key && !is_valid(fabric, entry.key)) break;
    entry.key = key;
    base = entry.at;
    return 0;
  }
  close_stale(cuda, its, fabric);
  Opened entry{{}, owner, key, gpu, 0};
  std::memcpy(entry.handle.bytes, region.ipc_handle, sizeof region.ipc_handle);
  const GpuScope scope(cuda, gpu);
  if (scope.error() != 0) return scope.error();
  if (const int error = cuda.cuIpcOpenMemHandle(&entry.at, entry.handle, CudaDriver::kLazyPeerAccess))
    return error;
  its.opened.push_back(entry);
  base = entry.at;
  return 0;
}

// Where a side is in this process. Needs the lock.
int locate(const CudaDriver& cuda, GpuCopyState& its, const Fabric& fabric, ProcessId self,
           const GpuSide& side, Place& out) {
  if (!is_gpu(side.at)) return 0;
  const std::size_t slot = gpu_slot(side.at);
  const GpuRegion& region = fabric.gpu_regions[slot];
  out.gpu = number_of_gpu(cuda, its, region.gpu);
  if (out.gpu < 0) return kNoSuchGpu;
  const std::uint64_t offset = gpu_offset(side.at);
  if (side.owner == self) {  // a process cannot open what it has exported itself
    out.at = region.address + offset;
    return 0;
  }
  CudaDriver::Pointer base = 0;
  if (const int error = open_remote(cuda, its, fabric, region, fabric.memory_regions[slot].key.load(),
                                    side.owner, out.gpu, base))
    return error;
  out.at = base + (region.address - region.base) + offset;
  return 0;
}

void tell(const char* what, std::size_t bytes, int error) {
  static std::mutex lock;
  static std::vector<int>& told = *new std::vector<int>;  // threads may outlive static destructors
  const std::lock_guard guard(lock);
  if (std::find(told.begin(), told.end(), error) != told.end()) return;  // once for each kind
  told.push_back(error);
  log_line("a transfer of %zu bytes %s GPU memory fails: CUDA error %d%s", bytes, what, error,
           error == kNoSuchGpu ? " (its GPU is not visible to this process)" : "");
}

}  // namespace

GpuScope::GpuScope(const CudaDriver& driver, int gpu) : driver_(driver) {
  GpuCopyState& its = state();
  const std::lock_guard guard(its.lock);
  Gpu* found = nullptr;
  error_ = find_gpu(driver, its, gpu, found);
  if (error_ != 0) return;
  stream_ = found->stream;
  error_ = driver.cuCtxPushCurrent(found->context);
}

GpuScope::~GpuScope() {
  void* popped = nullptr;
  if (error_ == 0) driver_.cuCtxPopCurrent(&popped);
}

MoveStatus copy_gpu(Fabric& fabric, ProcessId self, GpuSide to, GpuSide from, std::size_t bytes,
                    const Hold* hold) {
  const auto blame = [&](const GpuSide& side) {
    return side.owner == self ? MoveStatus::kLocalFault : MoveStatus::kRemoteFault;
  };
  const CudaDriver* const cuda = cuda_driver();
  if (!cuda) {
    static const bool told = (log_line("a transfer to or from another process's GPU memory fails: this "
                                       "process has not loaded CUDA"),
                              true);
    static_cast<void>(told);
    return blame(to.owner != self ? to : from);
  }
  GpuCopyState& its = state();
  const std::lock_guard guard(its.lock);
  Place target, source;
  if (const int error = locate(*cuda, its, fabric, self, to, target)) {
    tell("into", bytes, error);
    return blame(to);
  }
  if (const int error = locate(*cuda, its, fabric, self, from, source)) {
    tell("from", bytes, error);
    return blame(from);
  }
  const GpuScope scope(*cuda, target.at != 0 ? target.gpu : source.gpu);
  int error = scope.error();
  if (error == 0) {
    if (hold && !hold->is_valid()) return MoveStatus::kGone;
    if (target.at != 0 && source.at != 0)
      error = cuda->cuMemcpyDtoDAsync(target.at, source.at, bytes, scope.stream());
    else if (target.at != 0)
      error = cuda->cuMemcpyHtoDAsync(target.at, from.at, bytes, scope.stream());
    else
      error = cuda->cuMemcpyDtoHAsync(to.at, source.at, bytes, scope.stream());
    const int finished = cuda->cuStreamSynchronize(scope.stream());
    if (error == 0) error = finished;
  }
  if (error == 0) return MoveStatus::kOk;
  tell(target.at != 0 ? "into" : "from", bytes, error);
  return blame(target.at != 0 ? to : from);
}

}  // namespace vhca
