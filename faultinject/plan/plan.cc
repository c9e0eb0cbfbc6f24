// SPDX-License-Identifier: Apache-2.0
// YAML to FaultSpec.
#include "faultinject/plan/plan.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "faultinject/plan/mapping.h"

namespace faultinject {
PlanError::PlanError(std::string file, int line, int column, std::string message)
    : std::runtime_error((file.empty() ? "" : file + ":") +
                         (line > 0 ? std::to_string(line) + ":" + std::to_string(column) + ":" : "") +
                         (file.empty() && line <= 0 ? "" : " ") + message),
      file_(std::move(file)),
      message_(std::move(message)),
      line_(line),
      column_(column) {}

FaultSpec parse_fault(const YAML::Node& node, const std::string& file) {
  std::vector<std::string> keys = {"kind", "target", "name"};
  keys.insert(keys.end(), trigger_keys().begin(), trigger_keys().end());
  keys.insert(keys.end(), parameter_keys().begin(), parameter_keys().end());
  const Mapping fault(node, file, "a fault", keys);
  const Place place(file, node);

  const std::vector<std::string> kinds = fault_kind_names();
  if (!fault.has("kind")) place.fail("a fault needs 'kind' (one of: " + joined(kinds) + ")");
  if (!fault.has("target")) place.fail("a fault needs 'target', e.g. target: node1/nic0");
  const std::string kind = fault.text("kind");
  const FaultKind* known = find_fault_kind(kind);
  if (known == nullptr)
    fault.place("kind").fail("unknown kind '" + kind + "'" + suggestion(kind, kinds) +
                             " (kinds: " + joined(kinds) + ")");
  FaultSpec spec(*known);
  spec.file = file;
  spec.line = place.line;
  spec.column = place.column;
  const Place target = fault.place("target");
  spec.target = parse_target(fault.text("target"), file, target.line, target.column);
  parse_parameters(fault, file, spec);
  parse_trigger(fault, file, spec);
  spec.name = fault.has("name") ? fault.text("name") : kind + " " + spec.target.text;
  return spec;
}

std::vector<FaultSpec> parse_faults(const YAML::Node& node, const std::string& file) {
  std::vector<FaultSpec> faults;
  if (!node || node.IsNull()) return faults;
  if (!node.IsSequence())
    Place(file, node)
        .fail("'faults' must be a list, e.g. - {at: {iter: 60}, target: node1/nic0, kind: port_down}");
  std::vector<std::string> names;
  for (const YAML::Node& entry : node) {
    faults.push_back(parse_fault(entry, file));
    const std::string& first = faults.back().trigger.fault;
    const bool is_id = first.find_first_not_of("0123456789") == std::string::npos;
    const auto known = std::count(names.begin(), names.end(), first);
    if (!is_id && known > 1)
      Place(file, entry["after"])
          .fail("several faults before this one are called '" + first + "'; give them a 'name' each");
    if (!is_id && known == 0)
      Place(file, entry["after"])
          .fail("no fault before this one is called '" + first + "'" + suggestion(first, names) +
                (names.empty() ? "" : " (there are: " + joined(names) + ")"));
    if (entry["name"] && std::find(names.begin(), names.end(), faults.back().name) != names.end())
      Place(file, entry["name"]).fail("a fault before this one is called '" + faults.back().name + "', too");
    names.push_back(faults.back().name);
  }
  return faults;
}

}  // namespace faultinject
