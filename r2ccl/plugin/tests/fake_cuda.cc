// A libcuda.so.1 for tests: it knows two GPUs and the contexts of their memory, and counts what it is asked
// for. The only functions it has are those that a flush takes.
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {
std::atomic<int> g_flushes{0};
std::atomic<uint64_t> g_last_pointer{0};
std::atomic<void*> g_flushed_context{nullptr};
thread_local void* t_current = nullptr;
thread_local void* t_below = nullptr;

void* primary(int device) { return reinterpret_cast<void*>(uintptr_t(0x1000 + device)); }
}  // namespace

extern "C" {
#define FAKE __attribute__((visibility("default")))
FAKE int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  g_last_pointer = pointer;
  if (attribute == 9) *static_cast<int*>(value) = 1;
  if (attribute == 1) *static_cast<void**>(value) = primary(1);
  return attribute == 9 || attribute == 1 ? 0 : 1;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 117 ? 1 : 0;
  return attribute == 117 || attribute == 118 ? 0 : 1;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = primary(device);
  return 0;
}
FAKE int cuCtxGetCurrent(void** context) {
  *context = t_current;
  return 0;
}
FAKE int cuCtxPushCurrent_v2(void* context) {
  t_below = t_current;
  t_current = context;
  return 0;
}
FAKE int cuCtxPopCurrent_v2(void** context) {
  *context = t_current;
  t_current = t_below;
  return 0;
}
FAKE int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (target != 0 || scope != 100 || !t_current) return 1;
  g_flushed_context = t_current;
  ++g_flushes;
  return 0;
}
FAKE int fake_cuda_flushes() { return g_flushes; }
FAKE uint64_t fake_cuda_last_pointer() { return g_last_pointer; }
}
