// SPDX-License-Identifier: Apache-2.0
// NCCL's net plugin interface, versions 8 to 12, as a binary contract: what a plugin exports as
// ncclNetPlugin_v8 … ncclNetPlugin_v12 and what NCCL passes into it. Declared here in our own words, with the
// layout proved by the assertions below; member names are NCCL's, so that its documents can be read beside
// it. Everything is in a namespace, so that a program may include nccl.h as well.
//
//   version | first NCCL | what is new
//   8       | 2.19       | (sizes are int)
//   9       | 2.24       | size_t messages, virtual devices, limits on message sizes
//   10      | 2.26       | profiler callback and handles, traffic class at connect
//   11      | 2.28       | one context per communicator, finalize, hints about use (setNetAttr)
//   12      | 2.30       | 8 devices per virtual device, rail and plane numbers
#pragma once

#include <cstddef>
#include <cstdint>

namespace r2ccl::nccl_abi {

/// Everything but success and in-progress ends NCCL's progress thread for good.
enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDebugLogLevel : int {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5,
};

/// Subsystems of NCCL_DEBUG_SUBSYS (bits); only those that a net plugin has reason to use.
inline constexpr unsigned long NCCL_INIT = 0x1;
inline constexpr unsigned long NCCL_NET = 0x10;

/// Where memory lies: bits of `ptrSupport`, and the `type` of regMr.
inline constexpr int NCCL_PTR_HOST = 0x1;
inline constexpr int NCCL_PTR_CUDA = 0x2;
inline constexpr int NCCL_PTR_DMABUF = 0x4;

inline constexpr size_t NCCL_NET_HANDLE_MAXSIZE = 128;              ///< bytes of a connect handle
inline constexpr int NCCL_NET_MAX_REQUESTS = 32;                    ///< per comm; times maxRecvs for receives
inline constexpr size_t NCCL_MAX_NET_SIZE_BYTES = size_t{1} << 40;  ///< largest maxP2pBytes that NCCL takes
inline constexpr int NCCL_NET_TRAFFIC_CLASS_UNDEF = -1;
inline constexpr int16_t NCCL_NET_ID_UNDEF = -1;  ///< of railId and planeId
/// NCCL >= 2.24 leaves this value in *request before an irecv whose completion it does not need (LL, LL128).
inline constexpr uintptr_t NCCL_NET_OPTIONAL_RECV_COMPLETION = 0x1;

/// A printf-like logger that stays valid while NCCL is loaded.
using ncclDebugLogger_t = void (*)(ncclDebugLogLevel level, unsigned long subsystems, const char* file,
                                   int line, const char* format, ...);
/// Reports network events to NCCL's profiler (version 10 and later). NULL when there is none.
using ncclProfilerCallback_t = ncclResult_t (*)(void** event, int type, void* parent, int64_t plugin,
                                                void* data);

enum ncclNetDeviceType : int {
  NCCL_NET_DEVICE_HOST = 0,    ///< the CPU drives the network
  NCCL_NET_DEVICE_UNPACK = 1,  ///< GPU kernels take part: not used here
};

/// For networks that GPU kernels drive. A host plugin leaves the pointer to it alone.
struct ncclNetDeviceHandle_t {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void* handle;
  size_t size;
  int needsProxyProgress;
};

/// Devices that make up a (virtual) device.
template <int Max>
struct VirtualDevice {
  int ndevs;
  int devs[Max];
};
using ncclNetVDeviceProps_v9_t = VirtualDevice<4>;
using ncclNetVDeviceProps_v10_t = VirtualDevice<4>;
using ncclNetVDeviceProps_v11_t = VirtualDevice<4>;
using ncclNetVDeviceProps_v12_t = VirtualDevice<8>;

/// Settings of one communicator.
struct ncclNetCommConfig_t {
  int trafficClass;  ///< NCCL_NET_TRAFFIC_CLASS_UNDEF unless the application chose one
};
using ncclNetCommConfig_v10_t = ncclNetCommConfig_t;
using ncclNetCommConfig_v11_t = ncclNetCommConfig_t;
using ncclNetCommConfig_v12_t = ncclNetCommConfig_t;

/// Hints of what NCCL is about to do with its connections (version 11 and later); -1 = not known.
struct ncclNetCommAttr_t {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
};
struct ncclNetAttr_t {
  ncclNetCommAttr_t sendCommAttr;
  ncclNetCommAttr_t recvCommAttr;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
};
using ncclNetAttr_v11_t = ncclNetAttr_t;
using ncclNetAttr_v12_t = ncclNetAttr_t;

// Properties of a device. NCCL hands in uninitialised memory: every member must be set.
// The strings belong to the plugin and must stay valid.

struct ncclNetProperties_v8_t {
  char* name;
  char* pciPath;    ///< /sys path of the PCI device; NULL: NCCL attaches the device to the first CPU
  uint64_t guid;    ///< devices with equal guid and port share one bandwidth budget
  int ptrSupport;   ///< NCCL_PTR_* bits
  int regIsGlobal;  ///< 1: a registration is good for every comm of the process
  int speed;        ///< Mbit/s
  int port;
  float latency;  ///< µs; 0: NCCL's own guess
  int maxComms;
  int maxRecvs;  ///< receives that one irecv may group
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
};

template <typename VProps>
struct PropertiesWithVirtualDevices {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;  ///< 1: iflush is wanted even where NCCL thinks it needless
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  VProps vProps;       ///< of a physical device: itself
  size_t maxP2pBytes;  ///< longest message; 0 is an error in NCCL
  size_t maxCollBytes;
};
using ncclNetProperties_v9_t = PropertiesWithVirtualDevices<ncclNetVDeviceProps_v9_t>;
using ncclNetProperties_v10_t = PropertiesWithVirtualDevices<ncclNetVDeviceProps_v10_t>;

struct ncclNetProperties_v11_t {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v11_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;  ///< requests that NCCL may hand over as one; 1: none
};

struct ncclNetProperties_v12_t {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v12_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;  ///< NCCL_NET_ID_UNDEF: NCCL finds out by itself
  int16_t planeId;
};

// The calls. `handle` is NCCL_NET_HANDLE_MAXSIZE bytes. connect and accept do not block: success with a NULL
// comm means "call again". isend and irecv: success with a NULL request means "call again"; iflush: a NULL
// request means that there was nothing to flush.

template <typename Properties>
using GetProperties = ncclResult_t (*)(int device, Properties* properties);
using Devices = ncclResult_t (*)(int* count);
using Listen = ncclResult_t (*)(int device, void* handle, void** listenComm);
using ListenInContext = ncclResult_t (*)(void* context, int device, void* handle, void** listenComm);
using Connect = ncclResult_t (*)(int device, void* handle, void** sendComm, ncclNetDeviceHandle_t** offload);
using ConnectWithConfig = ncclResult_t (*)(int device, ncclNetCommConfig_t* config, void* handle,
                                           void** sendComm, ncclNetDeviceHandle_t** offload);
using ConnectInContext = ncclResult_t (*)(void* context, int device, void* handle, void** sendComm,
                                          ncclNetDeviceHandle_t** offload);
using Accept = ncclResult_t (*)(void* listenComm, void** recvComm, ncclNetDeviceHandle_t** offload);
using RegMr = ncclResult_t (*)(void* comm, void* data, size_t bytes, int type, void** registration);
using RegMrDmaBuf = ncclResult_t (*)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                                     void** registration);
using DeregMr = ncclResult_t (*)(void* comm, void* registration);
using Isend_v8 = ncclResult_t (*)(void* sendComm, void* data, int bytes, int tag, void* registration,
                                  void** request);
using Isend_v9 = ncclResult_t (*)(void* sendComm, void* data, size_t bytes, int tag, void* registration,
                                  void** request);
using Isend_v10 = ncclResult_t (*)(void* sendComm, void* data, size_t bytes, int tag, void* registration,
                                   void* profiler, void** request);
using Irecv_v8 = ncclResult_t (*)(void* recvComm, int n, void** data, int* bytes, int* tags,
                                  void** registrations, void** request);
using Irecv_v9 = ncclResult_t (*)(void* recvComm, int n, void** data, size_t* bytes, int* tags,
                                  void** registrations, void** request);
using Irecv_v10 = ncclResult_t (*)(void* recvComm, int n, void** data, size_t* bytes, int* tags,
                                   void** registrations, void** profilers, void** request);
using Iflush = ncclResult_t (*)(void* recvComm, int n, void** data, int* bytes, void** registrations,
                                void** request);
using Test = ncclResult_t (*)(void* request, int* done, int* bytes);
using Close = ncclResult_t (*)(void* comm);
using GetDeviceMr = ncclResult_t (*)(void* comm, void* registration, void** device_registration);
using IrecvConsumed = ncclResult_t (*)(void* recvComm, int n, void* request);
template <typename VProps>
using MakeVDevice = ncclResult_t (*)(int* device, VProps* properties);
using Init = ncclResult_t (*)(ncclDebugLogger_t logger);
using InitWithProfiler = ncclResult_t (*)(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
using InitContext = ncclResult_t (*)(void** context, uint64_t communicator, ncclNetCommConfig_t* config,
                                     ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
using Finalize = ncclResult_t (*)(void* context);
using SetNetAttr = ncclResult_t (*)(void* context, ncclNetAttr_t* attributes);

struct ncclNet_v8_t {
  const char* name;
  Init init;
  Devices devices;
  GetProperties<ncclNetProperties_v8_t> getProperties;
  Listen listen;
  Connect connect;
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend_v8 isend;
  Irecv_v8 irecv;
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;      ///< may be NULL
  IrecvConsumed irecvConsumed;  ///< may be NULL
};

struct ncclNet_v9_t {
  const char* name;
  Init init;
  Devices devices;
  GetProperties<ncclNetProperties_v9_t> getProperties;
  Listen listen;
  Connect connect;
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend_v9 isend;
  Irecv_v9 irecv;
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice<ncclNetVDeviceProps_v9_t> makeVDevice;  ///< may be NULL: then NCCL merges no devices
};

struct ncclNet_v10_t {
  const char* name;
  InitWithProfiler init;
  Devices devices;
  GetProperties<ncclNetProperties_v10_t> getProperties;
  Listen listen;
  ConnectWithConfig connect;
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend_v10 isend;
  Irecv_v10 irecv;
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice<ncclNetVDeviceProps_v10_t> makeVDevice;
};

template <typename Properties, typename VProps>
struct NetInContext {
  const char* name;
  InitContext init;  ///< once per communicator
  Devices devices;
  GetProperties<Properties> getProperties;
  ListenInContext listen;
  ConnectInContext connect;
  Accept accept;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Isend_v10 isend;
  Irecv_v10 irecv;
  Iflush iflush;
  Test test;
  Close closeSend;
  Close closeRecv;
  Close closeListen;
  GetDeviceMr getDeviceMr;
  IrecvConsumed irecvConsumed;
  MakeVDevice<VProps> makeVDevice;
  Finalize finalize;  ///< once per init; never NULL
  SetNetAttr setNetAttr;
};
using ncclNet_v11_t = NetInContext<ncclNetProperties_v11_t, ncclNetVDeviceProps_v11_t>;
using ncclNet_v12_t = NetInContext<ncclNetProperties_v12_t, ncclNetVDeviceProps_v12_t>;

// The layout, in numbers that were read off NCCL 2.23.4 to 2.30.7 on x86-64 and hold for every LP64 system.
// The tables of calls are rows of pointers, so their size and the place of their last members say it all.
static_assert(sizeof(void*) == 8, "NCCL exists for 64-bit systems only");
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDebugLogLevel) == 4 && sizeof(ncclNetDeviceType) == 4);
static_assert(sizeof(ncclNetDeviceHandle_t) == 32 && offsetof(ncclNetDeviceHandle_t, size) == 16);
static_assert(sizeof(ncclNetCommConfig_t) == 4);
static_assert(sizeof(ncclNetVDeviceProps_v9_t) == 20 && sizeof(ncclNetVDeviceProps_v12_t) == 36);
static_assert(sizeof(ncclNetAttr_t) == 44 && offsetof(ncclNetAttr_t, op) == 32);

static_assert(sizeof(ncclNetProperties_v8_t) == 64);
static_assert(offsetof(ncclNetProperties_v8_t, guid) == 16);
static_assert(offsetof(ncclNetProperties_v8_t, speed) == 32);
static_assert(offsetof(ncclNetProperties_v8_t, latency) == 40);
static_assert(offsetof(ncclNetProperties_v8_t, netDeviceVersion) == 56);
static_assert(sizeof(ncclNetProperties_v9_t) == 104 && sizeof(ncclNetProperties_v10_t) == 104);
static_assert(offsetof(ncclNetProperties_v9_t, forceFlush) == 32);
static_assert(offsetof(ncclNetProperties_v9_t, latency) == 44);
static_assert(offsetof(ncclNetProperties_v9_t, vProps) == 64);
static_assert(offsetof(ncclNetProperties_v9_t, maxP2pBytes) == 88);
static_assert(sizeof(ncclNetProperties_v11_t) == 112);
static_assert(offsetof(ncclNetProperties_v11_t, vProps) == 64);
static_assert(offsetof(ncclNetProperties_v11_t, maxMultiRequestSize) == 104);
static_assert(sizeof(ncclNetProperties_v12_t) == 128);
static_assert(offsetof(ncclNetProperties_v12_t, vProps) == 64);
static_assert(offsetof(ncclNetProperties_v12_t, maxP2pBytes) == 104);
static_assert(offsetof(ncclNetProperties_v12_t, maxMultiRequestSize) == 120);
static_assert(offsetof(ncclNetProperties_v12_t, planeId) == 126);

static_assert(sizeof(ncclNet_v8_t) == 152 && offsetof(ncclNet_v8_t, test) == 104);
static_assert(sizeof(ncclNet_v9_t) == 160 && offsetof(ncclNet_v9_t, makeVDevice) == 152);
static_assert(sizeof(ncclNet_v10_t) == 160 && offsetof(ncclNet_v10_t, makeVDevice) == 152);
static_assert(sizeof(ncclNet_v11_t) == 176 && offsetof(ncclNet_v11_t, finalize) == 160);
static_assert(sizeof(ncclNet_v12_t) == 176 && offsetof(ncclNet_v12_t, setNetAttr) == 168);

}  // namespace r2ccl::nccl_abi
