// SPDX-License-Identifier: Apache-2.0
// ncclNet version 9: size_t messages and limits on their size.
#include "r2ccl/plugin/shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t get_properties(int device, ncclNetProperties_v9_t* properties) {
  const NicProperties* found = nic(device);
  if (!found) return ncclInvalidArgument;
  fill_properties_v9(*found, device, properties);
  return ncclSuccess;
}

ncclResult_t isend_v9(void* comm, void* data, size_t bytes, int /*tag*/, void* registration, void** request) {
  return isend(comm, data, bytes, registration, request);
}

ncclResult_t irecv_v9(void* comm, int n, void** data, size_t* bytes, int* /*tags*/, void** registrations,
                      void** request) {
  return irecv(comm, n, data, bytes[0], registrations, request);
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclNet_v9_t ncclNetPlugin_v9;
const r2ccl::nccl_abi::ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::init,
    .devices = r2ccl::plugin::devices,
    .getProperties = r2ccl::plugin::get_properties,
    .listen = r2ccl::plugin::listen,
    .connect = r2ccl::plugin::connect,
    .accept = r2ccl::plugin::accept,
    .regMr = r2ccl::plugin::reg_mr,
    .regMrDmaBuf = r2ccl::plugin::reg_mr_dma_buf,
    .deregMr = r2ccl::plugin::dereg_mr,
    .isend = r2ccl::plugin::isend_v9,
    .irecv = r2ccl::plugin::irecv_v9,
    .iflush = r2ccl::plugin::iflush,
    .test = r2ccl::plugin::test,
    .closeSend = r2ccl::plugin::close_comm,
    .closeRecv = r2ccl::plugin::close_comm,
    .closeListen = r2ccl::plugin::close_listen,
    .getDeviceMr = nullptr,    // for networks that GPU kernels drive
    .irecvConsumed = nullptr,  // likewise
    .makeVDevice = nullptr,    // NCCL then merges no NICs: the core itself moves traffic between them
};
}
