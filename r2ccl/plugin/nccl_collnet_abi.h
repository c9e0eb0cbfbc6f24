// SPDX-License-Identifier: Apache-2.0
// NCCL's CollNet interface, versions 8 to 12, as a binary contract: what a plugin exports as
// ncclCollNetPlugin_v8 … ncclCollNetPlugin_v12, beside the net interface in the same library and with the
// same devices. Declared here in our own words, as nccl_net_abi.h does; properties and results are those of
// the net.
//
//   version | what is new
//   8       | (counts and sizes are int)
//   9       | size_t counts, size_t sizes of parts, virtual devices
//   10      | nothing but the properties' version
//   11      | one context per communicator, finalize
//   12      | the properties' version
#pragma once

#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2ccl::nccl_abi {

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,  ///< with 8e5m2 from NCCL 2.24 on
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

/// The operations that a network sees. avg and premulsum arrive as sum.
enum ncclRedOp_t : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
};

/// A piece of a buffer, in AllGather and ReduceScatter.
template <typename Size>
struct BufferPart {
  void* mhandle;
  void* address;
  Size size;  ///< bytes
};
using ncclNetSGE_v8_t = BufferPart<uint32_t>;
using ncclNetSGE_v9_t = BufferPart<size_t>;
using ncclNetSGE_v10_t = BufferPart<size_t>;
using ncclNetSGE_v11_t = BufferPart<size_t>;
using ncclNetSGE_v12_t = BufferPart<size_t>;

// The calls. `collComm` is a group of `nranks` ranks, one of each node. connect blocks; success with a NULL
// group, as well as an error, means that NCCL goes on without CollNet. A NULL request means "call again". A
// window is the part [windowOffset, windowOffset + windowBytes) of all ranks' data, bytesPerRank each, and a
// rank's own buffer holds what the window has of its data.

using CollInit = ncclResult_t (*)(ncclDebugLogger_t logger);
using CollInitContext = ncclResult_t (*)(void** context, uint64_t communicator, ncclDebugLogger_t logger);
using CollConnect = ncclResult_t (*)(void* handles[], int nranks, int rank, void* listenComm,
                                     void** collComm);
using ReduceSupport = ncclResult_t (*)(ncclDataType_t type, ncclRedOp_t operation, int* supported);
template <typename Count>
using Iallreduce = ncclResult_t (*)(void* collComm, void* sendData, void* recvData, Count count,
                                    ncclDataType_t type, ncclRedOp_t operation, void* sendMhandle,
                                    void* recvMhandle, void** request);
template <typename Part>
using Iallgather = ncclResult_t (*)(void* collComm, void* sendData, int nRecvParts, Part* recvParts,
                                    size_t bytesPerRank, size_t windowOffset, size_t windowBytes,
                                    void* sendMhandle, void** request);
template <typename Part>
using Ireducescatter = ncclResult_t (*)(void* collComm, int nSendParts, Part* sendParts, void* recvData,
                                        size_t bytesPerRank, size_t windowOffset, size_t windowBytes,
                                        ncclDataType_t type, ncclRedOp_t operation, void* recvMhandle,
                                        void** request);
using CollIflush = ncclResult_t (*)(void* collComm, void* data, int size, void* mhandle, void** request);

struct ncclCollNet_v8_t {
  const char* name;
  CollInit init;
  Devices devices;
  GetProperties<ncclNetProperties_v8_t> getProperties;
  Listen listen;
  CollConnect connect;
  ReduceSupport reduceSupport;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Iallreduce<int> iallreduce;
  Iallgather<ncclNetSGE_v8_t> iallgather;
  Ireducescatter<ncclNetSGE_v8_t> ireducescatter;
  CollIflush iflush;
  Test test;
  Close closeColl;
  Close closeListen;
};

template <typename Properties, typename Part, typename VProps>
struct CollNetWithVirtualDevices {
  const char* name;
  CollInit init;
  Devices devices;
  GetProperties<Properties> getProperties;
  Listen listen;
  CollConnect connect;
  ReduceSupport reduceSupport;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Iallreduce<size_t> iallreduce;
  Iallgather<Part> iallgather;
  Ireducescatter<Part> ireducescatter;
  CollIflush iflush;
  Test test;
  Close closeColl;
  Close closeListen;
  MakeVDevice<VProps> makeVDevice;  ///< may be NULL
};
using ncclCollNet_v9_t =
    CollNetWithVirtualDevices<ncclNetProperties_v9_t, ncclNetSGE_v9_t, ncclNetVDeviceProps_v9_t>;
using ncclCollNet_v10_t =
    CollNetWithVirtualDevices<ncclNetProperties_v10_t, ncclNetSGE_v10_t, ncclNetVDeviceProps_v10_t>;

template <typename Properties, typename Part, typename VProps>
struct CollNetInContext {
  const char* name;
  CollInitContext init;  ///< once per communicator
  Devices devices;
  GetProperties<Properties> getProperties;
  ListenInContext listen;
  CollConnect connect;
  ReduceSupport reduceSupport;
  RegMr regMr;
  RegMrDmaBuf regMrDmaBuf;
  DeregMr deregMr;
  Iallreduce<size_t> iallreduce;
  Iallgather<Part> iallgather;
  Ireducescatter<Part> ireducescatter;
  CollIflush iflush;
  Test test;
  Close closeColl;
  Close closeListen;
  MakeVDevice<VProps> makeVDevice;
  Finalize finalize;  ///< once per successful init; never NULL
};
using ncclCollNet_v11_t =
    CollNetInContext<ncclNetProperties_v11_t, ncclNetSGE_v11_t, ncclNetVDeviceProps_v11_t>;
using ncclCollNet_v12_t =
    CollNetInContext<ncclNetProperties_v12_t, ncclNetSGE_v12_t, ncclNetVDeviceProps_v12_t>;

// The layout in numbers: the tables of calls are rows of pointers.
static_assert(sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4);
static_assert(sizeof(ncclNetSGE_v8_t) == 24 && sizeof(ncclNetSGE_v9_t) == 24);
static_assert(offsetof(ncclNetSGE_v8_t, address) == 8 && offsetof(ncclNetSGE_v9_t, size) == 16);
static_assert(sizeof(ncclCollNet_v8_t) == 136 && offsetof(ncclCollNet_v8_t, closeListen) == 128);
static_assert(offsetof(ncclCollNet_v8_t, reduceSupport) == 48 &&
              offsetof(ncclCollNet_v8_t, iallreduce) == 80 && offsetof(ncclCollNet_v8_t, test) == 112);
static_assert(sizeof(ncclCollNet_v9_t) == 144 && offsetof(ncclCollNet_v9_t, makeVDevice) == 136);
static_assert(sizeof(ncclCollNet_v10_t) == 144 && offsetof(ncclCollNet_v10_t, iallgather) == 88);
static_assert(sizeof(ncclCollNet_v11_t) == 152 && offsetof(ncclCollNet_v11_t, finalize) == 144);
static_assert(sizeof(ncclCollNet_v12_t) == 152 && offsetof(ncclCollNet_v12_t, ireducescatter) == 96);

}  // namespace r2ccl::nccl_abi
