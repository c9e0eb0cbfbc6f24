// SPDX-License-Identifier: Apache-2.0
// What one host is to do for one job: which of the scenario's nodes live there, and how their ranks are
// started. Plain data, and the same data as JSON for a host that is another machine.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "faultinject/plan/plan.h"
#include "harness/fabric/device_fabric.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

struct RankPlan {
  int rank = 0;                                  ///< of the job
  int node = 0;                                  ///< of the scenario
  std::string label;                             ///< node0/rank0
  std::string program;                           ///< its name in the build's folder of programs
  std::map<std::string, std::string> variables;  ///< on top of the host's environment and the fabric's
  std::vector<std::string> removed;  ///< variables of the host's environment that it must not have
  nlohmann::json config;             ///< the first message to it
  std::string log;                   ///< file of its output, within the run's folder
};

struct HostPlan {
  std::string fabric;  ///< vhca, verbs, rxe or none
  Fabric shape;        ///< of the whole job
  NodesHere nodes;
  uint64_t seed = 0;
  uint16_t bootstrap_port = 0;  ///< 0: socket pairs
  std::string topology;         ///< of a node, as hwloc reads it; empty: the scenario declares none
  std::map<std::string, std::string> inherited;  ///< the user's settings where the runner was started
  std::vector<RankPlan> ranks;
  /// Of the whole job; each host makes those on its own NICs. Empty: the user has not allowed any.
  std::vector<faultinject::FaultSpec> real_faults;

  /// The nodes of the whole job, as fault boards want them.
  std::vector<faultinject::NodeShape> node_shapes() const;

  nlohmann::json to_json() const;
  /// Throws nlohmann::json::exception.
  static HostPlan from_json(const nlohmann::json& json);
};

/// `nodes` dealt out to `hosts` in blocks, in order; the first ones get one more where it does not come out
/// even.
std::vector<NodesHere> nodes_of_hosts(int nodes, int hosts);

}  // namespace r2bench
