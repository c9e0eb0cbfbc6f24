// SPDX-License-Identifier: Apache-2.0
// In which order a node's NICs are numbered, and which of them are used where there are too many. A straight
// rail joins NICs of the same number, so all nodes should number alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace r2ccl::topology {

/// The order by PCI address (domain, bus, device, function), which nodes of one make have in common; the
/// kernel's own order is the one in which drivers found the devices. Indices into `nic_names`. NICs without a
/// PCI device come last, as they stand. This is how NCCL 2.29 and newer order them
/// (NCCL_IB_DEVICE_PCI_ORDER).
std::vector<size_t> order_by_pci(std::span<const std::string> nic_names, const std::string& sysfs = "/sys");

/// Indices of the `most` fastest, in their order; of equals the first ones. Compute nodes have slower NICs
/// for storage and management among those for the GPUs.
std::vector<size_t> fastest(std::span<const int> speeds_mbps, size_t most);

}  // namespace r2ccl::topology
