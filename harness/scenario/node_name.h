// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace r2bench {

/// "node0" …: the names of nodes in targets, environments and reports.
inline std::string node_name(int node) { return "node" + std::to_string(node); }

}  // namespace r2bench
