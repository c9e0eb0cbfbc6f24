// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/plan_text.h"

#include <yaml-cpp/yaml.h>

#include <utility>

#include "faultinject/plan/yaml_end.h"

namespace faultinject {
namespace {

PlanError error_at(const YAML::Mark& mark, const std::string& file, const std::string& message) {
  return mark.is_null() ? PlanError(file, 0, 0, message)
                        : PlanError(file, mark.line + 1, mark.column + 1, message);
}

}  // namespace

std::vector<FaultSpec> parse_plan(const std::string& text, const std::string& file) {
  std::vector<FaultSpec> faults;
  try {
    if (const auto rest = end_of_first_document(text))
      throw error_at(*rest, file, "a plan is one YAML document, and this is behind it");
    const YAML::Node document = YAML::Load(text);
    if (document.IsMap() && document["faults"].IsDefined()) {
      for (const auto& pair : document)
        if (pair.first.Scalar() != "faults")
          throw error_at(pair.first.Mark(), file,
                         "unknown key '" + pair.first.Scalar() + "' beside 'faults'");
      faults = parse_faults(document["faults"], file);
    } else if (document.IsMap()) {
      faults.push_back(parse_fault(document, file));
    } else {
      faults = parse_faults(document, file);
    }
  } catch (const YAML::ParserException& error) {
    throw error_at(error.mark, file, "this is not YAML: " + error.msg);
  }
  if (faults.empty())
    throw PlanError(file, 0, 0,
                    "there is no fault in it; write e.g. - {at: now, target: node1/nic0, kind: port_down}");
  for (const FaultSpec& fault : faults)
    if (fault.trigger.kind == Trigger::Kind::kManual)
      throw PlanError(file, fault.line, fault.column,
                      "nothing triggers this fault; add 'at', e.g. 'at: now', 'on', e.g. 'on: "
                      "migration_started', or 'after'");
  return faults;
}

}  // namespace faultinject
