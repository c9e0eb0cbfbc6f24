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

#include "harness/scenario/scenario.h"

namespace r2bench {

/// This machine cannot give what the scenario wants. One sentence for the user.
class FabricError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class DeviceFabric {
 public:
  virtual ~DeviceFabric() = default;
  /// The result's evidence label: emulated, rxe or hardware.
  virtual std::string evidence() const = 0;
  /// Variables of every process on that node.
  virtual std::map<std::string, std::string> environment(int node) const = 0;
  /// Folders that come first in LD_LIBRARY_PATH.
  virtual std::vector<std::string> library_folders() const = 0;
  /// Bytes that this NIC has carried in both directions; nullopt where nobody counts them.
  virtual std::optional<uint64_t> carried_bytes(int node, int nic) const = 0;
};

/// "node0" …: the names of nodes in targets, environments and reports.
std::string node_name(int node);

/// `kind`: vhca, verbs, rxe or none. `lib_dir` is the build's lib folder. Throws FabricError,
/// std::system_error.
std::unique_ptr<DeviceFabric> make_fabric(const std::string& kind, const Fabric& shape,
                                          const std::string& lib_dir);

}  // namespace r2bench
