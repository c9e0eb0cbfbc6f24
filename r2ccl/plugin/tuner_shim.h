// SPDX-License-Identifier: Apache-2.0
// What all versions of the tuner interface share: NCCL's questions, translated to collective::Selection.
// Nothing is decided here. A tuner that refuses to start, or an error from it, would end the communicator or
// the collective: neither happens below mode 3, where the table of costs is left as it is.
#pragma once

#include "r2ccl/collective/host/selection.h"
#include "r2ccl/plugin/nccl_tuner_abi.h"
#include "r2ccl/plugin/shim.h"

namespace r2ccl::plugin {

ncclResult_t tuner_init(size_t ranks, size_t nodes, nccl_abi::ncclDebugLogger_t logger, void** context);
ncclResult_t tuner_init_communicator(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                                     nccl_abi::ncclDebugLogger_t logger,
                                     nccl_abi::ncclNvlDomainInfo_v5_t* domains,
                                     nccl_abi::ncclTunerConstants_v5_t* constants);
ncclResult_t tuner_destroy(void* context);
/// `costs`: algorithms × protocols.
ncclResult_t tuner_choose(void* context, nccl_abi::ncclFunc_t function, size_t bytes, float* costs,
                          int algorithms, int protocols);
ncclResult_t tuner_choose_v2(void* context, nccl_abi::ncclFunc_t function, size_t bytes, int collnet_support,
                             int* algorithm, int* protocol);

/// What a choice makes of NCCL's table.
void apply(collective::Choice choice, float* costs, int algorithms, int protocols);
/// Does the table have CollNet, and anything else? NVLS between nodes goes over CollNet.
struct Offered {
  bool collnet = false, others = false;
};
Offered offered_in(const float* costs, int algorithms, int protocols);

}  // namespace r2ccl::plugin
