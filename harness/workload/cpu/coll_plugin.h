// SPDX-License-Identifier: Apache-2.0
// What a net plugin's library has beside the net, behind small interfaces: CollNet (versions 8 to 12) and the
// tuner (2 to 6), called as NCCL calls them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/workload/cpu/net_plugin.h"
#include "r2ccl/plugin/nccl_collnet_abi.h"
#include "r2ccl/plugin/nccl_tuner_abi.h"

namespace r2bench {

class CollPlugin {
 public:
  using Status = NetPlugin::Status;
  virtual ~CollPlugin() = default;

  virtual int abi() const = 0;
  /// `communicator` is NCCL's number of it.
  virtual Status init(uint64_t communicator, r2ccl::nccl_abi::ncclDebugLogger_t logger) = 0;
  virtual Status devices(int* count) = 0;
  /// The device's name and maxCollBytes (INT_MAX in version 8). The struct is handed in poisoned.
  virtual std::string properties(int device, size_t* longest) = 0;
  virtual Status listen(int device, void* handle, void** listener) = 0;
  virtual Status connect(void* handles[], int ranks, int rank, void* listener, void** group) = 0;
  virtual Status reduce_support(int type, int operation, int* supported) = 0;
  virtual Status reg(void* group, void* data, size_t bytes, void** registration) = 0;
  virtual Status dereg(void* group, void* registration) = 0;
  virtual Status all_reduce(void* group, void* sent, void* received, size_t count, int type, int operation,
                            void* sent_registration, void* received_registration, void** request) = 0;
  virtual Status test(void* request, bool* done, size_t* bytes) = 0;
  virtual Status close_group(void* group) = 0;
  virtual Status close_listen(void* listener) = 0;
  virtual Status finalize() = 0;
};

/// Of the library that load_net_plugin() has loaded; nullptr where it has no CollNet. `abi` as there.
std::unique_ptr<CollPlugin> load_coll_plugin(const std::string& name, int abi);

/// The algorithms between which this workload chooses, and what NCCL's model would say of them.
struct CostTable {
  double ring_us = 0;
  double coll_us = -1;  ///< below 0: not to be had
};
enum class Algorithm { kRing, kCollNet };

class TunerPlugin {
 public:
  using Status = NetPlugin::Status;
  virtual ~TunerPlugin() = default;
  virtual int abi() const = 0;
  virtual Status init(uint64_t communicator, size_t ranks, size_t nodes,
                      r2ccl::nccl_abi::ncclDebugLogger_t logger) = 0;
  /// Asks for an AllReduce of `bytes`, and picks the least cost of the table as NCCL does.
  virtual Status choose(size_t bytes, const CostTable& costs, Algorithm* algorithm) = 0;
  virtual Status finalize() = 0;
};

/// The newest that the library exports, up to what the NCCL versions with net version `net_abi` ask for;
/// nullptr where it has none.
std::unique_ptr<TunerPlugin> load_tuner_plugin(const std::string& name, int net_abi);

/// The least cost of `costs` without a tuner.
Algorithm cheapest(const CostTable& costs);

}  // namespace r2bench
