// SPDX-License-Identifier: Apache-2.0
// What all versions of the CollNet interface share: NCCL's calls, translated to the host engine. Nothing is
// decided here. In modes 0 to 2, and where GPU memory is registered directly, init refuses: NCCL then goes on
// as if there were no CollNet. The rules of shim.h hold.
#pragma once

#include "r2ccl/collective/host/engine.h"
#include "r2ccl/plugin/nccl_collnet_abi.h"
#include "r2ccl/plugin/shim.h"

namespace r2ccl::plugin {

ncclResult_t collnet_init(nccl_abi::ncclDebugLogger_t logger);
/// The same for one communicator (v11 and later); `context` gets what collnet_finalize() gives back.
ncclResult_t collnet_init_context(void** context, uint64_t communicator, nccl_abi::ncclDebugLogger_t logger);
ncclResult_t collnet_finalize(void* context);
ncclResult_t collnet_devices(int* count);

ncclResult_t collnet_listen(int device, void* handle, void** listen_comm);
ncclResult_t collnet_listen_in_context(void* context, int device, void* handle, void** listen_comm);
/// An error is a NULL group: NCCL then closes the listener, which it forgets after an error.
ncclResult_t collnet_connect(void* handles[], int ranks, int rank, void* listen_comm, void** group);
ncclResult_t collnet_reduce_support(nccl_abi::ncclDataType_t type, nccl_abi::ncclRedOp_t operation,
                                    int* supported);
ncclResult_t collnet_reg_mr(void* group, void* data, size_t bytes, int type, void** registration);
ncclResult_t collnet_reg_mr_dma_buf(void* group, void* data, size_t bytes, int type, uint64_t offset, int fd,
                                    void** registration);
ncclResult_t collnet_dereg_mr(void* group, void* registration);

ncclResult_t collnet_all_reduce(void* group, void* sent, void* received, size_t count,
                                nccl_abi::ncclDataType_t type, nccl_abi::ncclRedOp_t operation,
                                void* sent_registration, void* received_registration, void** request);
ncclResult_t collnet_all_gather(void* group, void* sent, int count, const nccl_abi::ncclNetSGE_v9_t* received,
                                size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                void* sent_registration, void** request);
ncclResult_t collnet_reduce_scatter(void* group, int count, const nccl_abi::ncclNetSGE_v9_t* sent,
                                    void* received, size_t bytes_per_rank, size_t window_offset,
                                    size_t window_bytes, nccl_abi::ncclDataType_t type,
                                    nccl_abi::ncclRedOp_t operation, void* received_registration,
                                    void** request);
/// Host memory needs none: request NULL.
ncclResult_t collnet_flush(void* group, void* data, int bytes, void* registration, void** request);
ncclResult_t collnet_test(void* request, int* done, int* bytes);
ncclResult_t collnet_close_group(void* group);
ncclResult_t collnet_close_listen(void* listen_comm);

/// The net's properties with what CollNet has of its own: host memory, and the engine's limit.
template <typename Properties>
void collnet_properties_v8(Properties* out) {
  out->ptrSupport = nccl_abi::NCCL_PTR_HOST;
}
template <typename Properties>
void collnet_properties_v9(Properties* out) {
  collnet_properties_v8(out);
  out->maxCollBytes = collective::kMaxOperationBytes;
}

}  // namespace r2ccl::plugin
