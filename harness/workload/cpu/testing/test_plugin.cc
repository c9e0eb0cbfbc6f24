// SPDX-License-Identifier: Apache-2.0
// A net plugin for the tests of the workload: NCCL's net interface v8 … v12 over loopback TCP, so that the
// harness is proved against a plugin that is none of ours. On request it misbehaves in one exact way:
//   TESTNET_FAULT=<what>:<rank>:<n>   in the rank R2BENCH_RANK == <rank>, at its n-th message (from 0)
//     corrupt   one byte of the n-th received message is changed      drop       the n-th send never leaves
//     shift     the n-th received message begins an element late      duplicate  the n-th send leaves twice
//     stale     the n-th receive completes, its buffer as it was      error      test fails from then on
//     hang      nothing completes from then on                        stuck      test never returns
//     crash     the process kills itself                             dies       as error, and a signal ends
//     the
//                                                                               process when it closes
// An element has TESTNET_ELEMENT bytes (4 unless told).
// Its CollNet (v12; sums of float32) sends every rank's data to every other; there the n-th message is the
// n-th AllReduce of the group:
//     corrupt   one byte of the result is changed                 drop       what one rank gave is left out
//     shift     the result begins an element late                 duplicate  what one rank gave is added
//                                                                            twice
//     stale     it completes, the buffer of the result as it was
//   TESTNET_BUSY=1         every second isend and irecv returns a NULL request
//   TESTNET_UNSET=1        getProperties forgets maxP2pBytes
//   TESTNET_DEVICES=n      2 unless told
//   TESTNET_RATE=bytes/s   of each connection; 0 = as fast as it goes
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "r2ccl/base/clock.h"
#include "r2ccl/plugin/nccl_collnet_abi.h"

namespace {

using namespace r2ccl::nccl_abi;  // NOLINT

ncclDebugLogger_t g_logger = nullptr;

long number(const char* variable, long otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atol(text) : otherwise;
}

/// The misbehaviour that was asked of this rank.
struct Fault {
  std::string what;
  long at = -1;
  Fault() {
    const char* text = std::getenv("TESTNET_FAULT");
    if (!text) return;
    const std::string all = text;
    const size_t a = all.find(':'), b = all.rfind(':');
    if (a == b || std::atol(all.c_str() + a + 1) != number("R2BENCH_RANK", -1)) return;
    what = all.substr(0, a);
    at = std::atol(all.c_str() + b + 1);
  }
  bool is(const char* kind, long message) const { return message == at && what == kind; }
  bool since(const char* kind, long message) const { return at >= 0 && message >= at && what == kind; }
};
const Fault& fault() {
  static const Fault instance;
  return instance;
}

struct Comm;
struct Request {
  Comm* comm = nullptr;
  char* data = nullptr;
  uint32_t size = 0;  // of a receive: room, then what came
  size_t moved = 0;   // header included
  uint32_t header = 0;
  bool done = false;
  int times = 1;
  long number = 0;     // of the message in its comm
  std::string before;  // what the buffer held when a receive was posted that will be stale
};

struct Comm {
  int fd = -1;
  bool sending = false;
  std::deque<Request*> queue;
  long messages = 0;
  unsigned calls = 0;
  uint64_t start_ns = r2ccl::now_ns();
  uint64_t carried = 0;
};

struct Listener {
  int fd = -1;
};

struct Handle {
  uint16_t port;
  uint16_t tries;
};

ncclResult_t fail(const char* what) {
  if (g_logger) g_logger(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "testnet0: %s", what);
  return ncclRemoteError;
}

/// Moves bytes of the oldest requests. false: the peer is gone.
bool advance(Comm& comm) {
  static const double rate = double(number("TESTNET_RATE", 0));
  while (!comm.queue.empty()) {
    Request& r = *comm.queue.front();
    const bool in_header = r.moved < sizeof(r.header);
    if (comm.sending && r.moved == 0) r.header = r.size;
    char* at =
        in_header ? reinterpret_cast<char*>(&r.header) + r.moved : r.data + (r.moved - sizeof(r.header));
    size_t want = in_header ? sizeof(r.header) - r.moved : r.header - (r.moved - sizeof(r.header));
    if (want > 0) {
      if (comm.sending && rate > 0 && !in_header) {
        const double allowed = rate * double(r2ccl::now_ns() - comm.start_ns) / 1e9 - double(comm.carried);
        if (allowed < 1) return true;
        want = std::min<size_t>(want, size_t(allowed));
      }
      const ssize_t n = comm.sending ? send(comm.fd, at, want, MSG_NOSIGNAL | MSG_DONTWAIT)
                                     : recv(comm.fd, at, want, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (n < 0) return true;
      r.moved += size_t(n);
      if (!in_header) comm.carried += uint64_t(n);
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

ncclResult_t start(void* comm_pointer, void* data, size_t size, bool sending, void** request) {
  Comm& comm = *static_cast<Comm*>(comm_pointer);
  static const bool busy = number("TESTNET_BUSY", 0) != 0;
  if (busy && comm.calls++ % 2 == 0) {
    *request = nullptr;
    return ncclSuccess;
  }
  auto* r = new Request{&comm, static_cast<char*>(data), uint32_t(size)};
  const long message = r->number = comm.messages++;
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
  if (!r->done && !advance(comm)) return fail("the peer closed the connection");
  if (!r->done) return ncclSuccess;
  // A high bit of a float's fraction: a low one could be rounded off where the message is added to another.
  if (!comm.sending && fault().is("corrupt", message) && r->size >= 4)
    r->data[r->size / 2 / 4 * 4 + 2] ^= 0x40;
  if (!comm.sending && fault().is("stale", message)) std::memcpy(r->data, r->before.data(), r->size);
  const size_t element = size_t(number("TESTNET_ELEMENT", 4));
  if (!comm.sending && fault().is("shift", message) && r->size > element)
    std::memmove(r->data + element, r->data, r->size - element);
  if (size) *size = int(r->size);
  *done = 1;
  delete r;
  return ncclSuccess;
}

ncclResult_t devices(int* count) {
  *count = int(number("TESTNET_DEVICES", 2));
  return ncclSuccess;
}

template <typename Properties>
ncclResult_t properties(int device, Properties* p) {
  static std::string names[64];
  names[device] = "testnet" + std::to_string(device);
  p->name = names[device].data();
  p->pciPath = nullptr;
  p->guid = uint64_t(device) + 1;
  p->ptrSupport = NCCL_PTR_HOST;
  p->regIsGlobal = 0;
  p->speed = 10000;
  p->port = 1;
  p->latency = 0;
  p->maxComms = 1024;
  p->maxRecvs = 1;
  p->netDeviceType = NCCL_NET_DEVICE_HOST;
  p->netDeviceVersion = 0;
  if constexpr (requires { p->maxP2pBytes; }) {
    p->forceFlush = 0;
    p->vProps.ndevs = 1;
    p->vProps.devs[0] = device;
    if (number("TESTNET_UNSET", 0) == 0) p->maxP2pBytes = size_t{1} << 30;
    p->maxCollBytes = size_t{1} << 30;
  }
  if constexpr (requires { p->maxMultiRequestSize; }) p->maxMultiRequestSize = 1;
  if constexpr (requires { p->railId; }) p->railId = p->planeId = NCCL_NET_ID_UNDEF;
  return ncclSuccess;
}

ncclResult_t listen_on(int, void* handle, void** listener) {
  auto result = std::make_unique<Listener>();
  result->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(result->fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(result->fd, 4) != 0 ||
      getsockname(result->fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return ncclSystemError;
  *static_cast<Handle*>(handle) = {address.sin_port, 0};
  *listener = result.release();
  return ncclSuccess;
}

ncclResult_t connect_to(int, void* handle, void** comm, ncclNetDeviceHandle_t**) {
  auto* h = static_cast<Handle*>(handle);
  *comm = nullptr;
  if (h->tries++ < 3) return ncclSuccess;  // "call again", with the progress kept in the handle
  auto result = std::make_unique<Comm>();
  result->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  result->sending = true;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = h->port;
  if (connect(result->fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return fail("cannot connect");
  *comm = result.release();
  return ncclSuccess;
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

ncclResult_t reg(void*, void* data, size_t, int type, void** registration) {
  if (type != NCCL_PTR_HOST) return ncclInvalidArgument;
  *registration = data;
  return ncclSuccess;
}
ncclResult_t reg_dma_buf(void*, void*, size_t, int, uint64_t, int, void**) { return ncclInvalidUsage; }
ncclResult_t dereg(void*, void*) { return ncclSuccess; }
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
ncclResult_t close_listener(void* listener) {
  std::unique_ptr<Listener> owned(static_cast<Listener*>(listener));
  close(owned->fd);
  return ncclSuccess;
}
ncclResult_t init(ncclDebugLogger_t logger) {
  if (std::getenv("TESTNET_SHOW") != nullptr)
    for (const char* variable :
         {"R2CC_TOPOLOGY", "R2CC_MEMORY_NODE", "R2CC_CROSS_SOCKET", "VHCA_MEMORY_NODE"})
      if (const char* value = std::getenv(variable)) std::fprintf(stderr, "%s=%s\n", variable, value);
  g_logger = logger;
  return ncclSuccess;
}

}  // namespace

extern "C" {

extern const ncclNet_v8_t ncclNetPlugin_v8;
extern const ncclNet_v9_t ncclNetPlugin_v9;
extern const ncclNet_v10_t ncclNetPlugin_v10;
extern const ncclNet_v11_t ncclNetPlugin_v11;
extern const ncclNet_v12_t ncclNetPlugin_v12;

const ncclNet_v8_t ncclNetPlugin_v8 = {
    "testnet",
    init,
    devices,
    properties<ncclNetProperties_v8_t>,
    listen_on,
    connect_to,
    accept_from,
    reg,
    reg_dma_buf,
    dereg,
    [](void* c, void* d, int n, int, void*, void** r) { return start(c, d, size_t(n), true, r); },
    [](void* c, int, void** d, int* n, int*, void**, void** r) {
      return start(c, d[0], size_t(n[0]), false, r);
    },
    flush,
    test,
    close_comm,
    close_comm,
    close_listener,
    nullptr,
    nullptr};

const ncclNet_v9_t ncclNetPlugin_v9 = {
    "testnet",
    init,
    devices,
    properties<ncclNetProperties_v9_t>,
    listen_on,
    connect_to,
    accept_from,
    reg,
    reg_dma_buf,
    dereg,
    [](void* c, void* d, size_t n, int, void*, void** r) { return start(c, d, n, true, r); },
    [](void* c, int, void** d, size_t* n, int*, void**, void** r) { return start(c, d[0], n[0], false, r); },
    flush,
    test,
    close_comm,
    close_comm,
    close_listener,
    nullptr,
    nullptr,
    nullptr};

const ncclNet_v10_t ncclNetPlugin_v10 = {
    "testnet",
    [](ncclDebugLogger_t logger, ncclProfilerCallback_t) { return init(logger); },
    devices,
    properties<ncclNetProperties_v10_t>,
    listen_on,
    [](int device, ncclNetCommConfig_t*, void* handle, void** comm, ncclNetDeviceHandle_t** offload) {
      return connect_to(device, handle, comm, offload);
    },
    accept_from,
    reg,
    reg_dma_buf,
    dereg,
    [](void* c, void* d, size_t n, int, void*, void*, void** r) { return start(c, d, n, true, r); },
    [](void* c, int, void** d, size_t* n, int*, void**, void**, void** r) {
      return start(c, d[0], n[0], false, r);
    },
    flush,
    test,
    close_comm,
    close_comm,
    close_listener,
    nullptr,
    nullptr,
    nullptr};

}  // extern "C"

namespace {

int g_context;  // its address is the context: calls that lose it are refused

template <typename Net, typename Properties>
constexpr Net in_context() {
  return {
      "testnet",
      [](void** context, uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t logger, ncclProfilerCallback_t) {
        *context = &g_context;
        return init(logger);
      },
      devices,
      properties<Properties>,
      [](void* context, int device, void* handle, void** listener) {
        return context == &g_context ? listen_on(device, handle, listener) : ncclInvalidArgument;
      },
      [](void* context, int device, void* handle, void** comm, ncclNetDeviceHandle_t** offload) {
        return context == &g_context ? connect_to(device, handle, comm, offload) : ncclInvalidArgument;
      },
      accept_from,
      reg,
      reg_dma_buf,
      dereg,
      [](void* c, void* d, size_t n, int, void*, void*, void** r) { return start(c, d, n, true, r); },
      [](void* c, int, void** d, size_t* n, int*, void**, void**, void** r) {
        return start(c, d[0], n[0], false, r);
      },
      flush,
      test,
      close_comm,
      close_comm,
      close_listener,
      nullptr,
      nullptr,
      nullptr,
      [](void* context) { return context == &g_context ? ncclSuccess : ncclInvalidArgument; },
      nullptr};
}

}  // namespace

namespace {

/// The ranks of a CollNet group, joined by a connection each way.
struct Group {
  int rank = 0;
  std::vector<Comm> to, from;  // by rank; that of this rank is not used
  long operations = 0;
  ~Group() {
    for (const std::vector<Comm>* comms : {&to, &from})
      for (const Comm& comm : *comms)
        if (comm.fd >= 0) close(comm.fd);
  }
};

struct AllReduce {
  Group* group = nullptr;
  float* result = nullptr;
  long number = 0;
  std::vector<std::vector<float>> data;  // by rank
  std::vector<std::unique_ptr<Request>> requests;
};

ncclResult_t join(void* handles[], int ranks, int rank, void* listener, void** group_pointer) {
  auto group = std::make_unique<Group>();
  group->rank = rank;
  group->to.resize(size_t(ranks));
  group->from.resize(size_t(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    Comm& comm = group->to[size_t(peer)];
    comm.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm.sending = true;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = static_cast<Handle*>(handles[peer])->port;
    if (connect(comm.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        send(comm.fd, &rank, sizeof(rank), MSG_NOSIGNAL) != sizeof(rank))
      return fail("cannot join the group");
  }
  pollfd waiting{static_cast<Listener*>(listener)->fd, POLLIN, 0};
  for (int come = 1; come < ranks; ++come) {
    int peer = -1;
    const int fd = poll(&waiting, 1, 30000) == 1 ? accept4(waiting.fd, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (fd < 0 || recv(fd, &peer, sizeof(peer), MSG_WAITALL) != sizeof(peer) || peer < 0 || peer >= ranks)
      return fail("a rank did not join the group");
    group->from[size_t(peer)].fd = fd;
  }
  *group_pointer = group.release();
  return ncclSuccess;
}

ncclResult_t all_reduce(void* group_pointer, void* sent, void* received, size_t count, ncclDataType_t,
                        ncclRedOp_t, void*, void*, void** request) {
  Group& group = *static_cast<Group*>(group_pointer);
  auto all = std::make_unique<AllReduce>();
  all->group = &group;
  all->result = static_cast<float*>(received);
  all->number = group.operations++;
  all->data.assign(group.to.size(), std::vector<float>(count));
  const auto* own = static_cast<const float*>(sent);
  all->data[size_t(group.rank)].assign(own, own + count);
  for (size_t peer = 0; peer < group.to.size(); ++peer) {
    if (peer == size_t(group.rank)) continue;
    for (Comm* comm : {&group.to[peer], &group.from[peer]}) {
      std::vector<float>& data = all->data[comm->sending ? size_t(group.rank) : peer];
      all->requests.push_back(std::make_unique<Request>(
          Request{comm, reinterpret_cast<char*>(data.data()), uint32_t(count * sizeof(float))}));
      comm->queue.push_back(all->requests.back().get());
    }
  }
  *request = all.release();
  return ncclSuccess;
}

ncclResult_t test_all_reduce(void* request, int* done, int* size) {
  auto* all = static_cast<AllReduce*>(request);
  *done = 0;
  for (const auto& one : all->requests)
    if (!one->done && !advance(*one->comm)) return fail("a rank has left the group");
  for (const auto& one : all->requests)
    if (!one->done) return ncclSuccess;
  const size_t count = all->data[0].size();
  const size_t struck =
      (size_t(all->group->rank) + 1) % all->data.size();  // whose data is lost, or comes twice
  std::vector<float> sum(count);
  for (size_t rank = 0; rank < all->data.size(); ++rank) {
    const bool lost = rank == struck && fault().is("drop", all->number);
    const bool twice = rank == struck && fault().is("duplicate", all->number);
    for (int times = lost ? 0 : twice ? 2 : 1; times > 0; --times)
      for (size_t i = 0; i < count; ++i) sum[i] += all->data[rank][i];
  }
  if (fault().is("corrupt", all->number)) reinterpret_cast<char*>(sum.data())[count / 2 * sizeof(float)] ^= 1;
  if (fault().is("shift", all->number)) std::rotate(sum.begin(), sum.end() - 1, sum.end());
  if (!fault().is("stale", all->number)) std::copy(sum.begin(), sum.end(), all->result);
  *size = int(count * sizeof(float));
  *done = 1;
  delete all;
  return ncclSuccess;
}

}  // namespace

extern "C" {
extern const ncclCollNet_v12_t ncclCollNetPlugin_v12;
const ncclCollNet_v12_t ncclCollNetPlugin_v12 = {
    "testnet",
    [](void** context, uint64_t, ncclDebugLogger_t logger) {
      *context = &g_context;
      return init(logger);
    },
    devices,
    properties<ncclNetProperties_v12_t>,
    [](void* context, int device, void* handle, void** listener) {
      return context == &g_context ? listen_on(device, handle, listener) : ncclInvalidArgument;
    },
    join,
    [](ncclDataType_t type, ncclRedOp_t operation, int* supported) {
      *supported = type == ncclFloat32 && operation == ncclSum;
      return ncclSuccess;
    },
    reg,
    reg_dma_buf,
    dereg,
    all_reduce,
    nullptr,
    nullptr,
    [](void*, void*, int, void*, void** request) {
      *request = nullptr;
      return ncclSuccess;
    },
    test_all_reduce,
    [](void* group) {
      delete static_cast<Group*>(group);
      return ncclSuccess;
    },
    close_listener,
    nullptr,
    [](void* context) { return context == &g_context ? ncclSuccess : ncclInvalidArgument; }};

const ncclNet_v11_t ncclNetPlugin_v11 = in_context<ncclNet_v11_t, ncclNetProperties_v11_t>();
const ncclNet_v12_t ncclNetPlugin_v12 = in_context<ncclNet_v12_t, ncclNetProperties_v12_t>();
}
