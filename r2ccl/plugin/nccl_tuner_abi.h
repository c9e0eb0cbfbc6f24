// SPDX-License-Identifier: Apache-2.0
// NCCL's tuner interface, versions 2 to 6, as a binary contract: what a plugin exports as ncclTunerPlugin_v2
// … ncclTunerPlugin_v6. NCCL asks it before each collective which algorithm to take. Declared here in our own
// words, as nccl_net_abi.h does.
//
//   version | first NCCL | what is new
//   2       | 2.20       | (answers an algorithm and a protocol)
//   3       | 2.23       | a table of costs, to be changed
//   4       | 2.24       | whether the user's buffers are registered
//   5       | 2.28       | communicator's number, NVLink domains, constants of NCCL's own model; finalize
//   6       | 2.30       | chunk sizes
#pragma once

#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2ccl::nccl_abi {

enum ncclFunc_t : int {
  ncclFuncBroadcast = 0,
  ncclFuncReduce = 1,
  ncclFuncAllGather = 2,
  ncclFuncReduceScatter = 3,
  ncclFuncAllReduce = 4,
};

inline constexpr int NCCL_ALGO_UNDEF = -1;
inline constexpr int NCCL_ALGO_TREE = 0;
inline constexpr int NCCL_ALGO_RING = 1;
inline constexpr int NCCL_ALGO_COLLNET_DIRECT = 2;
inline constexpr int NCCL_ALGO_COLLNET_CHAIN = 3;
inline constexpr int NCCL_ALGO_NVLS = 4;
inline constexpr int NCCL_ALGO_NVLS_TREE = 5;
inline constexpr int NCCL_ALGO_PAT = 6;
inline constexpr int NCCL_NUM_ALGORITHMS = 7;
inline constexpr int NCCL_PROTO_UNDEF = -1;
inline constexpr int NCCL_PROTO_LL = 0;
inline constexpr int NCCL_PROTO_LL128 = 1;
inline constexpr int NCCL_PROTO_SIMPLE = 2;
inline constexpr int NCCL_NUM_PROTOCOLS = 3;
/// Cost of what cannot be chosen.
inline constexpr float NCCL_ALGO_PROTO_IGNORE = -1.0f;

struct ncclNvlDomainInfo_v5_t {
  int nNvlDomains;
  int minRanksPerNvlDomain;
  int maxRanksPerNvlDomain;
};
struct ncclTunerConstants_v5_t;  ///< left as they are

// `costs` is a row of `algorithms` × `protocols` floats (µs, NCCL_ALGO_PROTO_IGNORE: not possible), although
// NCCL declares it float**. A result that is no success ends the collective, so there is none.

using TunerInit = ncclResult_t (*)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void** context);
using TunerInitCommunicator = ncclResult_t (*)(void** context, uint64_t communicator, size_t nRanks,
                                               size_t nNodes, ncclDebugLogger_t logger,
                                               ncclNvlDomainInfo_v5_t* domains,
                                               ncclTunerConstants_v5_t* constants);
using GetCollInfo_v2 = ncclResult_t (*)(void* context, ncclFunc_t function, size_t bytes, int collNetSupport,
                                        int nvlsSupport, int numPipeOps, int* algorithm, int* protocol,
                                        int* nChannels);
using GetCollInfo_v3 = ncclResult_t (*)(void* context, ncclFunc_t function, size_t bytes, int numPipeOps,
                                        float** costs, int algorithms, int protocols, int* nChannels);
using GetCollInfo_v4 = ncclResult_t (*)(void* context, ncclFunc_t function, size_t bytes, int numPipeOps,
                                        float** costs, int algorithms, int protocols, int regBuff,
                                        int* nChannels);
using TunerDestroy = ncclResult_t (*)(void* context);
using GetChunkSize = ncclResult_t (*)(void* context, ncclFunc_t function, size_t bytes, int algorithm,
                                      int protocol, int nChannels, size_t* chunkSize);

struct ncclTuner_v2_t {
  const char* name;
  TunerInit init;
  GetCollInfo_v2 getCollInfo;
  TunerDestroy destroy;
};
struct ncclTuner_v3_t {
  const char* name;
  TunerInit init;
  GetCollInfo_v3 getCollInfo;
  TunerDestroy destroy;
};
struct ncclTuner_v4_t {
  const char* name;
  TunerInit init;
  GetCollInfo_v4 getCollInfo;
  TunerDestroy destroy;
};
struct ncclTuner_v5_t {
  const char* name;
  TunerInitCommunicator init;
  GetCollInfo_v4 getCollInfo;
  TunerDestroy finalize;
};
struct ncclTuner_v6_t {
  const char* name;
  TunerInitCommunicator init;
  GetCollInfo_v4 getCollInfo;
  TunerDestroy finalize;
  GetChunkSize getChunkSize;  ///< NULL: NCCL's own
};

static_assert(sizeof(ncclFunc_t) == 4 && sizeof(ncclNvlDomainInfo_v5_t) == 12);
static_assert(sizeof(ncclTuner_v2_t) == 32 && sizeof(ncclTuner_v3_t) == 32 && sizeof(ncclTuner_v4_t) == 32);
static_assert(sizeof(ncclTuner_v5_t) == 32 && offsetof(ncclTuner_v5_t, getCollInfo) == 16);
static_assert(sizeof(ncclTuner_v6_t) == 40 && offsetof(ncclTuner_v6_t, getChunkSize) == 32);

}  // namespace r2ccl::nccl_abi
