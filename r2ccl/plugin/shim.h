// SPDX-License-Identifier: Apache-2.0
// What all versions of the plugin share: NCCL's calls, translated to the core's Net. Nothing is decided here.
// No exception leaves these functions, and every pointer that NCCL handed over for an answer is written on
// success, whatever it held before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "r2ccl/base/result.h"
#include "r2ccl/plugin/nccl_net_abi.h"
#include "r2ccl/service/net.h"

#define R2CCL_EXPORT __attribute__((visibility("default")))

namespace r2ccl::plugin {

using nccl_abi::ncclNetCommConfig_t;
using nccl_abi::ncclNetDeviceHandle_t;
using nccl_abi::ncclResult_t;

inline constexpr char kName[] = "R2CCL";  ///< what NCCL_NET must say

/// Longest message that one isend takes. test and iflush report sizes as int.
inline constexpr size_t kLongestMessage = kMaxMessageBytes;
static_assert(kLongestMessage < (size_t{1} << 31));
static_assert(kHandleBytes == nccl_abi::NCCL_NET_HANDLE_MAXSIZE);
static_assert(kMaxRequests >= nccl_abi::NCCL_NET_MAX_REQUESTS);

/// Writes the error and what to do about it into NCCL's log, once for each different error, and says which
/// of NCCL's results it is.
ncclResult_t report(const Error& error);

/// Takes NCCL's logger and brings the core up. May be called any number of times.
ncclResult_t init(nccl_abi::ncclDebugLogger_t logger);
/// The same for one communicator (v11 and later); `context` gets what finalize() gives back.
ncclResult_t init_context(void** context, uint64_t communicator, ncclNetCommConfig_t* config,
                          nccl_abi::ncclDebugLogger_t logger, nccl_abi::ncclProfilerCallback_t profiler);
ncclResult_t finalize(void* context);

/// The core, once an init has succeeded; else nullptr.
Net* net();

ncclResult_t devices(int* count);
/// The device's properties, its strings valid for ever; nullptr (and an error in the log) when there is no
/// such device.
const NicProperties* nic(int device);

ncclResult_t listen(int device, void* handle, void** listen_comm);
ncclResult_t listen_in_context(void* context, int device, void* handle, void** listen_comm);
ncclResult_t connect(int device, void* handle, void** send_comm, ncclNetDeviceHandle_t** offload);
ncclResult_t connect_with_config(int device, ncclNetCommConfig_t* config, void* handle, void** send_comm,
                                 ncclNetDeviceHandle_t** offload);
ncclResult_t connect_in_context(void* context, int device, void* handle, void** send_comm,
                                ncclNetDeviceHandle_t** offload);
ncclResult_t accept(void* listen_comm, void** recv_comm, ncclNetDeviceHandle_t** offload);
ncclResult_t reg_mr(void* comm, void* data, size_t bytes, int type, void** registration);
ncclResult_t reg_mr_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                            void** registration);
ncclResult_t dereg_mr(void* comm, void* registration);
ncclResult_t isend(void* send_comm, void* data, size_t bytes, void* registration, void** request);
/// `count` is NCCL's n; only 1 is accepted (maxRecvs is 1).
ncclResult_t irecv(void* recv_comm, int count, void** data, size_t bytes, void** registrations,
                   void** request);
ncclResult_t iflush(void* recv_comm, int count, void** data, int* bytes, void** registrations,
                    void** request);
ncclResult_t test(void* request, int* done, int* bytes);
ncclResult_t close_comm(void* comm);
ncclResult_t close_listen(void* listen_comm);
ncclResult_t set_net_attr(void* context, nccl_abi::ncclNetAttr_t* attributes);

/// Fills the members that v8 knows.
template <typename Properties>
void fill_properties_v8(const NicProperties& nic, Properties* out) {
  out->name = const_cast<char*>(nic.name.c_str());
  out->pciPath = nic.pci_path.empty() ? nullptr : const_cast<char*>(nic.pci_path.c_str());
  out->guid = nic.guid;
  out->ptrSupport = nccl_abi::NCCL_PTR_HOST | (nic.gpu_memory ? nccl_abi::NCCL_PTR_CUDA : 0) |
                    (nic.dma_buf ? nccl_abi::NCCL_PTR_DMABUF : 0);
  out->regIsGlobal = 1;  // the core registers for the process, on every NIC
  out->speed = nic.speed_mbps;
  out->port = nic.port;
  out->latency = nic.latency_us;
  out->maxComms = nic.max_channels;
  out->maxRecvs = 1;
  out->netDeviceType = nccl_abi::NCCL_NET_DEVICE_HOST;
  out->netDeviceVersion = 0;
}

/// And those that came with v9.
template <typename Properties>
void fill_properties_v9(const NicProperties& nic, int device, Properties* out) {
  fill_properties_v8(nic, out);
  out->forceFlush = 0;
  out->vProps = {};
  out->vProps.ndevs = 1;  // a physical device is made of itself
  out->vProps.devs[0] = device;
  out->maxP2pBytes = kLongestMessage;
  out->maxCollBytes = kLongestMessage;
}

}  // namespace r2ccl::plugin
