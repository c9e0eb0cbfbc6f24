// SPDX-License-Identifier: Apache-2.0
// ncclNet version 11: one context per communicator.
#include "r2ccl/plugin/shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t get_properties(int device, ncclNetProperties_v11_t* properties) {
  const NicProperties* found = nic(device);
  if (!found) return ncclInvalidArgument;
  fill_properties_v9(*found, device, properties);
  properties->maxMultiRequestSize = 1;
  return ncclSuccess;
}

ncclResult_t isend_v11(void* comm, void* data, size_t bytes, int /*tag*/, void* registration,
                       void* /*profiler*/, void** request) {
  return isend(comm, data, bytes, registration, request);
}

ncclResult_t irecv_v11(void* comm, int n, void** data, size_t* bytes, int* /*tags*/, void** registrations,
                       void** /*profilers*/, void** request) {
  return irecv(comm, n, data, bytes[0], registrations, request);
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclNet_v11_t ncclNetPlugin_v11;
const r2ccl::nccl_abi::ncclNet_v11_t ncclNetPlugin_v11 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::init_context,
    .devices = r2ccl::plugin::devices,
    .getProperties = r2ccl::plugin::get_properties,
    .listen = r2ccl::plugin::listen_in_context,
    .connect = r2ccl::plugin::connect_in_context,
    .accept = r2ccl::plugin::accept,
    .regMr = r2ccl::plugin::reg_mr,
    .regMrDmaBuf = r2ccl::plugin::reg_mr_dma_buf,
    .deregMr = r2ccl::plugin::dereg_mr,
    .isend = r2ccl::plugin::isend_v11,
    .irecv = r2ccl::plugin::irecv_v11,
    .iflush = r2ccl::plugin::iflush,
    .test = r2ccl::plugin::test,
    .closeSend = r2ccl::plugin::close_comm,
    .closeRecv = r2ccl::plugin::close_comm,
    .closeListen = r2ccl::plugin::close_listen,
    .getDeviceMr = nullptr,    // for networks that GPU kernels drive
    .irecvConsumed = nullptr,  // likewise
    .makeVDevice = nullptr,    // NCCL then merges no NICs: the core itself moves traffic between them
    .finalize = r2ccl::plugin::finalize,
    .setNetAttr = r2ccl::plugin::set_net_attr,
};
}
