// SPDX-License-Identifier: Apache-2.0
// A topology file for NCCL (NCCL_TOPO_FILE) that places NICs beside a GPU, under one PCI bridge: NICs without
// a place in /sys are merged into one only where a file says that they are neighbours.
#pragma once

#include <string>
#include <vector>

#include "harness/workload/nccl/cuda_driver.h"

namespace r2bench {

/// The file's text. `cpu` is what /proc/cpuinfo says.
std::string topology_text(const cuda::PciPlace& gpu, const std::vector<std::string>& nics,
                          const std::string& cpu);

/// Writes it to memory that this process holds; returns a path that is valid as long as it lives. Throws
/// std::system_error.
std::string write_topology_file(const cuda::PciPlace& gpu, const std::vector<std::string>& nics);

}  // namespace r2bench
