// SPDX-License-Identifier: Apache-2.0
// Which of a host's RDMA devices a job takes. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace r2bench {

/// What stands against a device, beside its port.
struct DeviceWish {
  /// NCCL_IB_HCA in NCCL's own syntax: "mlx5_0,mlx5_1", "=mlx5_0", "^=mlx5_3". Empty: any device.
  std::string ib_hca;
  /// Whether the machine's way out goes over this device's port; empty: nobody knows.
  std::function<bool(const std::string& device)> is_control;
};

/// The first `wanted` of `active` (devices whose port 1 is active, in the order of libibverbs) that
/// NCCL_IB_HCA lets through. A control port comes after all others, unless NCCL_IB_HCA lists what to take: a
/// user who names it means it. Throws FabricError when they do not suffice, with what was left out and why.
std::vector<std::string> choose_devices(const std::vector<std::string>& active, const DeviceWish& wish,
                                        size_t wanted);

}  // namespace r2bench
