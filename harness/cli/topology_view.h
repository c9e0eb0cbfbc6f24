// SPDX-License-Identifier: Apache-2.0
// A node as hwloc sees it, drawn as a tree of sockets, switches, GPUs and NICs, with the distances that the
// core goes by.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace r2bench {

/// What is to be drawn, and what hwloc does not know of it.
struct TopologySource {
  std::string title;  ///< "this machine", "topology.xml" …
  std::string xml;    ///< as `lstopo --of xml` writes it
  std::optional<double>
      cross_socket;  ///< what a lane across sockets carries of its NIC's rate; not told: unknown
  std::map<std::string, std::string> speed;  ///< of NICs, by the name that libibverbs gives them
};

/// This machine; speeds from sysfs, cross_socket from R2CC_CROSS_SOCKET. Throws std::runtime_error.
TopologySource topology_of_machine();
/// A file. Throws UsageError when it cannot be read.
TopologySource topology_of_file(const std::string& path);
/// A scenario file. Throws ScenarioError; UsageError when it declares no topology.
TopologySource topology_of_scenario(const std::string& path);

/// Prints the tree, the table of distances and each NIC's stand-ins. Returns how many NICs there are. Throws
/// UsageError when hwloc cannot read it.
size_t draw_topology(const TopologySource& source, size_t columns, std::ostream& out);

}  // namespace r2bench
