// SPDX-License-Identifier: Apache-2.0
// One way to call a plugin of any version, for tests: what differs between the versions is passed neutrally
// here (no context settings, no profiler, no traffic class).
#pragma once

#include <cstdint>

#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2ccl::plugin_test {

using namespace nccl_abi;

struct Version8 {
  using Net = ncclNet_v8_t;
  using Properties = ncclNetProperties_v8_t;
  static constexpr int kNumber = 8;
  static constexpr const char* kSymbol = "ncclNetPlugin_v8";
};
struct Version9 {
  using Net = ncclNet_v9_t;
  using Properties = ncclNetProperties_v9_t;
  static constexpr int kNumber = 9;
  static constexpr const char* kSymbol = "ncclNetPlugin_v9";
};
struct Version10 {
  using Net = ncclNet_v10_t;
  using Properties = ncclNetProperties_v10_t;
  static constexpr int kNumber = 10;
  static constexpr const char* kSymbol = "ncclNetPlugin_v10";
};
struct Version11 {
  using Net = ncclNet_v11_t;
  using Properties = ncclNetProperties_v11_t;
  static constexpr int kNumber = 11;
  static constexpr const char* kSymbol = "ncclNetPlugin_v11";
};
struct Version12 {
  using Net = ncclNet_v12_t;
  using Properties = ncclNetProperties_v12_t;
  static constexpr int kNumber = 12;
  static constexpr const char* kSymbol = "ncclNetPlugin_v12";
};

template <typename V>
struct Plugin {
  const typename V::Net& net;
  void* context = nullptr;

  ncclResult_t init(ncclDebugLogger_t logger) {
    if constexpr (V::kNumber >= 11) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net.init(&context, 0x1234, &config, logger, nullptr);
    } else if constexpr (V::kNumber == 10) {
      return net.init(logger, nullptr);
    } else {
      return net.init(logger);
    }
  }
  ncclResult_t finalize() {
    if constexpr (V::kNumber >= 11) return net.finalize(context);
    return ncclSuccess;
  }
  ncclResult_t listen(int device, void* handle, void** comm) {
    if constexpr (V::kNumber >= 11) {
      return net.listen(context, device, handle, comm);
    } else {
      return net.listen(device, handle, comm);
    }
  }
  ncclResult_t connect(int device, void* handle, void** comm) {
    ncclNetDeviceHandle_t* offload = nullptr;
    if constexpr (V::kNumber >= 11) {
      return net.connect(context, device, handle, comm, &offload);
    } else if constexpr (V::kNumber == 10) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net.connect(device, &config, handle, comm, &offload);
    } else {
      return net.connect(device, handle, comm, &offload);
    }
  }
  ncclResult_t accept(void* listen_comm, void** comm) {
    ncclNetDeviceHandle_t* offload = nullptr;
    return net.accept(listen_comm, comm, &offload);
  }
  ncclResult_t isend(void* comm, void* data, int64_t bytes, void* registration, void** request) {
    constexpr int kTag = 7;
    if constexpr (V::kNumber >= 10) {
      return net.isend(comm, data, static_cast<size_t>(bytes), kTag, registration, nullptr, request);
    } else if constexpr (V::kNumber == 9) {
      return net.isend(comm, data, static_cast<size_t>(bytes), kTag, registration, request);
    } else {
      return net.isend(comm, data, static_cast<int>(bytes), kTag, registration, request);
    }
  }
  /// Posts `count` equal receives in one call (NCCL's grouped receive).
  ncclResult_t irecv(void* comm, void* data, int64_t bytes, void* registration, void** request,
                     int count = 1) {
    void* datas[2] = {data, data};
    void* registrations[2] = {registration, registration};
    void* profilers[2] = {nullptr, nullptr};
    int tags[2] = {7, 7};
    if constexpr (V::kNumber == 8) {
      int sizes[2] = {static_cast<int>(bytes), static_cast<int>(bytes)};
      return net.irecv(comm, count, datas, sizes, tags, registrations, request);
    } else {
      size_t sizes[2] = {static_cast<size_t>(bytes), static_cast<size_t>(bytes)};
      if constexpr (V::kNumber == 9) {
        return net.irecv(comm, count, datas, sizes, tags, registrations, request);
      } else {
        return net.irecv(comm, count, datas, sizes, tags, registrations, profilers, request);
      }
    }
  }
};

}  // namespace r2ccl::plugin_test
