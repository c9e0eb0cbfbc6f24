// SPDX-License-Identifier: Apache-2.0
// The test plugin's net, v8 … v12.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "harness/workload/cpu/testing/testnet/testnet.h"

namespace testnet {
namespace {

ncclResult_t start(void* comm_pointer, void* data, size_t size, bool sending, void** request) {
  Comm& comm = *static_cast<Comm*>(comm_pointer);
  static const bool busy = number("TESTNET_BUSY", 0) != 0;
  if (busy && comm.calls++ % 2 == 0) {
    *request = nullptr;
    return ncclSuccess;
  }
  auto* r = new Request{&comm, static_cast<char*>(data), uint32_t(size)};
  const long message = r->number = comm.messages++;
  r->leaves = std::chrono::steady_clock::now() + slowness();
  if (sending && fault().is("drop", message)) {
    r->done = true;
  } else {
    if (sending && fault().is("duplicate", message)) r->times = 2;
    if (!sending && fault().is("stale", message)) r->before.assign(r->data, size);
    comm.queue.push_back(r);
  }
  *request = r;
  return ncclSuccess;
}

// Sizes are int in v8, size_t from v9 on; from v10 on there are handles of the profiler.
template <typename Size>
ncclResult_t isend(void* comm, void* data, Size size, int, void*, void** request) {
  return start(comm, data, size_t(size), true, request);
}
ncclResult_t isend(void* comm, void* data, size_t size, int, void*, void*, void** request) {
  return start(comm, data, size, true, request);
}
template <typename Size>
ncclResult_t irecv(void* comm, int, void** data, Size* size, int*, void**, void** request) {
  return start(comm, data[0], size_t(size[0]), false, request);
}
ncclResult_t irecv(void* comm, int, void** data, size_t* size, int*, void**, void**, void** request) {
  return start(comm, data[0], size[0], false, request);
}

ncclResult_t test(void* request, int* done, int* size) {
  auto* r = static_cast<Request*>(request);
  Comm& comm = *r->comm;
  const long message = r->number;
  *done = 0;
  if (fault().since("hang", message)) return ncclSuccess;
  if (fault().since("stuck", message))
    while (true) pause();
  if (fault().since("crash", message)) raise(SIGKILL);
  if (fault().since("error", message) || fault().since("dies", message)) {
    const ncclResult_t result = fail("told to fail");
    std::thread([] { fail("something else, said by another thread"); }).join();
    return result;
  }
  if (comm.sending && std::chrono::steady_clock::now() < r->leaves) return ncclSuccess;
  if (!r->done && !advance(comm)) return fail("the peer closed the connection");
  if (!r->done) return ncclSuccess;
  if (!comm.sending && fault().is("stale", message)) std::memcpy(r->data, r->before.data(), r->size);
  if (!comm.sending) fault().spoil(r->data, r->size, message);
  if (size) *size = int(r->size);
  *done = 1;
  delete r;
  return ncclSuccess;
}

ncclResult_t connect_to(int, void* handle, void** comm, ncclNetDeviceHandle_t**) {
  auto* h = static_cast<Handle*>(handle);
  *comm = nullptr;
  if (h->tries++ < 3) return ncclSuccess;  // "call again", with the progress kept in the handle
  auto result = std::make_unique<Comm>();
  result->fd = connected(*h);
  result->sending = true;
  if (result->fd < 0) return fail("cannot connect");
  *comm = result.release();
  return ncclSuccess;
}

ncclResult_t connect_to(int device, ncclNetCommConfig_t*, void* handle, void** comm,
                        ncclNetDeviceHandle_t** offload) {
  return connect_to(device, handle, comm, offload);
}
ncclResult_t connect_to(void* context, int device, void* handle, void** comm,
                        ncclNetDeviceHandle_t** offload) {
  return is_context(context) ? connect_to(device, handle, comm, offload) : ncclInvalidArgument;
}

ncclResult_t accept_from(void* listener, void** comm, ncclNetDeviceHandle_t**) {
  *comm = nullptr;
  const int fd = accept4(static_cast<Listener*>(listener)->fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return errno == EAGAIN ? ncclSuccess : ncclSystemError;
  auto result = std::make_unique<Comm>();
  result->fd = fd;
  *comm = result.release();
  return ncclSuccess;
}

ncclResult_t flush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return ncclSuccess;
}

ncclResult_t close_comm(void* comm) {
  std::unique_ptr<Comm> owned(static_cast<Comm*>(comm));
  if (fault().what == "error") static_cast<void>(fail("closed after an error"));
  if (fault().what == "dies") raise(SIGUSR1);
  for (Request* r : owned->queue) delete r;
  close(owned->fd);
  return ncclSuccess;
}

template <typename Net>
constexpr Net members() {
  Net net = common_members<Net>();
  net.connect = connect_to;
  net.accept = accept_from;
  net.isend = isend;
  net.irecv = irecv;
  net.iflush = flush;
  net.test = test;
  net.closeSend = net.closeRecv = close_comm;
  return net;
}

}  // namespace
}  // namespace testnet

#ifdef TESTNET_IS_LIBNCCL
// Nothing but the number of its version is exported, as of the IB transport in NCCL itself.
[[gnu::visibility("hidden")]] extern const testnet::ncclNet_v12_t ncclNetIb;
[[gnu::used]] const testnet::ncclNet_v12_t ncclNetIb = testnet::members<testnet::ncclNet_v12_t>();

extern "C" int ncclGetVersion(int* version) {
  const char* const given = std::getenv("TESTNET_NCCL_VERSION");
  *version = given ? std::atoi(given) : 23203;
  return 0;
}
#else
extern "C" {

extern const testnet::ncclNet_v8_t ncclNetPlugin_v8;
extern const testnet::ncclNet_v9_t ncclNetPlugin_v9;
extern const testnet::ncclNet_v10_t ncclNetPlugin_v10;
extern const testnet::ncclNet_v11_t ncclNetPlugin_v11;
extern const testnet::ncclNet_v12_t ncclNetPlugin_v12;

const testnet::ncclNet_v8_t ncclNetPlugin_v8 = testnet::members<testnet::ncclNet_v8_t>();
const testnet::ncclNet_v9_t ncclNetPlugin_v9 = testnet::members<testnet::ncclNet_v9_t>();
const testnet::ncclNet_v10_t ncclNetPlugin_v10 = testnet::members<testnet::ncclNet_v10_t>();
const testnet::ncclNet_v11_t ncclNetPlugin_v11 = testnet::members<testnet::ncclNet_v11_t>();
const testnet::ncclNet_v12_t ncclNetPlugin_v12 = testnet::members<testnet::ncclNet_v12_t>();

}  // extern "C"
#endif
