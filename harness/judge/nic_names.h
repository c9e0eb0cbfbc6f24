// SPDX-License-Identifier: Apache-2.0
// Which NIC a sentence speaks of: an error has to name the one that failed. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// Names of the devices of a job, by node and NIC.
using Devices = std::map<int, std::vector<std::string>>;

/// Whether the text names NIC `index` of a node that matches the pattern `node`: as nic0 or NIC 0, or by the
/// name of its device. Where the devices are not known, a usual name with the same number is taken for it:
/// vhca0, mlx5_0. A name of which nobody says whose it is counts.
bool names_nic(const std::string& text, const std::string& node, const std::string& index,
               const Devices& devices);

/// The numbers of the NICs that a target names: "0" of "node1/nic0" and of "node1/nic0/qp:2", all of
/// "*/nic*".
std::vector<std::string> nic_indices(const std::string& target, const Fabric& fabric);

}  // namespace r2bench
