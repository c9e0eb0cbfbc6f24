// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/plan_text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <sstream>
#include <utility>

namespace faultinject {
namespace {

PlanError error_at(const YAML::Mark& mark, const std::string& file, const std::string& message) {
  return mark.is_null() ? PlanError(file, 0, 0, message)
                        : PlanError(file, mark.line + 1, mark.column + 1, message);
}

// Where the last document began.
class Begin : public YAML::EventHandler {
 public:
  YAML::Mark mark;
  bool empty = true;
  void OnDocumentStart(const YAML::Mark& at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { empty = false; }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {
    empty = false;
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnMapEnd() override {}
};

// Not YAML::LoadAll, which does not return for some texts that are no YAML.
std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Begin first, second;
  const bool two = parser.HandleNextDocument(first) && parser.HandleNextDocument(second) && !second.empty;
  return two ? std::optional(second.mark) : std::nullopt;
}

}  // namespace

std::vector<FaultSpec> parse_plan(const std::string& text, const std::string& file) {
  std::vector<FaultSpec> faults;
  try {
    if (const auto second = second_document(text))
      throw error_at(*second, file, "a second YAML document; a plan is one, without '---' inside");
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
