// SPDX-License-Identifier: Apache-2.0
// `list`: the scenarios that come with the program, the kinds of fault, or the metrics.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "faultinject/plan/kind.h"
#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/resources.h"
#include "harness/judge/metric.h"
#include "harness/real/real_faults.h"
#include "harness/scenario/rank_fault.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using faultinject::FaultKind;
using faultinject::Parameter;

int list_scenarios(const Console& console) {
  const fs::path folder = share_or_throw() / "scenarios";
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  if (error) throw UsageError(folder.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  size_t name_width = 0;
  for (const fs::path& file : files) name_width = std::max(name_width, file.stem().string().size());
  int status = 0;
  for (const fs::path& file : files) {
    const std::string name = file.stem().string();
    std::string text;
    try {
      const std::vector<Scenario> all = load_scenarios(file.string());
      text = all.front().description;
      if (std::any_of(all.begin(), all.end(), has_real_faults))
        text += " (changes the machine: --allow-real-faults)";
      if (all.size() > 1) text += " (" + std::to_string(all.size()) + " variants)";
    } catch (const ScenarioError& problem) {
      text = "cannot be used: " + problem.problems().front().message;
      status = kExitUsage;
    }
    const std::string lead = "  " + left(name, name_width) + "  ";
    console.out << lead << wrap(text, console.columns - width(lead), width(lead)) << "\n";
  }
  console.out << "\nr2bench explain NAME describes a scenario, r2bench run NAME runs it.\n";
  return status;
}

/// What a parameter is where it is left out; empty where that has no word.
std::string usual_in_words(const Parameter& parameter) {
  switch (parameter.type) {
    case Parameter::Type::kTime:
      return faultinject::format_duration(std::chrono::nanoseconds(int64_t(parameter.usual)));
    case Parameter::Type::kBytes:
      return faultinject::format_bytes(parameter.usual);
    case Parameter::Type::kChoice:
      return parameter.words.at(parameter.usual);
    case Parameter::Type::kNumber:
      break;
  }
  return parameter.usual == UINT64_MAX ? "" : std::to_string(parameter.usual);
}

nlohmann::json parameters_of(const FaultKind& kind) {
  nlohmann::json all = nlohmann::json::array();
  for (const Parameter& own : kind.own) {
    nlohmann::json one = {{"key", own.key}};
    if (const std::string usual = usual_in_words(own); !usual.empty()) one["default"] = usual;
    if (!own.words.empty()) one["words"] = own.words;
    all.push_back(one);
  }
  for (const char* shared : kind.shared) all.push_back({{"key", shared}});
  return all;
}

const char* to_string(faultinject::Strikes strikes) {
  switch (strikes) {
    case faultinject::Strikes::kAnything:
      return "anything";
    case faultinject::Strikes::kSetUp:
      return "set_up";
    case faultinject::Strikes::kWork:
      return "work";
    case faultinject::Strikes::kMessages:
      return "messages";
    case faultinject::Strikes::kReceives:
      return "receives";
    case faultinject::Strikes::kTwoQueuePairs:
      return "two_queue_pairs";
  }
  return "?";
}

nlohmann::json examples_of(const FaultKind& kind) {
  nlohmann::json all = nlohmann::json::array();
  for (const faultinject::Example& example : kind.examples)
    all.push_back({{"name", kind.name + std::string(example.suffix)},
                   {"parameters", example.parameters},
                   {"harm", to_string(example.harm)},
                   {"strikes", to_string(example.strikes)}});
  return all;
}

nlohmann::json parameters_of(const RankFaultInfo& kind) {
  nlohmann::json all = nlohmann::json::array();
  if (kind.lasts) all.push_back({{"key", "for"}});
  return all;
}

std::vector<std::string> engines_of(const RankFaultInfo& kind) {
  std::vector<std::string> names;
  for (const Engine engine : kind.engines) names.emplace_back(name(engine));
  return names;
}

nlohmann::json faults_as_json() {
  nlohmann::json all = nlohmann::json::array();
  for (const FaultKind& kind : faultinject::fault_kinds())
    all.push_back({{"name", kind.name},
                   {"what", kind.what},
                   {"takes", to_string(kind.takes)},
                   {"ends", to_string(kind.ends)},
                   {"moves_traffic", kind.moves_traffic()},
                   {"whole_device", kind.whole_device},
                   {"outside", kind.outside},
                   {"parameters", parameters_of(kind)},
                   {"examples", examples_of(kind)}});
  for (const RankFaultInfo& kind : rank_fault_kinds())
    all.push_back(
        {{"name", kind.name},
         {"what", kind.what},
         {"takes", to_string(faultinject::Takes::kNothing)},
         {"ends", to_string(kind.lasts ? faultinject::Ends::kAfterItsTime : faultinject::Ends::kNeverForJob)},
         {"moves_traffic", false},
         {"whole_device", false},
         {"outside", true},
         {"engines", engines_of(kind)},
         {"parameters", parameters_of(kind)},
         {"examples", nlohmann::json::array()}});
  return all;
}

int list_faults(bool json, const Console& console) {
  if (json) {
    console.out << faults_as_json().dump(1) << "\n";
    return 0;
  }
  size_t name_width = 0;
  for (const FaultKind& kind : faultinject::fault_kinds())
    name_width = std::max(name_width, std::string_view(kind.name).size());
  const auto print = [&](const std::string& name, std::string text, const nlohmann::json& parameters) {
    std::string keys;
    for (const auto& parameter : parameters) {
      keys += (keys.empty() ? " [" : ", ") + parameter["key"].get<std::string>();
      if (parameter.contains("default")) keys += " (" + parameter["default"].get<std::string>() + ")";
    }
    if (!keys.empty()) text += keys + "]";
    const std::string lead = "  " + left(name, name_width) + "  ";
    console.out << lead << wrap(text, console.columns - width(lead), width(lead)) << "\n";
  };
  for (const FaultKind& kind : faultinject::fault_kinds()) print(kind.name, kind.what, parameters_of(kind));
  console.out << "\nFaults of a rank (target: node1/rank0):\n";
  for (const RankFaultInfo& kind : rank_fault_kinds()) print(kind.name, kind.what, parameters_of(kind));
  console.out << "\nIn [brackets]: the parameters, with their defaults in parentheses.\n"
                 "Write your own: faultinject/faults/README.md.\n";
  return 0;
}

nlohmann::json metrics_as_json() {
  nlohmann::json all = nlohmann::json::array();
  for (const Metric& metric : all_metrics()) {
    const MetricInfo& info = metric.info;
    nlohmann::json needs = nlohmann::json::array();
    for (const auto& [needed, word] : {std::pair(info.needs.fault, "fault"),
                                       {info.needs.pairs, "pairs"},
                                       {info.needs.balance, "balance"},
                                       {info.needs.trace, "trace"},
                                       {info.needs.beside, "beside"},
                                       {info.needs.deliveries, "deliveries"},
                                       {info.needs.plans, "plans"}})
      if (needed) needs.push_back(word);
    nlohmann::json one = {
        {"name", info.name}, {"unit", unit_of(info)}, {"meaning", info.meaning}, {"needs", needs}};
    if (!info.words.empty()) one["words"] = info.words;
    if (info.compared) one["better"] = info.compared->better == Better::kLower ? "lower" : "higher";
    all.push_back(one);
  }
  return all;
}

int list_metrics(bool json, const Console& console) {
  if (json) {
    console.out << metrics_as_json().dump(1) << "\n";
    return 0;
  }
  const std::vector<MetricLine> lines = metric_lines();
  size_t name_width = 0;
  for (const MetricLine& line : lines) name_width = std::max(name_width, line.name.size());
  for (const MetricLine& line : lines) {
    const std::string lead = "  " + left(line.name, name_width) + "  ";
    const std::string text =
        line.meaning + " [" + line.wanted + (line.statistics.empty() ? "" : "; " + line.statistics) + "]";
    console.out << lead << wrap(text, console.columns - width(lead), width(lead)) << "\n";
  }
  console.out
      << "\nIn [brackets]: what an expectation compares the metric with, and the statistics of a time.\n"
         "Add one: harness/judge/README.md.\n";
  return 0;
}

}  // namespace

int list_command(const ListOptions& options, const Console& console) {
  if (options.faults) return list_faults(options.json, console);
  if (options.metrics) return list_metrics(options.json, console);
  if (options.json) throw UsageError("--json needs --faults or --metrics");
  return list_scenarios(console);
}

}  // namespace r2bench
