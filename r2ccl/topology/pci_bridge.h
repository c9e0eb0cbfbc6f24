// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwloc.h>

namespace r2ccl::topology {

/// A bridge between PCI buses (a switch's port, a root port), not the host bridge above them.
inline bool is_pci_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

}  // namespace r2ccl::topology
