// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/job_record.h"

#include <string>

#include "harness/scenario/node_name.h"

namespace r2bench {

std::vector<NicId> nics_of(const faultinject::Target& target, const Fabric& fabric) {
  std::vector<NicId> nics;
  for (int node = 0; node < fabric.nodes; ++node)
    for (int nic = 0; nic < fabric.nics_per_node; ++nic)
      if (faultinject::pattern_matches(target.node, node_name(node)) &&
          faultinject::pattern_matches(target.nic, "nic" + std::to_string(nic)))
        nics.push_back({uint16_t(node), uint16_t(nic)});
  return nics;
}

}  // namespace r2bench
