// SPDX-License-Identifier: Apache-2.0
// ncclCollNet version 10: the properties of net version 10.
#include "r2ccl/plugin/collnet_shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t get_properties(int device, ncclNetProperties_v10_t* properties) {
  const NicProperties* found = nic(device);
  if (!found) return ncclInvalidArgument;
  fill_properties_v9(*found, device, properties);
  collnet_properties_v9(properties);
  return ncclSuccess;
}

ncclResult_t all_gather(void* group, void* sent, int count, ncclNetSGE_v10_t* received, size_t bytes_per_rank,
                        size_t window_offset, size_t window_bytes, void* sent_registration, void** request) {
  return collnet_all_gather(group, sent, count, received, bytes_per_rank, window_offset, window_bytes,
                            sent_registration, request);
}

ncclResult_t reduce_scatter(void* group, int count, ncclNetSGE_v10_t* sent, void* received,
                            size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                            ncclDataType_t type, ncclRedOp_t operation, void* received_registration,
                            void** request) {
  return collnet_reduce_scatter(group, count, sent, received, bytes_per_rank, window_offset, window_bytes,
                                type, operation, received_registration, request);
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclCollNet_v10_t ncclCollNetPlugin_v10;
const r2ccl::nccl_abi::ncclCollNet_v10_t ncclCollNetPlugin_v10 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::collnet_init,
    .devices = r2ccl::plugin::collnet_devices,
    .getProperties = r2ccl::plugin::get_properties,
    .listen = r2ccl::plugin::collnet_listen,
    .connect = r2ccl::plugin::collnet_connect,
    .reduceSupport = r2ccl::plugin::collnet_reduce_support,
    .regMr = r2ccl::plugin::collnet_reg_mr,
    .regMrDmaBuf = r2ccl::plugin::collnet_reg_mr_dma_buf,
    .deregMr = r2ccl::plugin::collnet_dereg_mr,
    .iallreduce = r2ccl::plugin::collnet_all_reduce,
    .iallgather = r2ccl::plugin::all_gather,
    .ireducescatter = r2ccl::plugin::reduce_scatter,
    .iflush = r2ccl::plugin::collnet_flush,
    .test = r2ccl::plugin::collnet_test,
    .closeColl = r2ccl::plugin::collnet_close_group,
    .closeListen = r2ccl::plugin::collnet_close_listen,
    .makeVDevice = nullptr,  // as in the net: NCCL merges no NICs
};
}
