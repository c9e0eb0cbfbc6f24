// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1 without a GPU: memory is the host's, each stream is a thread that does its work
// in order, kernels are the functions that gpu_pattern.cu calls. For tests of the nccl workload alone.
//   STANDIN_CUDA_GPUS=N      how many GPUs there are (1)
//   STANDIN_CUDA_KERNELS=bad kernels write other values than they should
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/workload/nccl/gpu/gpu_pattern.h"
#include "harness/workload/nccl/testing/standin_stream.h"

namespace {

using r2bench::gpu::Pattern;
using Work = std::function<void()>;
using Graph = std::vector<Work>;

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  size_t undone = 0;
  Graph* captured = nullptr;  // work goes there instead
  std::thread thread{[this] { serve(); }};

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !queue.empty(); });
      const Work work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      lock.lock();
      --undone;
      changed.notify_all();
    }
  }
  void add(Work work) {
    if (captured) return captured->push_back(std::move(work));
    std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    ++undone;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return undone == 0; });
  }
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  Graph* captured = nullptr;

  void reach(uint64_t number) {
    std::lock_guard lock(mutex);
    reached = number;
    changed.notify_all();
  }
};

std::vector<Stream*> capturing;  // of the one capture that there may be

struct Kernel {
  std::string name;
};

const bool bad_kernels = std::getenv("STANDIN_CUDA_KERNELS") != nullptr;

template <typename T>
T argument(void** arguments, int index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof(T));
  return value;
}

constexpr int kSuccess = 0, kInvalidValue = 1, kNoDevice = 100, kNotFound = 500, kNotReady = 600,
              kCapture = 900;

}  // namespace

extern "C" {

void standin_enqueue(void* stream, void* work) {
  const std::unique_ptr<Work> owned(static_cast<Work*>(work));
  static_cast<Stream*>(stream)->add(*owned);
}

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  const char* gpus = std::getenv("STANDIN_CUDA_GPUS");
  *count = gpus ? std::atoi(gpus) : 1;
  return kSuccess;
}
int cuDeviceGet(int* device, int index) {
  int count = 0;
  cuDeviceGetCount(&count);
  if (index >= count) return kNoDevice;
  *device = index;
  return kSuccess;
}
int cuDeviceGetName(char* text, int length, int) {
  std::strncpy(text, "stand-in", size_t(length));
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 33 ? 0x1a : 0;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = nullptr;
  return kSuccess;
}
int cuCtxSetCurrent(void*) { return kSuccess; }
int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  // What a driver would refuse, it refuses as well.
  if (!std::strstr(static_cast<const char*>(image), ".visible .entry r2bench_fill")) return kInvalidValue;
  *module = const_cast<void*>(image);
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (!std::strstr(static_cast<const char*>(module), (std::string(".visible .entry ") + name + "(").c_str()))
    return kNotFound;
  *function = new Kernel{name};  // lives as long as the process
  return kSuccess;
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void* stream, void** p, void**) {
  using namespace r2bench::gpu;  // NOLINT
  const std::string& name = static_cast<Kernel*>(function)->name;
  auto* out = reinterpret_cast<char*>(argument<uint64_t>(p, 0));
  Work work;
  if (name == "r2bench_fill") {
    work = [=, first = argument<uint64_t>(p, 1), count = argument<uint64_t>(p, 2),
            pattern = argument<Pattern>(p, 3), factor = argument<uint32_t>(p, 4)] {
      for (uint64_t k = 0; k < count; ++k) fill_element(pattern, out, first + bad_kernels, k, factor);
    };
  } else if (name == "r2bench_count_wrong") {
    work = [=, first = argument<uint64_t>(p, 1), count = argument<uint64_t>(p, 2),
            pattern = argument<Pattern>(p, 3),
            factors = reinterpret_cast<const uint32_t*>(argument<uint64_t>(p, 4)),
            members = argument<uint32_t>(p, 5), error = argument<double>(p, 6),
            total = reinterpret_cast<uint64_t*>(argument<uint64_t>(p, 7))] {
      for (uint64_t k = 0; k < count; ++k)
        *total += is_wrong(pattern, out, first, k, factors, members, error);
    };
  } else {
    work = [=, count = argument<uint64_t>(p, 1),
            total = reinterpret_cast<uint64_t*>(argument<uint64_t>(p, 2))] {
      for (uint64_t k = 0; k < count; ++k) *total += static_cast<unsigned char>(out[k]) != 0xff;
    };
  }
  static_cast<Stream*>(stream)->add(std::move(work));
  return kSuccess;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = reinterpret_cast<uint64_t>(std::malloc(bytes));
  return kSuccess;
}
int cuMemFree_v2(uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  const auto* data = static_cast<const char*>(from);
  static_cast<Stream*>(stream)->add([to, copy = std::vector<char>(data, data + bytes)] {
    std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size());
  });
  return kSuccess;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void* stream) {
  static_cast<Stream*>(stream)->add([=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
  return kSuccess;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream;  // its thread never ends
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  static_cast<Stream*>(stream)->wait();
  return kSuccess;
}
int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return kSuccess;
}
int cuEventRecord(void* handle, void* stream) {
  auto* event = static_cast<Event*>(handle);
  auto* on = static_cast<Stream*>(stream);
  event->captured = on->captured;
  if (on->captured) return kSuccess;
  uint64_t number;
  {
    std::lock_guard lock(event->mutex);
    number = ++event->recorded;
  }
  on->add([=] { event->reach(number); });
  return kSuccess;
}
int cuEventQuery(void* handle) {
  auto* event = static_cast<Event*>(handle);
  std::lock_guard lock(event->mutex);
  return event->reached == event->recorded ? kSuccess : kNotReady;
}
int cuStreamWaitEvent(void* stream, void* handle, unsigned) {
  auto* event = static_cast<Event*>(handle);
  auto* on = static_cast<Stream*>(stream);
  if (event->captured) {  // work is captured in the order of the calls, which is one that the graph allows
    if (!on->captured) capturing.push_back(on);
    on->captured = event->captured;
    return kSuccess;
  }
  uint64_t number;
  {
    std::lock_guard lock(event->mutex);
    number = event->recorded;
  }
  on->add([=] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->reached >= number; });
  });
  return kSuccess;
}
int cuStreamBeginCapture_v2(void* stream, int) {
  if (!capturing.empty()) return kCapture;
  auto* on = static_cast<Stream*>(stream);
  on->captured = new Graph;
  capturing = {on};
  return kSuccess;
}
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = static_cast<Stream*>(stream)->captured;
  for (Stream* each : capturing) each->captured = nullptr;
  capturing.clear();
  return kSuccess;
}
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  if (static_cast<Graph*>(graph)->empty()) return kInvalidValue;
  *exec = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
int cuGraphExecDestroy(void* exec) { return cuGraphDestroy(exec); }
int cuGraphLaunch(void* exec, void* stream) {
  for (const Work& work : *static_cast<Graph*>(exec)) static_cast<Stream*>(stream)->add(work);
  return kSuccess;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_STANDIN";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "the stand-in refuses";
  return kSuccess;
}
}
