// SPDX-License-Identifier: Apache-2.0
// A net plugin for the tests of the workload: NCCL's net interface v8 … v12, and CollNet v12 (sums of
// float32), over loopback TCP, so that the harness is proved against a plugin that is none of ours. On
// request it misbehaves in one exact way:
//   TESTNET_FAULT=<what>:<rank>:<n>   in the rank R2BENCH_RANK == <rank>, at its n-th message (from 0)
//     corrupt    one byte of what is received is changed
//     shift      what is received begins 4 bytes late
//     stale      the receive completes, its buffer as it was
//     drop       the send never leaves
//     duplicate  the send leaves twice
//     error      test fails from then on
//     dies       as error, and a signal ends the process when it closes
//     hang       nothing completes from then on
//     stuck      test never returns
//     crash      the process kills itself
//   TESTNET_BUSY=1         every second isend and irecv returns a NULL request
//   TESTNET_UNSET=1        getProperties forgets maxP2pBytes
//   TESTNET_SLOW=<ms>      a message leaves no sooner than so long after its isend; read by init
//   TESTNET_SHOW=1         init writes the variables about memory and sockets to stderr
//
// Its CollNet sends each rank's data to all others. There the n-th message is the group's n-th AllReduce,
// what is received is the result, and drop and duplicate leave out, or add twice, the data of one rank. The
// faults from error on are the net's alone.
//
// Here is what the net (net.cc) and CollNet (collnet.cc) share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "r2ccl/plugin/nccl_collnet_abi.h"

namespace testnet {

using namespace r2ccl::nccl_abi;  // NOLINT

/// An environment variable's number.
long number(const char* variable, long otherwise);

/// The misbehaviour that was asked of this rank.
struct Fault {
  std::string what;
  long at = -1;
  Fault();
  bool is(const char* kind, long message) const { return message == at && what == kind; }
  bool since(const char* kind, long message) const { return at >= 0 && message >= at && what == kind; }
  /// corrupt and shift.
  void spoil(char* received, size_t size, long message) const;
};
const Fault& fault();

/// How long each message waits, as init found it.
std::chrono::milliseconds slowness();

/// Logs the text. Returns ncclRemoteError.
ncclResult_t fail(const char* what);

struct Comm;

struct Request {
  Comm* comm = nullptr;
  char* data = nullptr;
  uint32_t size = 0;  // of a receive: room, then what came
  size_t moved = 0;   // header included
  uint32_t header = 0;
  bool done = false;
  int times = 1;
  std::chrono::steady_clock::time_point leaves;  // a send's, at the earliest
  long number = 0;                               // of the message in its comm
  std::string before;  // what the buffer held when a receive was posted that will be stale
};

/// A TCP connection, which carries messages one way.
struct Comm {
  int fd = -1;
  bool sending = false;
  std::deque<Request*> queue;
  long messages = 0;
  unsigned calls = 0;
};

struct Listener {
  int fd = -1;
};

struct Handle {
  uint16_t port;
  uint16_t tries;
};

/// Moves bytes of the oldest requests. false: the peer is gone.
bool advance(Comm& comm);
/// A socket to the listener of that handle; -1: there is none.
int connected(const Handle& handle);

// Members of a version's table. Of overloads the one is meant that has the member's type.
ncclResult_t init(ncclDebugLogger_t logger);
ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t);
ncclResult_t init(void** context, uint64_t, ncclDebugLogger_t logger);
ncclResult_t init(void** context, uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t logger,
                  ncclProfilerCallback_t);
ncclResult_t finalize(void* context);
/// Is that what init gave? Calls that lose it are refused.
bool is_context(const void* context);
ncclResult_t devices(int* count);
/// The name of that device, valid for ever.
char* name_of(int device);

template <typename Properties>
ncclResult_t properties(int device, Properties* p) {
  p->name = name_of(device);
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

ncclResult_t listen_on(int device, void* handle, void** listener);
ncclResult_t listen_on(void* context, int device, void* handle, void** listener);
ncclResult_t close_listener(void* listener);
ncclResult_t reg(void*, void* data, size_t, int type, void** registration);
ncclResult_t reg_dma_buf(void*, void*, size_t, int, uint64_t, int, void**);
ncclResult_t dereg(void*, void*);

/// The members that the net's and CollNet's tables have in common; the others are NULL.
template <typename Table>
constexpr Table common_members() {
  Table table{};
  table.name = "testnet";
  table.init = init;
  table.devices = devices;
  table.getProperties = properties;
  table.listen = listen_on;
  table.closeListen = close_listener;
  table.regMr = reg;
  table.regMrDmaBuf = reg_dma_buf;
  table.deregMr = dereg;
  if constexpr (requires { table.finalize; }) table.finalize = finalize;
  return table;
}

}  // namespace testnet
