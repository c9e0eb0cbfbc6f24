// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/host_plan.h"

#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"

namespace r2bench {

// What a host needs of the shape when it makes or joins its part of the fabric: the ports of virtual NICs and
// the topology concern whoever makes the virtual fabric, which is the runner.
template <typename Visitor>
void describe(Visitor& visit, Fabric& f) {
  visit("kind", f.kind);
  visit("nodes", f.nodes);
  visit("ranks_per_node", f.ranks_per_node);
  visit("nics_per_node", f.nics_per_node);
  visit("nic_rate_bits_per_s", f.nic_rate_bits_per_s);
  visit("latency", f.latency);
}

template <typename Visitor>
void describe(Visitor& visit, NodesHere& n) {
  visit("first", n.first);
  visit("count", n.count);
  visit("shared", n.shared);
}

template <typename Visitor>
void describe(Visitor& visit, RankPlan& r) {
  visit("rank", r.rank);
  visit("node", r.node);
  visit("label", r.label);
  visit("program", r.program);
  visit("variables", r.variables);
  visit("removed", r.removed);
  visit("config", r.config);
  visit("log", r.log);
}

template <typename Visitor>
void describe(Visitor& visit, HostPlan& p) {
  visit("fabric", p.fabric);
  visit("shape", p.shape);
  visit("nodes", p.nodes);
  visit("seed", p.seed);
  visit("bootstrap_port", p.bootstrap_port);
  visit("topology", p.topology);
  visit("inherited", p.inherited);
  visit("ranks", p.ranks);
  visit("real_faults", p.real_faults);
}

nlohmann::json HostPlan::to_json() const { return fields_to_json(*this); }
HostPlan HostPlan::from_json(const nlohmann::json& json) { return fields_from_json<HostPlan>(json); }

}  // namespace r2bench
