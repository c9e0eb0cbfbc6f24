// SPDX-License-Identifier: Apache-2.0
// How many nodes and NICs of a scenario the machines of a first day can give. Pure.
#pragma once

#include <optional>
#include <string>

namespace r2bench {

struct NodesAndNics {
  int nodes = 0, nics = 0;  ///< of the whole job, and of each node
  bool operator==(const NodesAndNics&) const = default;
};

/// The most nodes, then the most NICs, up to the scenario's own (`wanted`) and at least one node a host, that
/// `hosts` machines with `ports` ports each can give. `least`: below it the scenario shows nothing. nullopt:
/// they cannot.
std::optional<NodesAndNics> fitting(const NodesAndNics& wanted, const NodesAndNics& least, int hosts,
                                    int ports);

/// "it needs 3 nodes with 2 NICs each; 2 hosts with 2 active ports each cannot give them"
std::string why_not_fitting(const NodesAndNics& least, int hosts, int ports);

/// The options of `r2bench run` for that; empty: the scenario is as it is wanted.
std::string set_options(const NodesAndNics& wanted, const NodesAndNics& fits);

}  // namespace r2bench
