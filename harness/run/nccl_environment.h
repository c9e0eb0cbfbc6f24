// SPDX-License-Identifier: Apache-2.0
// What the engine nccl tells its ranks: which network NCCL takes, which ranks are a node, and what the rank
// program needs besides RankConfig.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// Sets the variables of one rank on `node`. `plugin` is a path, or a name as in NCCL_NET_PLUGIN; `job` tells
/// the nodes of this job from those of others on the host. What the user's shell holds is overridden where it
/// would change the network.
void add_nccl_variables(std::map<std::string, std::string>& environment, const Scenario& scenario,
                        const Mode& mode, const std::string& plugin, const std::string& node,
                        const std::string& job);

/// NcclOptions of the rank with this number (harness/workload/nccl/nccl_options.h).
nlohmann::json nccl_options(const Scenario& scenario, const Mode& mode, int rank);

}  // namespace r2bench
