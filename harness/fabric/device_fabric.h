// SPDX-License-Identifier: Apache-2.0
// What NICs the ranks of a job get, and the environment that shows them. One implementation per kind of
// fabric; the core cannot tell them apart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/fabric/device_choice.h"
#include "harness/scenario/node_name.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

/// This machine cannot give what the scenario wants. One sentence for the user.
class FabricError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Which of the job's nodes are on this machine.
struct NodesHere {
  int first = 0;
  int count = 0;
  std::string shared;  ///< DeviceFabric::shared() of the process that made the fabric; empty: make it here

  bool operator==(const NodesHere&) const = default;
};

class DeviceFabric {
 public:
  virtual ~DeviceFabric() = default;
  /// The result's evidence label: emulated, rxe or hardware.
  virtual std::string evidence() const = 0;
  /// By which other processes join this fabric; empty where every machine has its own.
  virtual std::string shared() const { return {}; }
  /// Variables of every process on that node, which is one of this machine's.
  virtual std::map<std::string, std::string> environment(int node) const = 0;
  /// Folders that come first in LD_LIBRARY_PATH.
  virtual std::vector<std::string> library_folders() const = 0;
  /// Bytes that this NIC has carried in both directions; nullopt where nobody counts them.
  virtual std::optional<uint64_t> carried_bytes(int node, int nic) const = 0;
};

/// `kind`: vhca, verbs, rxe or none. `shape`: of the whole job. `lib_dir` is the build's lib folder. Throws
/// FabricError, std::system_error. `wish`: of the fabric verbs.
std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir, const NodesHere& here,
                                          const DeviceWish& wish);
/// All nodes are on this machine; NCCL_IB_HCA is this process's.
std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir);

}  // namespace r2bench
