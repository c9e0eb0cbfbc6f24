// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/first_day_shape.h"

#include <algorithm>

namespace r2bench {
namespace {

std::string counted(int count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

}  // namespace

std::optional<NodesAndNics> fitting(const NodesAndNics& wanted, const NodesAndNics& least, int hosts,
                                    int ports) {
  for (int nodes = std::max(wanted.nodes, hosts); nodes >= std::max(least.nodes, hosts); --nodes) {
    const int on_one_host = (nodes + hosts - 1) / hosts;
    const int nics = std::min(wanted.nics, ports / on_one_host);
    if (nics >= least.nics) return NodesAndNics{nodes, nics};
  }
  return std::nullopt;
}

std::string why_not_fitting(const NodesAndNics& least, int hosts, int ports) {
  return "it needs " + counted(least.nodes, "node") + " with " + counted(least.nics, "NIC") + " each; " +
         counted(hosts, "host") + " with " + counted(ports, "active port") + (hosts == 1 ? "" : " each") +
         " cannot give them";
}

std::string set_options(const NodesAndNics& wanted, const NodesAndNics& fits) {
  std::string options;
  if (fits.nodes != wanted.nodes) options += "--set fabric.nodes=" + std::to_string(fits.nodes);
  if (fits.nics != wanted.nics)
    options += (options.empty() ? "" : " ") + ("--set fabric.nics_per_node=" + std::to_string(fits.nics));
  return options;
}

}  // namespace r2bench
