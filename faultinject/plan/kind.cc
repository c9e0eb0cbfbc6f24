// SPDX-License-Identifier: Apache-2.0
// All kinds of fault: what the files of faultinject/faults declare. The list of those files is made by CMake.
#include "faultinject/plan/kind.h"

#include <algorithm>
#include <stdexcept>

#define FAULT_FILE(name)          \
  namespace faultinject::faults { \
  std::vector<FaultKind> name();  \
  }
#include "faultinject/fault_files.inc"
#undef FAULT_FILE

namespace faultinject {

bool FaultKind::takes_parameter(std::string_view key) const {
  return std::find(shared.begin(), shared.end(), key) != shared.end() ||
         std::any_of(own.begin(), own.end(), [&](const Parameter& each) { return each.key == key; });
}

const std::vector<FaultKind>& fault_kinds() {
  static const std::vector<FaultKind> all = [] {
    std::vector<FaultKind> kinds;
    const auto add = [&](const std::vector<FaultKind>& of_file) {
      kinds.insert(kinds.end(), of_file.begin(), of_file.end());
    };
#define FAULT_FILE(name) add(faults::name());
#include "faultinject/fault_files.inc"
#undef FAULT_FILE
    return kinds;
  }();
  return all;
}

const FaultKind* find_fault_kind(std::string_view name) {
  for (const FaultKind& kind : fault_kinds())
    if (kind.name == name) return &kind;
  return nullptr;
}

const FaultKind& fault_kind(std::string_view name) {
  if (const FaultKind* kind = find_fault_kind(name)) return *kind;
  throw std::invalid_argument("there is no kind of fault '" + std::string(name) + "'");
}

std::vector<std::string> fault_kind_names() {
  std::vector<std::string> names;
  for (const FaultKind& kind : fault_kinds()) names.emplace_back(kind.name);
  return names;
}

const char* to_string(Takes takes) {
  switch (takes) {
    case Takes::kNothing:
      return "nothing";
    case Takes::kPort:
      return "port";
    case Takes::kQueuePairs:
      return "queue_pairs";
    case Takes::kSpeed:
      return "speed";
  }
  return "?";
}

const char* to_string(Ends ends) {
  switch (ends) {
    case Ends::kWhenHealed:
      return "when_healed";
    case Ends::kAfterStrikes:
      return "after_strikes";
    case Ends::kAfterItsTime:
      return "after_its_time";
    case Ends::kNeverForJob:
      return "never_for_job";
  }
  return "?";
}

const char* to_string(Harm harm) {
  switch (harm) {
    case Harm::kBreaks:
      return "breaks";
    case Harm::kMayBreak:
      return "may_break";
    case Harm::kHarmless:
      return "harmless";
    case Harm::kNone:
      return "none";
  }
  return "?";
}

}  // namespace faultinject
