// One rank of the two-process tests: loads the built plugin as NCCL does and moves a few messages through it.
//   plugin_peer send|receive|init VERSION LIBRARY
// Descriptor 3 leads to the other rank (for the connect handle). Exit 0: everything was as it should be.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "r2ccl/plugin/tests/any_version.h"

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
    check(first.speed > 0 && first.maxComms > 0 && first.ptrSupport == NCCL_PTR_HOST, "bad properties");
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

    std::vector<unsigned char> memory(kLargest);
    void* registration = nullptr;
    good(plugin_.net.regMr(comm, memory.data(), memory.size(), NCCL_PTR_HOST, &registration), "regMr");
    for (size_t message = 0; message < kSizes.size(); ++message) {
      std::memset(memory.data(), 0, memory.size());
      void* request = nullptr;
      until("irecv", [&] {
        request = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
        good(plugin_.irecv(comm, memory.data(), static_cast<int64_t>(memory.size()), registration, &request),
             "irecv");
        return request != nullptr;
      });
      check(finish(request) == kSizes[message], "received another size than was sent");
      for (size_t at = 0; at < kLargest; ++at) {
        const unsigned char wanted = at < kSizes[message] ? expected_byte(message, at) : 0;
        if (memory[at] != wanted)
          give_up("message " + std::to_string(message) + ": byte " + std::to_string(at) + " is wrong");
      }
      void* data = memory.data();
      int bytes = static_cast<int>(kSizes[message]);
      good(plugin_.net.iflush(comm, 1, &data, &bytes, &registration, &request), "iflush");
      check(request == nullptr, "host memory asked for a flush");
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
    std::vector<unsigned char> memory(kLargest);
    void* registration = nullptr;
    good(plugin_.net.regMr(comm, memory.data(), memory.size(), NCCL_PTR_HOST, &registration), "regMr");
    for (size_t message = 0; message < kSizes.size(); ++message) {
      for (size_t at = 0; at < kSizes[message]; ++at) memory[at] = expected_byte(message, at);
      void* request = nullptr;
      until("isend", [&] {
        good(
            plugin_.isend(comm, memory.data(), static_cast<int64_t>(kSizes[message]), registration, &request),
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
