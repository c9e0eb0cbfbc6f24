// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl.so without a GPU: a communicator's ranks send what they put in to a thread of the
// first rank, which does the arithmetic (standin_arithmetic.h). For tests of the nccl workload alone.
//   STANDIN_NCCL_FAULT=KIND@N, in operation N of rank 1 of a communicator: corrupt (one element of what it
//   gets), refuse (the call returns an error), async (an error shows later, and the kernel spins), hang (the
//   kernel spins); once a communicator was ended in an operation only corrupt is left
//   STANDIN_NCCL_FAULT=init: rank 1's communicator cannot be made
//   STANDIN_NCCL_NETWORK=NAME: faults are of communicators of this network alone
//   STANDIN_NCCL_STRICT=1: every buffer of an operation must be registered, all of it
// As NCCL's, its ranks meet on the interface that NCCL_SOCKET_IFNAME names; without it, or where that has no
// address of IPv4, on the loopback.
// It aborts the process where NCCL's behaviour would be undefined: a call on a communicator that is in
// progress, one that is destroyed while buffers are registered with it or, if it is nonblocking, before it
// was finalised. Built with STANDIN_OLD it is a version without ncclCommShrink and ncclCommRevoke.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness/workload/nccl/nccl_library.h"
#include "harness/workload/nccl/testing/standin_arithmetic.h"
#include "harness/workload/nccl/testing/standin_stream.h"

namespace {

using namespace r2bench;           // NOLINT
using namespace r2bench::standin;  // NOLINT

constexpr int kSuccess = 0, kSystemError = 2, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;

thread_local std::string last_words;

struct UniqueId {
  char bytes[128];
};

std::atomic<bool> past_faults{false};

struct Fault {
  std::string kind;
  uint64_t at = 0;
};
Fault planned() {
  const std::string text = std::getenv("STANDIN_NCCL_FAULT") ? std::getenv("STANDIN_NCCL_FAULT") : "";
  const size_t at = text.find('@');
  return {text.substr(0, at),
          at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 1, nullptr, 10)};
}

struct Comm {
  UniqueId id{};
  std::string network;  ///< as its configuration names it
  int fd = -1, rank = 0, ranks = 0;
  uint64_t calls = 0;
  std::atomic<int> open{0};  ///< operations that have been given to a stream
  std::atomic<bool> revoked{false};
  std::atomic<int> state{kSuccess};
  std::atomic<bool> aborted{false};
  // Of the open group: pairs are one request.
  std::vector<std::pair<Message, const char*>> sends;
  std::vector<std::pair<Message, char*>> receives;
  void* stream = nullptr;
  std::vector<std::weak_ptr<uint64_t>> operations;  ///< alive: on a stream, or in a graph
  bool nonblocking = false;
  bool finalised = false;
  std::map<const char*, size_t> registered;

  /// As a call on a nonblocking communicator: the caller hears that it goes on, and a while later that it has
  /// ended.
  int goes_on() {
    if (!nonblocking) return kSuccess;
    int before = kSuccess;
    if (!state.compare_exchange_strong(before, kInProgress)) return before;
    std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      int in_progress = kInProgress;
      state.compare_exchange_strong(in_progress, kSuccess);
    }).detach();
    return kInProgress;
  }
  /// In a group a call does not begin before the group's end.
  void must_be_ready() const {
    if (nonblocking && state == kInProgress) misused("a call on a communicator that is in progress");
  }
  [[noreturn]] static void misused(const char* what) {
    fprintf(stderr, "stand-in: %s\n", what);
    std::abort();
  }
  void must_have(const char* from, size_t bytes) const {
    auto after = registered.upper_bound(from);
    if (after == registered.begin() || from + bytes > std::prev(after)->first + std::prev(after)->second)
      misused("a buffer that is not registered");
  }

  /// As a kernel whose peer is gone: until the communicator is aborted.
  void leave() {
    aborted = true;
    shutdown(fd, SHUT_RDWR);
  }
  void spin() {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

void enqueue(void* stream, std::function<void()> work) {
  static const auto add = reinterpret_cast<decltype(&standin_enqueue)>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), "standin_enqueue"));
  add(stream, new std::function<void()>(std::move(work)));
}

thread_local int group_depth = 0;
thread_local std::vector<Comm*> grouped;
thread_local std::vector<Comm*> in_group;  ///< communicators of the open group

/// One request when the stream comes to it; `parts`: where the answer goes.
int submit(Comm* comm, Header header, std::vector<std::pair<Message, const char*>> from,
           std::vector<std::pair<Message, char*>> to, void* stream) {
  const char* network = std::getenv("STANDIN_NCCL_NETWORK");
  Fault fault = comm->rank == 1 && (!network || comm->network == network) ? planned() : Fault{};
  if (past_faults && fault.kind != "corrupt") fault = {};
  const auto calls = std::make_shared<uint64_t>(comm->calls);
  if (fault.kind == "refuse" && comm->calls == fault.at) {
    last_words = "stand-in: the network of nic 3 is gone\n";
    return kSystemError;
  }
  comm->must_be_ready();
  if (std::getenv("STANDIN_NCCL_STRICT")) {
    for (const auto& [message, data] : from) comm->must_have(data, message.bytes);
    for (const auto& [message, data] : to) comm->must_have(data, message.bytes);
  }
  ++comm->calls;
  comm->operations.push_back(calls);
  ++comm->open;
  enqueue(stream, [=] {
    const std::shared_ptr<void> closes(nullptr, [comm](void*) { --comm->open; });
    const uint64_t call = (*calls)++;  // a graph comes here again and again
    const bool now = call == fault.at;
    if (now && (fault.kind == "hang" || fault.kind == "async")) {
      if (fault.kind == "async") comm->state = kRemoteError;
      return comm->spin();
    }
    Header sent = header;
    sent.bytes = 0;
    for (const auto& [message, data] : from) sent.bytes += message.bytes;
    std::vector<Message> sends, receives;
    if (sent.what == kPairs) {
      for (const auto& [message, data] : from) sends.push_back(message);
      for (const auto& [message, data] : to) receives.push_back(message);
      sent.sends = int(sends.size());
      sent.receives = int(receives.size());
    }
    bool whole = send_all(comm->fd, &sent, sizeof(sent)) &&
                 send_all(comm->fd, sends.data(), sends.size() * sizeof(Message)) &&
                 send_all(comm->fd, receives.data(), receives.size() * sizeof(Message));
    for (const auto& [message, data] : from) whole = whole && send_all(comm->fd, data, message.bytes);
    for (const auto& [message, data] : to) whole = whole && receive_all(comm->fd, data, message.bytes);
    if (whole && now && fault.kind == "corrupt" && !to.empty()) to[0].second[to[0].first.bytes / 2] ^= 0x10;
    if (whole || comm->aborted) return;
    comm->state = kRemoteError;
    comm->spin();
  });
  if (group_depth == 0) return comm->goes_on();
  in_group.push_back(comm);
  return kSuccess;
}

int collective(int what, const void* from, void* to, size_t sent, size_t received, size_t count, int type,
               int operation, int root, void* comm, void* stream) {
  const size_t element = element_size(type_of(type));
  Header header;
  header.what = what;
  header.type = type;
  header.operation = operation;
  header.root = root;
  header.count = count;
  return submit(static_cast<Comm*>(comm), header, {{{0, sent * element}, static_cast<const char*>(from)}},
                {{{0, received * element}, static_cast<char*>(to)}}, stream);
}

/// Network byte order.
in_addr_t address_of_this_host() {
  const char* name = std::getenv("NCCL_SOCKET_IFNAME");
  in_addr_t found = htonl(INADDR_LOOPBACK);
  ifaddrs* all = nullptr;
  if (!name || getifaddrs(&all) != 0) return found;
  if (*name == '=') ++name;
  for (const ifaddrs* each = all; each; each = each->ifa_next)
    if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET && std::strcmp(each->ifa_name, name) == 0)
      found = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr.s_addr;
  freeifaddrs(all);
  return found;
}

int connect_to(const UniqueId& id, int ranks, int rank, void** handle) {
  sockaddr_in address{};
  std::memcpy(&address, id.bytes, sizeof(address));
  auto* comm = new Comm;  // its last operation may outlive ncclCommAbort
  comm->id = id;
  comm->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  comm->rank = rank;
  comm->ranks = ranks;
  const int hello[2] = {ranks, rank};
  char ready;
  if (connect(comm->fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      !send_all(comm->fd, hello, sizeof(hello)) || !receive_all(comm->fd, &ready, 1))
    return kSystemError;
  *handle = comm;
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22803;
  return kSuccess;
}
const char* ncclGetErrorString(int code) {
  return code == kSystemError    ? "unhandled system error"
         : code == kRemoteError  ? "remote process exited or there was a network error"
         : code == kInvalidUsage ? "invalid usage"
                                 : "no error";
}
const char* ncclGetLastError(void*) { return last_words.c_str(); }

int ncclGetUniqueId(UniqueId* id) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = address_of_this_host();
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 64) != 0)
    return kSystemError;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->bytes, &address, sizeof(address));
  std::thread(serve, listener).detach();
  return kSuccess;
}

int ncclCommInitRank(void** handle, int ranks, UniqueId id, int rank) {
  if (rank == 1 && planned().kind == "init") {
    last_words = "stand-in: no network";
    return kSystemError;
  }
  return connect_to(id, ranks, rank, handle);
}
/// As NCCL's: NCCL_NET goes before the configuration, and a network that was not loaded cannot be taken.
int ncclCommInitRankConfig(void** handle, int ranks, UniqueId id, int rank, nccl::Config* config) {
  const char* plugin = std::getenv("NCCL_NET_PLUGIN");
  const bool loaded = plugin && std::strcmp(plugin, "none") != 0;
  const std::string network = std::getenv("NCCL_NET") ? std::getenv("NCCL_NET")
                              : config->net_name      ? config->net_name
                                                      : "";
  if (config->magic != 0xcafebeef ||
      (!network.empty() && network != "IB" && !(network == "R2CCL" && loaded))) {
    last_words = "stand-in: no network " + network;
    return kInvalidUsage;
  }
  if (const int result = connect_to(id, ranks, rank, handle); result != kSuccess) return result;
  auto* comm = static_cast<Comm*>(*handle);
  comm->network = network;
  comm->nonblocking = config->blocking == 0;
  return comm->goes_on();
}
int ncclCommRegister(void* handle, void* at, size_t bytes, void** registration) {
  auto* comm = static_cast<Comm*>(handle);
  comm->must_be_ready();
  comm->registered[static_cast<char*>(at)] = bytes;
  *registration = at;
  return kSuccess;
}
int ncclCommDeregister(void* handle, void* registration) {
  static_cast<Comm*>(handle)->must_be_ready();
  return static_cast<Comm*>(handle)->registered.erase(static_cast<char*>(registration)) ? kSuccess
                                                                                        : kInvalidUsage;
}
int ncclCommFinalize(void* handle) {
  auto* comm = static_cast<Comm*>(handle);
  comm->must_be_ready();
  comm->finalised = true;
  return comm->goes_on();
}
int ncclCommAbort(void* handle) {
  auto* comm = static_cast<Comm*>(handle);
  past_faults = past_faults || comm->open > 0;
  comm->leave();
  return kSuccess;
}
#ifndef STANDIN_OLD
/// As NCCL's: the communicator is in progress until its operations have ended.
int ncclCommRevoke(void* handle, int flags) {
  auto* comm = static_cast<Comm*>(handle);
  if (flags != 0 || comm->revoked.exchange(true)) return kInvalidUsage;
  past_faults = true;
  comm->state = kInProgress;
  comm->leave();
  std::thread([comm] {
    while (comm->open > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm->state = kSuccess;
  }).detach();
  return kSuccess;
}
int ncclCommShrink(void* handle, int* without, int count, void** smaller, void* config, int flags) {
  auto* comm = static_cast<Comm*>(handle);
  const bool aborts = flags == 1;
  const bool quiet = comm->state == kSuccess && comm->open == 0;
  if (count != 1 || config || *without == comm->rank || (!aborts && !quiet)) {
    last_words = "stand-in: the communicator cannot be shrunk now";
    return kInvalidUsage;
  }
  past_faults = true;
  comm->leave();
  while (comm->open > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return connect_to(comm->id, comm->ranks - 1, comm->rank - (*without < comm->rank), smaller);
}
#endif
/// As NCCL's: waits for the graphs that have operations of this communicator.
int ncclCommDestroy(void* handle) {
  auto* comm = static_cast<Comm*>(handle);
  comm->must_be_ready();
  if (comm->nonblocking && !comm->finalised) Comm::misused("ncclCommDestroy before ncclCommFinalize");
  if (!comm->registered.empty()) Comm::misused("ncclCommDestroy with buffers that are registered");
  for (const auto& operation : comm->operations)
    while (!operation.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return ncclCommAbort(handle);
}
int ncclCommGetAsyncError(void* comm, int* state) {
  *state = static_cast<Comm*>(comm)->state;
  return kSuccess;
}
int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, void*) {
  *operation = kPremulSum;
  return kSuccess;
}

int ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}
int ncclGroupEnd() {
  if (--group_depth > 0) return kSuccess;
  int result = kSuccess;
  for (Comm* comm : grouped) {
    Header header;
    header.what = kPairs;
    if (result == kSuccess) result = submit(comm, header, comm->sends, comm->receives, comm->stream);
    comm->sends.clear();
    comm->receives.clear();
  }
  grouped.clear();
  for (Comm* comm : std::exchange(in_group, {}))
    if (comm->state == kSuccess && comm->goes_on() == kInProgress && result == kSuccess) result = kInProgress;
  return result;
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* comm,
                  void* stream) {
  return collective(kAllReduce, from, to, count, count, count, type, operation, 0, comm, stream);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation, void* comm,
                      void* stream) {
  const size_t ranks = size_t(static_cast<Comm*>(comm)->ranks);
  return collective(kReduceScatter, from, to, count * ranks, count, count, type, operation, 0, comm, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, void* comm, void* stream) {
  const size_t ranks = size_t(static_cast<Comm*>(comm)->ranks);
  return collective(kAllGather, from, to, count, count * ranks, count, type, 0, 0, comm, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, void* comm, void* stream) {
  return collective(kBroadcast, from, to, count, count, count, type, 0, root, comm, stream);
}
int ncclSend(const void* from, size_t count, int type, int peer, void* handle, void* stream) {
  auto* comm = static_cast<Comm*>(handle);
  if (comm->sends.empty() && comm->receives.empty()) grouped.push_back(comm);
  comm->stream = stream;
  comm->sends.push_back({{peer, count * element_size(type_of(type))}, static_cast<const char*>(from)});
  return group_depth > 0 ? kSuccess : kSystemError;
}
int ncclRecv(void* to, size_t count, int type, int peer, void* handle, void* stream) {
  auto* comm = static_cast<Comm*>(handle);
  if (comm->sends.empty() && comm->receives.empty()) grouped.push_back(comm);
  comm->stream = stream;
  comm->receives.push_back({{peer, count * element_size(type_of(type))}, static_cast<char*>(to)});
  return group_depth > 0 ? kSuccess : kSystemError;
}
}
