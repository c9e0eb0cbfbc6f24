// SPDX-License-Identifier: Apache-2.0
// A scenario's topology in the format in which `lstopo --of xml` writes a machine's, so that whatever reads
// the one reads the other.
#pragma once

#include <string>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// One node of the fabric, which must have a topology: a package with a NUMA node per socket, PCI bridges as
/// real machines have them (a switch is an upstream port with a downstream port per device), GPUs, and NICs
/// with the name that libibverbs gives them (vhca0 …). hwloc 2 format.
std::string topology_xml(const Fabric& fabric);

/// PCI addresses as topology_xml() gives them, by number: "0000:03:00.0".
struct TopologyBusIds {
  std::vector<std::string> nics, gpus;
};
TopologyBusIds topology_bus_ids(const Fabric& fabric);

}  // namespace r2bench
