// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a GPU, for tests: what a program and the virtual HCA ask of the driver, over memory
// of its own. As on a GPU, a device address can be neither read nor written by the CPU, a copy is made when
// its stream is synchronised and no sooner, a process opens others' handles and never its own, each of them
// once, calls need a current context, and nothing works in a forked child. It is strict where the driver may
// be lenient.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr int kGpus = 2;
constexpr int kInvalidValue = 1, kNotInitialized = 3, kInvalidContext = 201, kAlreadyMapped = 208,
              kInvalidHandle = 400;

struct Handle {
  char path[48];  // of the memory's descriptor in the process that allocated it
  int pid;
  int gpu;
  uint64_t bytes;
};
static_assert(sizeof(Handle) == 64);

struct Allocation {
  uint64_t bytes;
  char* view;  // where the CPU may look, this library only
  int fd;      // −1: another process's
  int gpu;
  bool exportable, managed;
  Handle handle;
};

struct Copy {
  void* stream;
  void* to;
  const void* from;
  size_t bytes;
};

std::mutex g_lock;  // guards the following
std::map<uint64_t, Allocation> g_allocations;
std::vector<Copy> g_queued;
int g_pid = 0;
int g_failure = 0;
std::atomic<int> g_copies{0}, g_opens{0}, g_open_now{0};
thread_local std::vector<void*> t_contexts;

void* primary(int gpu) { return reinterpret_cast<void*>(uintptr_t(0x1000 + gpu)); }
int current_gpu() { return t_contexts.empty() ? -1 : int(uintptr_t(t_contexts.back()) - 0x1000); }
bool initialized() { return g_pid == getpid(); }

// The allocation that [at, at + bytes) lies in. Needs the lock.
std::map<uint64_t, Allocation>::iterator find(uint64_t at, size_t bytes = 1) {
  auto it = g_allocations.upper_bound(at);
  if (it == g_allocations.begin()) return g_allocations.end();
  --it;
  return at - it->first < it->second.bytes && bytes <= it->second.bytes - (at - it->first)
             ? it
             : g_allocations.end();
}

// Needs the lock.
uint64_t map_memory(int fd, size_t bytes, Allocation allocation) {
  void* const address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* const view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED || view == MAP_FAILED) return 0;
  allocation.view = static_cast<char*>(view);
  g_allocations[uint64_t(address)] = allocation;
  return uint64_t(address);
}

int queue(void* stream, uint64_t to, uint64_t from, bool to_gpu, bool from_gpu, size_t bytes) {
  const std::lock_guard lock(g_lock);
  if (!initialized()) return kNotInitialized;
  if (t_contexts.empty()) return kInvalidContext;
  if (g_failure != 0) return g_failure;
  Copy copy{stream, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes};
  if (to_gpu) {
    const auto it = find(to, bytes);
    if (it == g_allocations.end()) return kInvalidValue;
    copy.to = it->second.view + (to - it->first);
  }
  if (from_gpu) {
    const auto it = find(from, bytes);
    if (it == g_allocations.end()) return kInvalidValue;
    copy.from = it->second.view + (from - it->first);
  }
  g_queued.push_back(copy);
  return 0;
}

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread")))  // a GPU's accesses are no data race of the program
#endif
void carry_out(const Copy& copy) {
  auto* to = static_cast<char*>(copy.to);
  auto* from = static_cast<const char*>(copy.from);
#if defined(__SANITIZE_THREAD__)
  for (size_t i = 0; i < copy.bytes; ++i) reinterpret_cast<volatile char*>(to)[i] = from[i];
#else
  memmove(to, from, copy.bytes);
#endif
}

}  // namespace

extern "C" {
#define STAND_IN __attribute__((visibility("default")))
STAND_IN int cuInit(unsigned) {
  const std::lock_guard lock(g_lock);
  if (g_pid != 0 && g_pid != getpid()) return kNotInitialized;
  g_pid = getpid();
  return 0;
}
STAND_IN int cuDeviceGetCount(int* count) {
  if (!initialized()) return kNotInitialized;
  *count = kGpus;
  return 0;
}
STAND_IN int cuDeviceGetUuid(unsigned char* uuid, int gpu) {
  if (!initialized()) return kNotInitialized;
  if (gpu < 0 || gpu >= kGpus) return kInvalidValue;
  memset(uuid, 0xa0 + gpu, 16);
  return 0;
}
STAND_IN int cuDevicePrimaryCtxRetain(void** context, int gpu) {
  if (!initialized()) return kNotInitialized;
  *context = primary(gpu);
  return 0;
}
STAND_IN int cuCtxPushCurrent_v2(void* context) {
  t_contexts.push_back(context);
  return 0;
}
STAND_IN int cuCtxPopCurrent_v2(void** context) {
  if (t_contexts.empty()) return kInvalidContext;
  *context = t_contexts.back();
  t_contexts.pop_back();
  return 0;
}
STAND_IN int cuStreamCreate(void** stream, unsigned) {
  if (t_contexts.empty()) return kInvalidContext;
  static std::atomic<uintptr_t> next{0x5000};
  *stream = reinterpret_cast<void*>(next.fetch_add(1));
  return 0;
}
STAND_IN int cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(g_lock);
  if (!initialized()) return kNotInitialized;
  std::erase_if(g_queued, [&](const Copy& copy) {
    if (copy.stream != stream) return false;
    carry_out(copy);
    ++g_copies;
    return true;
  });
  return g_failure;
}
STAND_IN int cuMemAlloc_v2(uint64_t* out, size_t bytes) {
  const std::lock_guard lock(g_lock);
  if (!initialized()) return kNotInitialized;
  if (t_contexts.empty()) return kInvalidContext;
  const int fd = memfd_create("stand-in-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, off_t(bytes)) != 0) return kInvalidValue;
  Allocation allocation{bytes, nullptr, fd, current_gpu(), true, false, {}};
  snprintf(allocation.handle.path, sizeof allocation.handle.path, "/proc/%d/fd/%d", getpid(), fd);
  allocation.handle.pid = getpid();
  allocation.handle.gpu = allocation.gpu;
  allocation.handle.bytes = bytes;
  *out = map_memory(fd, bytes, allocation);
  return *out != 0 ? 0 : kInvalidValue;
}
STAND_IN int cuMemFree_v2(uint64_t at) {
  const std::lock_guard lock(g_lock);
  const auto it = g_allocations.find(at);
  if (it == g_allocations.end() || it->second.fd < 0) return kInvalidValue;
  munmap(reinterpret_cast<void*>(at), it->second.bytes);
  munmap(it->second.view, it->second.bytes);
  close(it->second.fd);
  g_allocations.erase(it);
  return 0;
}
STAND_IN int cuPointerGetAttribute(void* value, int attribute, uint64_t at) {
  const std::lock_guard lock(g_lock);
  if (!initialized()) return kNotInitialized;
  const auto it = find(at);
  if (it == g_allocations.end()) return kInvalidValue;
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(value) = 2;
      return 0;
    case 8:
      *static_cast<unsigned*>(value) = it->second.managed;
      return 0;
    case 9:
      *static_cast<int*>(value) = it->second.gpu;
      return 0;
    default:
      return kInvalidValue;
  }
}
STAND_IN int cuMemGetAddressRange_v2(uint64_t* base, size_t* bytes, uint64_t at) {
  const std::lock_guard lock(g_lock);
  if (t_contexts.empty()) return kInvalidContext;
  const auto it = find(at);
  if (it == g_allocations.end()) return kInvalidValue;
  *base = it->first;
  *bytes = it->second.bytes;
  return 0;
}
STAND_IN int cuIpcGetMemHandle(Handle* handle, uint64_t at) {
  const std::lock_guard lock(g_lock);
  if (t_contexts.empty()) return kInvalidContext;
  const auto it = g_allocations.find(at);
  if (it == g_allocations.end() || !it->second.exportable) return kInvalidValue;
  *handle = it->second.handle;
  return 0;
}
STAND_IN int cuIpcOpenMemHandle_v2(uint64_t* out, Handle handle, unsigned flags) {
  const std::lock_guard lock(g_lock);
  if (!initialized()) return kNotInitialized;
  if (current_gpu() != handle.gpu || flags != 1) return kInvalidContext;
  if (handle.pid == getpid()) return kInvalidContext;
  for (const auto& [at, allocation] : g_allocations)
    if (memcmp(&allocation.handle, &handle, sizeof handle) == 0) return kAlreadyMapped;
  const int fd = open(handle.path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidHandle;
  *out = map_memory(fd, handle.bytes, {handle.bytes, nullptr, -1, handle.gpu, false, false, handle});
  close(fd);
  if (*out == 0) return kInvalidHandle;
  ++g_opens;
  ++g_open_now;
  return 0;
}
STAND_IN int cuIpcCloseMemHandle(uint64_t at) {
  const std::lock_guard lock(g_lock);
  const auto it = g_allocations.find(at);
  if (it == g_allocations.end() || it->second.fd >= 0) return kInvalidValue;
  munmap(reinterpret_cast<void*>(at), it->second.bytes);
  munmap(it->second.view, it->second.bytes);
  g_allocations.erase(it);
  --g_open_now;
  return 0;
}
STAND_IN int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return queue(stream, to, uint64_t(from), true, false, bytes);
}
STAND_IN int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return queue(stream, uint64_t(to), from, false, true, bytes);
}
STAND_IN int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return queue(stream, to, from, true, true, bytes);
}

// What tests ask of it beside. The CPU's view of device memory: what a kernel would read there.
STAND_IN char* stand_in_view(uint64_t at) {
  const std::lock_guard lock(g_lock);
  const auto it = find(at);
  return it == g_allocations.end() ? nullptr : it->second.view + (at - it->first);
}
STAND_IN int stand_in_descriptor(uint64_t at) {  // the memory's "dma-buf"; stays the library's
  const std::lock_guard lock(g_lock);
  const auto it = find(at);
  return it == g_allocations.end() ? -1 : it->second.fd;
}
STAND_IN void stand_in_mark(uint64_t at, int exportable, int managed) {
  const std::lock_guard lock(g_lock);
  g_allocations.at(at).exportable = exportable;
  g_allocations.at(at).managed = managed;
}
STAND_IN void stand_in_fail(int error) {  // every copy from now on; 0: none
  const std::lock_guard lock(g_lock);
  g_failure = error;
}
STAND_IN int stand_in_count(const char* what) {
  if (strcmp(what, "copies") == 0) return g_copies;
  return strcmp(what, "opens") == 0 ? g_opens.load() : g_open_now.load();
}
}
