// SPDX-License-Identifier: Apache-2.0
// Where a NIC of the job is in this machine, by the kernel's own word (sysfs).
#pragma once

#include <string>

namespace r2bench {

struct NicPlace {
  int node = 0, nic = 0;  ///< of the job
  std::string device;     ///< RDMA device: mlx5_0
  std::string
      interface;      ///< network interface of its port; empty where it has none (InfiniBand without IPoIB)
  std::string pci;    ///< 0000:3b:00.0; empty for soft RoCE
  bool soft = false;  ///< soft RoCE or iWARP: its packets pass the host's own network stack

  /// "node1/nic0 (mlx5_0, ens1f0, 0000:3b:00.0)"
  std::string in_words() const;
};

/// `sys`: where sysfs lies. What sysfs does not say stays empty.
NicPlace place_of(int node, int nic, const std::string& device, const std::string& sys = "/sys");

/// "DPU", "NIC", or "unknown" where its tool is missing or does not tell; empty: no BlueField.
std::string bluefield_mode(const NicPlace& place, const std::string& sys = "/sys");

}  // namespace r2bench
