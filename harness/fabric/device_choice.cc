// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/device_choice.h"

#include <algorithm>

#include "harness/fabric/device_fabric.h"
#include "r2ccl/base/hca_filter.h"

namespace r2bench {

std::vector<std::string> choose_devices(const std::vector<std::string>& active, const DeviceWish& wish,
                                        size_t wanted) {
  std::vector<std::string> chosen;
  std::string excluded;
  for (const std::string& device : active)
    if (r2ccl::passes_hca_filter(wish.ib_hca, device, 1))
      chosen.push_back(device);
    else
      excluded += (excluded.empty() ? "" : ", ") + device;
  if (chosen.size() < wanted)
    throw FabricError(
        "the job wants " + std::to_string(wanted) + (wanted == 1 ? " RDMA device" : " RDMA devices") +
        " with an active port on this host, which has " + std::to_string(chosen.size()) +
        (excluded.empty() ? "" : " (NCCL_IB_HCA=" + wish.ib_hca + " leaves out " + excluded + ")") +
        ": set fabric.nics_per_node to what there is; 'kind: vhca' needs no device");
  const bool lists = !wish.ib_hca.empty() && wish.ib_hca.front() != '^';
  if (!lists && wish.is_control)
    std::stable_partition(chosen.begin(), chosen.end(),
                          [&](const std::string& device) { return !wish.is_control(device); });
  chosen.resize(wanted);
  return chosen;
}

}  // namespace r2bench
