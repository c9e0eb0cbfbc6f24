// SPDX-License-Identifier: Apache-2.0
// `faults:` — the injector's faults are read by its own plan; those that strike a whole rank are read here.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "faultinject/plan/units.h"
#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"
#include "r2ccl/trace/event.h"

namespace r2bench {
namespace {

std::vector<std::string> event_names() {
  std::vector<std::string> names;
  for (uint16_t value = 1; value < 256; ++value) {
    const std::string_view event = r2ccl::trace::name(static_cast<r2ccl::trace::EventType>(value));
    if (r2ccl::trace::event_from_name(event) != r2ccl::trace::EventType::kNone) names.emplace_back(event);
  }
  return names;
}

/// The K of "<prefix>K", when the text is just that.
std::optional<int> index_after(const std::string& text, const std::string& prefix) {
  if (text.rfind(prefix, 0) != 0) return std::nullopt;
  int index = 0;
  const auto [end, error] = std::from_chars(text.data() + prefix.size(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size() || index < 0) return std::nullopt;
  return index;
}

bool read_rank_target(Document& document, const YAML::Node& at, const std::string& text, const Fabric& fabric,
                      RankFault& fault) {
  const size_t slash = text.find('/');
  const auto node = index_after(text.substr(0, slash), "node");
  const auto rank = slash == std::string::npos ? std::nullopt : index_after(text.substr(slash + 1), "rank");
  if (!node || !rank) {
    document.report(
        at, "'" + text + "' is no rank; write for example node1/rank0 (ranks count within their node)");
    return false;
  }
  if (*node >= fabric.nodes || *rank >= fabric.ranks_per_node) {
    document.report(
        at, "'" + text + "' does not exist; there are node0 to node" + std::to_string(fabric.nodes - 1) +
                ", each with rank0" +
                (fabric.ranks_per_node > 1 ? " to rank" + std::to_string(fabric.ranks_per_node - 1) : ""));
    return false;
  }
  fault.node = *node;
  fault.local_rank = *rank;
  return true;
}

void read_rank_trigger(Document& document, MapReader& map, const YAML::Node& entry, RankFault& fault) {
  if (!map.has("at")) {
    document.report(entry, "the fault needs 'at', such as 'at: {iter: 60}' or 'at: {time: 200 ms}'");
    return;
  }
  MapReader at(document, map.get("at"), "at");
  if (const auto iter = at.integer("iter", 0, 100'000'000)) fault.at_iter = static_cast<int>(*iter);
  fault.at_time = at.parsed<std::chrono::nanoseconds>("time", faultinject::parse_duration);
  const YAML::Node given = map.get("at");
  bool foreign = false;
  for (const char* other : {"wr", "bytes", "since"}) {
    foreign = foreign || (given.IsMap() && given[other].IsDefined());
    at.known_but(other, std::string("'") + other +
                            "' triggers faults of NICs; a rank's fault starts at 'iter' or 'time'");
  }
  if (given.IsMap() && !foreign && at.has("iter") == at.has("time")) {
    document.report(given, "give either 'iter' or 'time'");
  }
  at.finish();
}

void read_rank_fault(Document& document, const YAML::Node& entry, Scenario& scenario) {
  RankFault fault;
  MapReader map(document, entry, "a fault");
  fault.kind = static_cast<RankFaultKind>(*map.choice("kind", rank_fault_kind_names(), "kind of fault"));
  map.known_but("on", std::string("'") + name(fault.kind) +
                          "' is done by r2bench and not by the injector; it starts at 'iter' or 'time'");
  const auto target = map.text("target");
  if (!target) {
    if (!map.has("target")) document.report(entry, "the fault needs 'target', such as node1/rank0");
  } else if (read_rank_target(document, map.get("target"), *target, scenario.fabric, fault)) {
    fault.name = map.text("name").value_or(std::string(name(fault.kind)) + " " + *target);
  }
  map.has("name");
  read_rank_trigger(document, map, entry, fault);
  const auto duration = map.parsed<std::chrono::nanoseconds>("for", faultinject::parse_duration);
  const bool lasts = rank_fault_info(fault.kind).lasts;
  if (!lasts && map.has("for")) {
    document.report(map.get("for"), std::string("after '") + name(fault.kind) +
                                        "' the rank does not come back; leave 'for' out");
  } else if (lasts && !map.has("for")) {
    document.report(entry, std::string("'") + name(fault.kind) + "' needs 'for', such as 'for: 2 s'");
  } else if (duration && duration->count() == 0) {
    document.report(map.get("for"), "'for' must be longer than 0");
  }
  fault.duration = duration.value_or(fault.duration);
  map.finish();
  scenario.rank_faults.push_back(std::move(fault));
}

void read_injected_fault(Document& document, const YAML::Node& entry, Scenario& scenario) {
  try {
    faultinject::FaultSpec fault = faultinject::parse_fault(entry, document.file());
    std::vector<faultinject::NodeShape> nodes;
    const int ports = scenario.fabric.kind == FabricKind::kVhca ? scenario.fabric.ports.per_nic : 0;
    for (int i = 0; i < scenario.fabric.nodes; ++i) {
      nodes.push_back({"node" + std::to_string(i), static_cast<uint32_t>(scenario.fabric.nics_per_node),
                       static_cast<uint32_t>(ports)});
    }
    try {
      faultinject::check_targets(fault, nodes);
    } catch (const faultinject::PlanError& error) {
      document.report(std::as_const(entry)["target"], error.message());
      return;
    }
    using Kind = faultinject::Trigger::Kind;
    if (fault.trigger.kind == Kind::kManual) {
      document.report(entry,
                      "nothing triggers this fault; add 'at', such as 'at: {iter: 60}', or 'on', such as "
                      "'on: migration_started'");
    }
    if (fault.trigger.kind == Kind::kEvent && fault.trigger.event != "iteration") {
      const std::vector<std::string> known = event_names();
      if (std::find(known.begin(), known.end(), fault.trigger.event) == known.end()) {
        const std::string suggestion = did_you_mean(fault.trigger.event, known);
        document.report(entry["on"], "unknown event '" + fault.trigger.event + "'" +
                                         (suggestion.empty() ? "; there are " + list_of(known) : suggestion));
      }
    }
    if (fault.trigger.kind == Kind::kAfter) {
      std::vector<std::string> earlier;
      for (const auto& other : scenario.faults) earlier.push_back(other.name);
      if (std::find(earlier.begin(), earlier.end(), fault.trigger.fault) == earlier.end()) {
        const std::string suggestion = did_you_mean(fault.trigger.fault, earlier);
        document.report(entry["after"],
                        "no fault before this one is called '" + fault.trigger.fault + "'" + suggestion);
      }
    }
    scenario.faults.push_back(std::move(fault));
  } catch (const faultinject::PlanError& error) {
    document.report_line(error.line(), error.column(), error.message());
  }
}

/// Two faults with one name could not be told apart in a report.
class UniqueNames {
 public:
  template <typename Fault>
  void give(std::vector<Fault>& faults) {
    for (Fault& fault : faults) {
      const std::string plain = fault.name;
      for (int& last = last_.try_emplace(plain, 1).first->second; !taken_.insert(fault.name).second;)
        fault.name = plain + " #" + std::to_string(++last);
    }
  }

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> last_;  ///< number that was given with a name
};

}  // namespace

void read_faults(Document& document, const YAML::Node& node, Scenario& scenario) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!node.IsSequence()) {
    document.report(node, std::string("'faults' must be a list, but is ") + kind_of(node));
    return;
  }
  std::vector<std::string> kinds = faultinject::fault_kind_names();
  for (const std::string& kind : rank_fault_kind_names()) kinds.push_back(kind);
  for (const auto& entry : node) {
    if (!entry.IsMap()) {
      document.report(entry,
                      std::string("a fault must be a map such as {at: {iter: 60}, target: node1/nic0, kind: "
                                  "port_down}, but is ") +
                          kind_of(entry));
      continue;
    }
    const YAML::Node kind = std::as_const(entry)["kind"];
    if (!kind.IsDefined() || !kind.IsScalar()) {
      document.report(entry, "the fault needs 'kind', one of " + list_of(kinds));
      continue;
    }
    if (std::find(kinds.begin(), kinds.end(), kind.Scalar()) == kinds.end()) {
      const std::string suggestion = did_you_mean(kind.Scalar(), kinds);
      document.report(kind, "unknown kind of fault '" + kind.Scalar() + "'" +
                                (suggestion.empty() ? "; the kinds are " + list_of(kinds) : suggestion));
      continue;
    }
    if (find_rank_fault_kind(kind.Scalar()) != nullptr) {
      read_rank_fault(document, entry, scenario);
    } else {
      read_injected_fault(document, entry, scenario);
    }
  }
  UniqueNames names;
  names.give(scenario.faults);
  names.give(scenario.rank_faults);
}

}  // namespace r2bench
