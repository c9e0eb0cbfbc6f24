// SPDX-License-Identifier: Apache-2.0
// ncclCollNet version 8: counts and sizes are int.
#include <vector>

#include "r2ccl/plugin/calls.h"
#include "r2ccl/plugin/collnet_shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t get_properties(int device, ncclNetProperties_v8_t* properties) {
  const NicProperties* found = nic(device);
  if (!found) return ncclInvalidArgument;
  fill_properties_v8(*found, properties);
  collnet_properties_v8(properties);
  return ncclSuccess;
}

/// NCCL's parts with sizes of this version's width.
std::vector<ncclNetSGE_v9_t> widened(int count, const ncclNetSGE_v8_t* parts) {
  std::vector<ncclNetSGE_v9_t> wide;
  for (int i = 0; i < count; ++i) wide.push_back({parts[i].mhandle, parts[i].address, parts[i].size});
  return wide;
}

ncclResult_t all_reduce(void* group, void* sent, void* received, int count, ncclDataType_t type,
                        ncclRedOp_t operation, void* sent_registration, void* received_registration,
                        void** request) {
  return collnet_all_reduce(group, sent, received, static_cast<size_t>(count), type, operation,
                            sent_registration, received_registration, request);
}

ncclResult_t all_gather(void* group, void* sent, int count, ncclNetSGE_v8_t* received, size_t bytes_per_rank,
                        size_t window_offset, size_t window_bytes, void* sent_registration, void** request) {
  return guarded("iallgather", [&] {
    return collnet_all_gather(group, sent, count, widened(count, received).data(), bytes_per_rank,
                              window_offset, window_bytes, sent_registration, request);
  });
}

ncclResult_t reduce_scatter(void* group, int count, ncclNetSGE_v8_t* sent, void* received,
                            size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                            ncclDataType_t type, ncclRedOp_t operation, void* received_registration,
                            void** request) {
  return guarded("ireducescatter", [&] {
    return collnet_reduce_scatter(group, count, widened(count, sent).data(), received, bytes_per_rank,
                                  window_offset, window_bytes, type, operation, received_registration,
                                  request);
  });
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclCollNet_v8_t ncclCollNetPlugin_v8;
const r2ccl::nccl_abi::ncclCollNet_v8_t ncclCollNetPlugin_v8 = {
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
    .iallreduce = r2ccl::plugin::all_reduce,
    .iallgather = r2ccl::plugin::all_gather,
    .ireducescatter = r2ccl::plugin::reduce_scatter,
    .iflush = r2ccl::plugin::collnet_flush,
    .test = r2ccl::plugin::collnet_test,
    .closeColl = r2ccl::plugin::collnet_close_group,
    .closeListen = r2ccl::plugin::collnet_close_listen,
};
}
