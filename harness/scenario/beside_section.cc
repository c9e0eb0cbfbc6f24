// SPDX-License-Identifier: Apache-2.0
// Modes whose jobs compare two sides: two transports, or two modes of the plugin.
#include "harness/scenario/sections.h"
#include "harness/scenario/turns.h"

namespace r2bench {
namespace {

/// Each side begins equally often in whole rounds only.
void check_rounds(Document& document, const YAML::Node& root, const Scenario& scenario,
                  const std::string& who) {
  const int round = Turns{scenario.workload.pairs()}.round();
  if (scenario.workload.iters % round == 0) return;
  const YAML::Node workload = std::as_const(root)["workload"];
  const bool given = workload.IsDefined() && workload["iters"].IsDefined();
  document.report(given ? workload["iters"] : std::as_const(root)["modes"],
                  who + ", each of which begins equally often in a multiple of " + std::to_string(round) +
                      " operations (32 × copies); write such a number as 'iters'");
}

/// What strikes single queue pairs or work requests strikes those of the side whose turn it is.
void check_strikes(Document& document, const Scenario& scenario, const std::string& who) {
  for (const faultinject::FaultSpec& fault : scenario.faults)
    if (fault.kind->takes == faultinject::Takes::kQueuePairs &&
        fault.target.qp.kind != faultinject::QpSelector::Kind::kAll &&
        fault.count != faultinject::FaultSpec::kAll)
      document.report_line(fault.line, fault.column,
                           who + ", and '" + fault.name +
                               "' would strike one of them alone; write 'qp: all' or 'count: all', or choose "
                               "a fault of the whole NIC");
}

/// Pairs compare whole jobs, and such a job's operations are of two sides.
void check_pairs(Document& document, const YAML::Node& root, const Scenario& scenario) {
  if (scenario.pairs == 0) return;
  for (const Mode& mode : scenario.modes)
    if (scenario.compares_sides(mode))
      return document.report(std::as_const(root)["pairs"],
                             "'pairs' compares jobs with each other, and those of mode '" + mode.label +
                                 "' have the operations of two sides; leave out 'pairs' and use "
                                 "'beside_ratio'");
}

}  // namespace

std::string read_own_plugin(Document& document, MapReader& map) {
  const auto plugin = map.text("plugin");
  if (plugin && plugin->empty()) document.report(map.get("plugin"), "'plugin' is empty");
  return plugin.value_or("");
}

void check_own_plugins(Document& document, const YAML::Node& root, const Scenario& scenario) {
  if (scenario.workload.engine == Engine::kCpu) return;
  for (const Mode& mode : scenario.modes)
    if (!mode.plugin.empty())
      return document.report(std::as_const(root)["modes"],
                             "mode '" + mode.label +
                                 "' has a 'plugin' of its own; write 'engine: cpu', or, for NCCL's IB "
                                 "transport, 'transport: ib'");
}

std::optional<OtherSide> read_other_side(Document& document, MapReader& mode) {
  if (!mode.has("beside")) return std::nullopt;
  const YAML::Node node = mode.get("beside");
  OtherSide other;
  YAML::Node at = node;
  std::string word = node.IsScalar() ? node.Scalar() : "";
  if (!node.IsScalar()) {
    MapReader map(document, node, "the other side");
    const auto given = map.text("mode");
    if (node.IsMap() && !map.has("mode"))
      document.report(node, "'beside' needs 'mode': what this mode's operations take turns with");
    other.env = map.string_map("env");
    other.plugin = read_own_plugin(document, map);
    check_env(document, map.get("env"), other.env);
    if (given) at.reset(map.get("mode"));
    map.finish();
    if (!given) return std::nullopt;
    word = *given;
  }
  const auto kind = read_kind(document, at, word);
  if (!kind) return std::nullopt;
  other.kind = *kind;
  return other;
}

void check_other_sides(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const YAML::Node modes = std::as_const(root)["modes"];
  bool compared = false, in_file = false;
  for (const auto& mode : modes) in_file = in_file || (mode.IsMap() && mode["beside"].IsDefined());
  for (const Mode& mode : scenario.modes) {
    if (!mode.beside || std::exchange(compared, true)) continue;
    const std::string who = "mode '" + mode.label + "' compares two sides in one job ('beside')";
    if (scenario.workload.engine == Engine::kNccl)
      return document.report(modes, who + "; in 'engine: nccl' write 'transport: plugin_beside_ib' instead");
    if (scenario.workload.engine == Engine::kExec)
      return document.report(modes, who + "; write 'engine: cpu', whose ranks can have a plugin for each");
    if (scenario.repeats > 1)
      document.report(std::as_const(root)["repeats"].IsDefined() ? std::as_const(root)["repeats"] : modes,
                      who +
                          ", and a repeated fault would strike in one side's turn or the other's; leave out "
                          "'repeats'");
    check_strikes(document, scenario, who);
    check_rounds(document, root, scenario, who);
  }
  check_pairs(document, root, scenario);
  if (!in_file && scenario.workload.copies > 0 && scenario.workload.engine == Engine::kCpu)
    document.report(
        std::as_const(root)["workload"]["copies"],
        "'copies' is for modes that compare two sides; write 'beside' in a mode, for example {mode: "
        "balance, beside: migrate}");
}

/// Operations alternate between communicators of two kinds, and their times are compared.
void check_beside(Document& document, const YAML::Node& root, const Scenario& scenario, const Mode& mode) {
  const YAML::Node workload = std::as_const(root)["workload"], modes = std::as_const(root)["modes"];
  const std::string who = "mode '" + mode.label + "' compares two transports in one job (transport: " +
                          name(scenario.transport_of(mode)) + ")";
  if (scenario.workload.engine != Engine::kNccl)
    document.report(modes, who + "; write 'engine: nccl', whose ranks have a communicator over each");
  if (scenario.workload.plugin != Workload{}.plugin)
    document.report(workload["plugin"].IsDefined() ? workload["plugin"] : modes,
                    who + ", and NCCL chooses R2CCL's by its name; leave out 'plugin'");
  if (scenario.workload.nccl.graph || scenario.workload.nccl.renewal)
    document.report(workload[scenario.workload.nccl.graph ? "graph" : "renew"].IsDefined()
                        ? workload[scenario.workload.nccl.graph ? "graph" : "renew"]
                        : modes,
                    who + "; leave out 'graph' and 'renew'");
  check_rounds(document, root, scenario, who);
  if (!scenario.faults.empty())
    document.report(std::as_const(root)["faults"].IsDefined() ? std::as_const(root)["faults"] : modes,
                    who + ", and a fault would strike both; leave out 'faults'");
}

}  // namespace r2bench
