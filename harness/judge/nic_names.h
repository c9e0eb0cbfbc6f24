// Which NIC a sentence speaks of: an error has to name the one that failed. Pure.
#pragma once

#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// Whether the text names NIC `index` of a node that matches the pattern `node`, in one of the usual ways:
/// vhca0, mlx5_0, nic0, NIC 0. A name of which nobody says whose it is counts.
bool names_nic(const std::string& text, const std::string& node, const std::string& index);

/// The numbers of the NICs that a target names: "0" of "node1/nic0" and of "node1/nic0/qp:2", all of
/// "*/nic*".
std::vector<std::string> nic_indices(const std::string& target, const Fabric& fabric);

}  // namespace r2bench
