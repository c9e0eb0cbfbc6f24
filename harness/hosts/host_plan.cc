// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_plan.h"

namespace r2bench {

std::vector<NodesHere> nodes_of_hosts(int nodes, int hosts) {
  std::vector<NodesHere> parts;
  int next = 0;
  for (int h = 0; h < hosts; ++h) {
    const int count = nodes / hosts + (h < nodes % hosts ? 1 : 0);
    parts.push_back({next, count, {}});
    next += count;
  }
  return parts;
}

std::vector<faultinject::NodeShape> HostPlan::node_shapes() const {
  std::vector<faultinject::NodeShape> nodes;
  for (int n = 0; n < shape.nodes; ++n) nodes.push_back({node_name(n), uint32_t(shape.nics_per_node)});
  return nodes;
}

}  // namespace r2bench
