// SPDX-License-Identifier: Apache-2.0
// Faults that could change nothing, because an earlier one has taken all of their NICs and is never healed:
// they would count as witnessed, and as samples, of what the earlier one did.
#include "harness/scenario/node_name.h"
#include "harness/scenario/sections.h"

namespace r2bench {
namespace {

using faultinject::FaultSpec;
using faultinject::Trigger;

bool is_never_healed(const FaultSpec& fault) { return !fault.duration && !fault.ends_by_itself(); }

bool takes_whole_nics_alike(const FaultSpec& a, const FaultSpec& b) {
  return a.kind == b.kind && a.kind->takes == faultinject::Takes::kPort && a.own == b.own &&
         a.events == b.events && a.query == b.query;
}

/// Whether every NIC of `inner` is one of `outer`.
bool covers(const FaultSpec& outer, const FaultSpec& inner, const Fabric& fabric) {
  const faultinject::Target &all = outer.target, &some = inner.target;
  if (all.port != 0 && all.port != some.port) return false;
  if (!all.peer_node.empty() && (all.peer_node != some.peer_node || all.peer_nic != some.peer_nic))
    return false;
  for (int node = 0; node < fabric.nodes; ++node)
    for (int nic = 0; nic < fabric.nics_per_node; ++nic)
      if (matches(some, node_name(node), uint32_t(nic)) && !matches(all, node_name(node), uint32_t(nic)))
        return false;
  return true;
}

/// Whether `first` has fired for certain when `second` fires.
bool fires_before(const FaultSpec& first, const FaultSpec& second) {
  const Trigger &a = first.trigger, &b = second.trigger;
  if (b.kind == Trigger::Kind::kAfter && b.fault == first.name) return true;
  if (a.kind == Trigger::Kind::kNow) return a.phase_up_to.count() == 0;
  if (a.kind != b.kind) return false;
  if (a.kind == Trigger::Kind::kTime)
    return a.since_first_op == b.since_first_op && a.after + a.phase_up_to <= b.after;
  return a.kind == Trigger::Kind::kEvent && a.event == "iteration" && b.event == "iteration" &&
         a.phase_up_to.count() == 0 && a.value.value_or(0) <= b.value.value_or(0);
}

/// Whether `second` finds all that it takes taken by `first`.
bool takes_nothing_beside(const FaultSpec& first, const FaultSpec& second, const Fabric& fabric) {
  return is_never_healed(first) && takes_whole_nics_alike(first, second) && covers(first, second, fabric) &&
         (fires_before(first, second) || (is_never_healed(second) && covers(second, first, fabric)));
}

}  // namespace

void check_overlaps(Document& document, const Scenario& scenario) {
  const std::vector<FaultSpec>& faults = scenario.faults;
  for (size_t i = 0; i < faults.size(); ++i)
    for (size_t j = 0; j < faults.size(); ++j) {
      // Of two alike faults that fire together the later one in the file takes nothing.
      if (i == j || !takes_nothing_beside(faults[j], faults[i], scenario.fabric)) continue;
      if (j > i && takes_nothing_beside(faults[i], faults[j], scenario.fabric)) continue;
      document.report_line(
          faults[i].line, faults[i].column,
          "'" + faults[i].name + "' takes nothing that '" + faults[j].name +
              "' has not taken already, and that one is never healed; say how long it lasts, "
              "such as 'for: 200 ms'");
      break;
    }
}

}  // namespace r2bench
