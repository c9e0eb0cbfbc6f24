// SPDX-License-Identifier: Apache-2.0
// One rank of the two-process tests: loads the built plugin as NCCL does and moves a few messages through it.
//   plugin_peer send|receive|init VERSION LIBRARY
// PEER_MEMORY=dma-buf: with memory that is registered by a descriptor. Descriptor 3 leads to the other rank
// (for the connect handle). Exit 0: everything was as it should be.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "r2ccl/plugin/testing/any_version.h"

namespace r2ccl::plugin_test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOtherRank = 3;
constexpr std::chrono::seconds kPatience{40};
const std::vector<size_t> kSizes = {8, 0, 1, 127, 4096, 65536 + 8, 1 << 20, 3, 1 << 20};
constexpr size_t kLargest = 1 << 20;

void logger(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  if (level > NCCL_LOG_WARN && !std::getenv("PEER_VERBOSE")) return;
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputc('\n', stderr);
}

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "plugin_peer %d: %s\n", getpid(), what.c_str());
  std::_Exit(1);
}

void check(bool fine, const std::string& what) {
  if (!fine) give_up(what);
}

void good(ncclResult_t result, const std::string& call) {
  check(result == ncclSuccess, call + " returned " + std::to_string(result));
}

/// Repeats `step` until it says true; gives up when patience ends.
template <typename Step>
void until(const std::string& what, Step&& step) {
  const auto end = Clock::now() + kPatience;
  while (!step()) {
    check(Clock::now() < end, what + ": nothing happened");
    sched_yield();
  }
}

unsigned char expected_byte(size_t message, size_t at) {
  return static_cast<unsigned char>(message * 31 + at * 7 + 1);
}

bool on_gpu() { return std::getenv("PEER_MEMORY") != nullptr; }

/// Where messages lie. A GPU's memory is a memfd here, and its address cannot be read or written.
class Memory {
 public:
  template <typename Net>
  Memory(const Net& net, void* comm) {
    if (!on_gpu()) {
      view_ = address_ = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      good(net.regMr(comm, address_, kLargest, NCCL_PTR_HOST, &registration_), "regMr");
      return;
    }
    constexpr off_t kBefore = 8192;
    const int fd = memfd_create("memory", MFD_CLOEXEC);
    check(fd >= 0 && ftruncate(fd, kBefore + static_cast<off_t>(kLargest)) == 0, "no memfd");
    view_ = map(PROT_READ | PROT_WRITE, MAP_SHARED, fd, kBefore);
    address_ = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    good(net.regMrDmaBuf(comm, address_, kLargest, NCCL_PTR_CUDA, kBefore, fd, &registration_),
         "regMrDmaBuf");
    close(fd);
  }
  unsigned char* view() const { return view_; }
  void* address() const { return address_; }
  void* registration() const { return registration_; }

 private:
  static unsigned char* map(int protection, int flags, int fd, off_t offset) {
    void* mapped = mmap(nullptr, kLargest, protection, flags, fd, offset);
    check(mapped != MAP_FAILED, "no memory");
    return static_cast<unsigned char*>(mapped);
  }
  unsigned char* view_ = nullptr;
  unsigned char* address_ = nullptr;
  void* registration_ = nullptr;
};

template <typename V>
class Rank {
 public:
  Rank(const typename V::Net& net) : plugin_{net} {
    good(plugin_.init(logger), "init");
    int count = 0;
    good(net.devices(&count), "devices");
    check(count == 2, "expected 2 devices, got " + std::to_string(count));
    typename V::Properties first, second;
    good(net.getProperties(0, &first), "getProperties");
    good(net.getProperties(1, &second), "getProperties");
    check(std::strcmp(first.name, second.name) != 0 && first.guid != second.guid, "NICs are not told apart");
    check(first.speed > 0 && first.maxComms > 0, "bad properties");
    check(first.ptrSupport == (on_gpu() ? NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF : NCCL_PTR_HOST),
          "another kind of memory is offered");
  }

  void receive() {
    alignas(16) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void* listener = nullptr;
    good(plugin_.listen(1, handle, &listener), "listen");
    check(write(kOtherRank, handle, sizeof handle) == sizeof handle, "the handle cannot be sent");
    void* comm = nullptr;
    until("accept", [&] {
      good(plugin_.accept(listener, &comm), "accept");
      return comm != nullptr;
    });
    good(plugin_.net.closeListen(listener), "closeListen");

    const Memory memory(plugin_.net, comm);
    void* registration = memory.registration();
    for (size_t message = 0; message < kSizes.size(); ++message) {
      std::memset(memory.view(), 0, kLargest);
      void* request = nullptr;
      until("irecv", [&] {
        request = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
        good(plugin_.irecv(comm, memory.address(), static_cast<int64_t>(kLargest), registration, &request),
             "irecv");
        return request != nullptr;
      });
      check(finish(request) == kSizes[message], "received another size than was sent");
      for (size_t at = 0; at < kLargest; ++at) {
        const unsigned char wanted = at < kSizes[message] ? expected_byte(message, at) : 0;
        if (memory.view()[at] != wanted)
          give_up("message " + std::to_string(message) + ": byte " + std::to_string(at) + " is wrong");
      }
      void* data = memory.address();
      int bytes = static_cast<int>(kSizes[message]);
      good(plugin_.net.iflush(comm, 1, &data, &bytes, &registration, &request), "iflush");
      check(request == nullptr, "a flush leaves something to test");
    }
    good(plugin_.net.deregMr(comm, registration), "deregMr");
    good(plugin_.net.closeRecv(comm), "closeRecv");
    good(plugin_.finalize(), "finalize");
  }

  void send() {
    alignas(16) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    check(read(kOtherRank, handle, sizeof handle) == sizeof handle, "the handle did not come");
    void* comm = nullptr;
    until("connect", [&] {
      good(plugin_.connect(0, handle, &comm), "connect");
      return comm != nullptr;
    });
    const Memory memory(plugin_.net, comm);
    void* registration = memory.registration();
    for (size_t message = 0; message < kSizes.size(); ++message) {
      for (size_t at = 0; at < kSizes[message]; ++at) memory.view()[at] = expected_byte(message, at);
      void* request = nullptr;
      until("isend", [&] {
        good(plugin_.isend(comm, memory.address(), static_cast<int64_t>(kSizes[message]), registration,
                           &request),
             "isend");
        return request != nullptr;
      });
      finish(request);
    }
    good(plugin_.net.deregMr(comm, registration), "deregMr");
    good(plugin_.net.closeSend(comm), "closeSend");
    good(plugin_.finalize(), "finalize");
  }

 private:
  size_t finish(void* request) {
    int done = 0;
    int bytes = -1;
    until("test", [&] {
      good(plugin_.net.test(request, &done, &bytes), "test");
      return done != 0;
    });
    return static_cast<size_t>(bytes);
  }

  Plugin<V> plugin_;
};

template <typename V>
int run(const std::string& role, void* library) {
  const auto* net = static_cast<const typename V::Net*>(dlsym(library, V::kSymbol));
  check(net != nullptr, std::string("no ") + V::kSymbol);
  if (role == "init") return Plugin<V>{*net}.init(logger);
  Rank<V> rank(*net);
  role == "send" ? rank.send() : rank.receive();
  return 0;
}

}  // namespace
}  // namespace r2ccl::plugin_test

int main(int argc, char** argv) {
  using namespace r2ccl::plugin_test;
  if (argc != 4) return 64;
  void* library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
  if (!library) give_up(dlerror());
  switch (std::atoi(argv[2])) {
    case 8:
      return run<Version8>(argv[1], library);
    case 9:
      return run<Version9>(argv[1], library);
    case 10:
      return run<Version10>(argv[1], library);
    case 11:
      return run<Version11>(argv[1], library);
    case 12:
      return run<Version12>(argv[1], library);
  }
  return 64;
}
