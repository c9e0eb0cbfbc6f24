// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwloc.h>

namespace r2ccl::topology {

/// Leaves out, before hwloc_topology_load(), those of hwloc's components that would start a GPU runtime or
/// talk to a display inside somebody's training job; and "pci" (libpciaccess). That one adds the names of PCI
/// devices, from a table that it never frees: each load reads the table again, 0.4 MB. Without it hwloc reads
/// the PCI devices from sysfs.
inline void leave_out_components(hwloc_topology_t topology) {
  static constexpr const char* kLeftOut[] = {"pci", "cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};
  for (const char* component : kLeftOut)
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
}

}  // namespace r2ccl::topology
