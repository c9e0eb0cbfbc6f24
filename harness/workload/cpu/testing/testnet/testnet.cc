// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/testing/testnet/testnet.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace testnet {
namespace {

ncclDebugLogger_t g_logger = nullptr;
int g_context;  // its address is the context
std::chrono::milliseconds g_slowness{0};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  return address;
}

}  // namespace

long number(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atol(text) : otherwise;
}

Fault::Fault() {
  const char* text = std::getenv("TESTNET_FAULT");
  if (!text) return;
  const std::string all = text;
  const size_t a = all.find(':'), b = all.rfind(':');
  if (a == b || std::atol(all.c_str() + a + 1) != number("R2BENCH_RANK", -1)) return;
  what = all.substr(0, a);
  at = std::atol(all.c_str() + b + 1);
}

void Fault::spoil(char* received, size_t size, long message) const {
  // A high bit of a float's fraction: a low one could be rounded off where the message is added to another.
  if (is("corrupt", message) && size >= 4) received[size / 2 / 4 * 4 + 2] ^= 0x40;
  if (is("shift", message) && size > 4) std::memmove(received + 4, received, size - 4);
}

const Fault& fault() {
  static const Fault instance;
  return instance;
}

std::chrono::milliseconds slowness() { return g_slowness; }

ncclResult_t fail(const char* what) {
  if (g_logger) g_logger(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "testnet0: %s", what);
  return ncclRemoteError;
}

bool advance(Comm& comm) {
  while (!comm.queue.empty()) {
    Request& r = *comm.queue.front();
    const bool in_header = r.moved < sizeof(r.header);
    if (comm.sending && r.moved == 0) r.header = r.size;
    char* at =
        in_header ? reinterpret_cast<char*>(&r.header) + r.moved : r.data + (r.moved - sizeof(r.header));
    const size_t want = in_header ? sizeof(r.header) - r.moved : r.header - (r.moved - sizeof(r.header));
    if (want > 0) {
      const ssize_t n = comm.sending ? send(comm.fd, at, want, MSG_NOSIGNAL | MSG_DONTWAIT)
                                     : recv(comm.fd, at, want, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (n < 0) return true;
      r.moved += size_t(n);
      if (!comm.sending && r.moved == sizeof(r.header) && r.header > r.size) return false;  // does not fit
    }
    if (r.moved < sizeof(r.header) || r.moved - sizeof(r.header) < r.header) continue;
    if (comm.sending && --r.times > 0) {
      r.moved = 0;
      continue;
    }
    r.size = r.header;
    r.done = true;
    comm.queue.pop_front();
  }
  return true;
}

int connected(const Handle& handle) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(handle.port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

ncclResult_t init(ncclDebugLogger_t logger) {
  if (std::getenv("TESTNET_SHOW") != nullptr)
    for (const char* variable :
         {"R2CC_TOPOLOGY", "R2CC_MEMORY_NODE", "R2CC_CROSS_SOCKET", "VHCA_MEMORY_NODE"})
      if (const char* value = std::getenv(variable)) std::fprintf(stderr, "%s=%s\n", variable, value);
  g_slowness = std::chrono::milliseconds(number("TESTNET_SLOW", 0));
  g_logger = logger;
  return ncclSuccess;
}

ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t) { return init(logger); }
ncclResult_t init(void** context, uint64_t, ncclDebugLogger_t logger) {
  *context = &g_context;
  return init(logger);
}
ncclResult_t init(void** context, uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t logger,
                  ncclProfilerCallback_t) {
  return init(context, 0, logger);
}
bool is_context(const void* context) { return context == &g_context; }
ncclResult_t finalize(void* context) { return is_context(context) ? ncclSuccess : ncclInvalidArgument; }

ncclResult_t devices(int* count) {
  *count = 2;
  return ncclSuccess;
}

char* name_of(int device) {
  static std::string names[64];
  names[device] = "testnet" + std::to_string(device);
  return names[device].data();
}

ncclResult_t listen_on(int, void* handle, void** listener) {
  auto result = std::make_unique<Listener>();
  result->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof(address);
  if (bind(result->fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(result->fd, 4) != 0 ||
      getsockname(result->fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return ncclSystemError;
  *static_cast<Handle*>(handle) = {address.sin_port, 0};
  *listener = result.release();
  return ncclSuccess;
}

ncclResult_t listen_on(void* context, int device, void* handle, void** listener) {
  return is_context(context) ? listen_on(device, handle, listener) : ncclInvalidArgument;
}

ncclResult_t close_listener(void* listener) {
  std::unique_ptr<Listener> owned(static_cast<Listener*>(listener));
  close(owned->fd);
  return ncclSuccess;
}

ncclResult_t reg(void*, void* data, size_t, int type, void** registration) {
  if (type != NCCL_PTR_HOST) return ncclInvalidArgument;
  *registration = data;
  return ncclSuccess;
}

ncclResult_t reg_dma_buf(void*, void*, size_t, int, uint64_t, int, void**) { return ncclInvalidUsage; }

ncclResult_t dereg(void*, void*) { return ncclSuccess; }

}  // namespace testnet
