// SPDX-License-Identifier: Apache-2.0
// What no section can see by itself: combinations that cannot run, or that could never be judged.
#include <algorithm>

#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

void check_expectation(Document& document, const Scenario& scenario, const Expectation& expectation) {
  const bool has_faults = !scenario.faults.empty() || !scenario.rank_faults.empty();
  const auto report = [&](const std::string& message) {
    document.report_line(expectation.line, expectation.column, message);
  };
  const MetricInfo* metric = find_metric(expectation.metric);
  const Needs needs = metric != nullptr ? metric->needs : Needs{};
  if (needs.fault && !has_faults) {
    report("'" + expectation.metric +
           "' needs a fault, but this scenario has none; it could never be judged");
  }
  if (needs.balance && std::none_of(scenario.modes.begin(), scenario.modes.end(), [&](const Mode& mode) {
        return mode.kind >= ModeKind::kBalance &&
               (expectation.mode == "all" || expectation.mode == mode.label);
      })) {
    report("'" + expectation.metric +
           "' counts what mode balance does; in any other mode it could never be anything but 0");
  }
  if (needs.plans && std::none_of(scenario.modes.begin(), scenario.modes.end(), [&](const Mode& mode) {
        return mode.kind == ModeKind::kAllReduce &&
               (expectation.mode == "all" || expectation.mode == mode.label);
      })) {
    report("'" + expectation.metric +
           "' counts what mode allreduce does; in any other mode it could never be anything but 0");
  }
  if (needs.beside)
    for (const Mode& mode : scenario.modes)
      if ((expectation.mode == "all" || expectation.mode == mode.label) && !scenario.compares_sides(mode))
        report("'" + expectation.metric + "' compares the two sides of one job, and mode '" + mode.label +
               "' has one; " +
               (scenario.workload.engine == Engine::kNccl ? "write 'transport: plugin_beside_ib'"
                                                          : "write 'beside' in it, for example {mode: "
                                                            "balance, beside: migrate}"));
  if (needs.deliveries)
    for (const Mode& mode : scenario.modes)
      if ((expectation.mode == "all" || expectation.mode == mode.label) && scenario.compares_sides(mode))
        report("'" + expectation.metric + "' needs every delivery, and the trace of mode '" + mode.label +
               "' has those of one of its two sides; expect it of a mode that compares nothing");
  if (!needs.pairs) return;
  if (scenario.pairs == 0) {
    report("'" + expectation.metric + "' is measured over pairs of jobs; add 'pairs: 20'");
    return;
  }
  std::vector<const Mode*> modes;
  for (const Mode& mode : scenario.modes) modes.push_back(&mode);
  const std::string& reference = modes[reference_mode(modes)]->label;
  if (expectation.mode == "all" || expectation.mode == reference)
    report("'" + expectation.metric + "' is measured against '" + reference + "'; expect it of another mode");
}

std::string too_late(const std::string& fault, uint64_t iteration, const Scenario& scenario) {
  return "'" + fault + "' would start at iteration " + std::to_string(iteration) +
         ", but the job ends after " + std::to_string(scenario.workload.iters) + " (they count from 0)";
}

/// Not every engine's ranks can be struck in every way.
void check_engine_of(Document& document, const YAML::Node& at, const RankFault& fault, Engine engine) {
  const RankFaultInfo& kind = rank_fault_info(fault.kind);
  if (std::find(kind.engines.begin(), kind.engines.end(), engine) != kind.engines.end()) return;
  std::vector<std::string> engines;
  for (const Engine each : kind.engines) engines.emplace_back(name(each));
  document.report(at, "'" + fault.name + "': " + kind.name + " is for the engine" +
                          (engines.size() > 1 ? "s " : " ") + list_of(engines) + "; " + kind.why_not);
}

/// Where the value of a key of the workload stands; where the file does not have it, `otherwise`.
YAML::Node at_workload(const YAML::Node& root, const char* key, const char* otherwise = nullptr) {
  const YAML::Node workload = std::as_const(root)["workload"];
  return otherwise == nullptr || workload[key].IsDefined() ? workload[key] : workload[otherwise];
}

/// Ranks of one operation, and what each of them has of it.
void check_shape(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const Workload& work = scenario.workload;
  const int together = communicator_of(scenario, 0).size;
  if (together < 2)
    document.report(
        at_workload(root, "groups"),
        "with one node a group of local ranks is one rank alone, which sends nothing; take more 'nodes', or "
        "'groups: all'");
  if (const uint64_t unit = uint64_t(together) * uint64_t(size_of(work.dtype));
      in_chunks(work.op) && work.bytes % unit != 0)
    document.report(at_workload(root, "bytes", "op"),
                    "every rank owns an equal chunk of " + std::string(name(work.op)) + ", but " +
                        std::to_string(work.bytes) + " bytes are no multiple of " + std::to_string(together) +
                        " ranks × " + std::to_string(size_of(work.dtype)) + " bytes");
  if (work.collnet == CollNet::kForce && together != scenario.fabric.nodes)
    document.report(at_workload(root, "collnet"),
                    "CollNet joins one rank of each node, but an operation has " + std::to_string(together) +
                        " ranks on " + std::to_string(scenario.fabric.nodes) +
                        " nodes; take 'ranks_per_node: 1', or 'groups: local_rank'");
  if (work.collnet == CollNet::kForce && work.op != Operation::kAllReduce)
    document.report(at_workload(root, "collnet"), "CollNet is for 'op: allreduce'");
  if (work.in_place && work.engine == Engine::kCpu && work.op != Operation::kAllReduce)
    document.report(at_workload(root, "in_place"),
                    "'in_place' is for 'op: allreduce' where the engine is cpu");
}

/// Results must be exact, and differ where a contribution is missing.
void check_reduction(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const Workload& work = scenario.workload;
  const int together = communicator_of(scenario, 0).size;
  const int most = largest_exact_sum(work.dtype);
  if (work.reduction != Reduction::kSum && !reduces(work.op))
    document.report(at_workload(root, "redop"),
                    "'redop' is for operations that reduce: allreduce and reducescatter");
  if (most > 0 && most <= together && reduces(work.op))
    document.report(at_workload(root, "dtype"), "a sum over " + std::to_string(together) +
                                                    " ranks is not exact in " + name(work.dtype) +
                                                    ", so that nothing could be judged");
  if (work.reduction == Reduction::kAvg && size_of(work.dtype) == 1 && most > 0 &&
      (together & (together - 1)) != 0)
    document.report(at_workload(root, "redop"),
                    std::string("an average over ") + std::to_string(together) + " ranks in " +
                        name(work.dtype) + " is rounded so coarsely that a missing rank would not show");
  if (together > most_ranks(work.dtype, work.reduction))
    document.report(at_workload(root, "redop"),
                    std::string(name(work.reduction)) + " over " + std::to_string(together) + " ranks in " +
                        name(work.dtype) +
                        " has hardly any different results, so that stale data would not show");
}

void check_pairs_and_repeats(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const bool has_faults = !scenario.faults.empty() || !scenario.rank_faults.empty();
  const YAML::Node pairs = std::as_const(root)["pairs"];
  const YAML::Node repeats = std::as_const(root)["repeats"];
  if (scenario.pairs > 0 && has_faults)
    document.report(pairs, "'pairs' measures overhead without a fault, but this scenario has faults");
  if (scenario.pairs > 0 && scenario.modes.size() < 2)
    document.report(pairs,
                    "'pairs' compares modes, but there is only '" + scenario.modes.front().label + "'");
  if (scenario.repeats > 1 && !has_faults) {
    const char* message = "'repeats' repeats the faults, but this scenario has none";
    if (repeats.IsDefined()) {
      document.report(repeats, message);
    } else {
      document.problems().push_back({"--repeats", 0, 0, message, ""});
    }
  }
}

/// Each round arms the injected faults anew, in further entries of the job's fault board.
void check_fault_board(Document& document, const YAML::Node& root, const Scenario& scenario) {
  const size_t all = scenario.faults.size() * size_t(std::max(scenario.repeats, 1));
  if (all <= kMostFaults) return;
  const std::string most = "; a job has room for " + std::to_string(kMostFaults);
  if (scenario.repeats <= 1) {
    document.report(std::as_const(root)["faults"],
                    std::to_string(all) + " faults" + most + "; 'repeat' makes one fault strike often");
    return;
  }
  const std::string message = std::to_string(scenario.faults.size()) + " faults, repeated " +
                              std::to_string(scenario.repeats) + " times, are " + std::to_string(all) + most;
  if (const YAML::Node repeats = std::as_const(root)["repeats"]; repeats.IsDefined())
    document.report(repeats, message);
  else
    document.problems().push_back({"--repeats", 0, 0, message, ""});
}

void check_faults(Document& document, const YAML::Node& root, const Scenario& scenario) {
  // How many operations a command does is not known.
  const bool counted = scenario.workload.engine != Engine::kExec;
  for (const faultinject::FaultSpec& fault : scenario.faults) {
    if (fault.trigger.kind != faultinject::Trigger::Kind::kEvent || fault.trigger.event != "iteration")
      continue;
    if (counted && fault.trigger.value.value_or(0) >= static_cast<uint64_t>(scenario.workload.iters))
      document.report_line(fault.line, fault.column, too_late(fault.name, *fault.trigger.value, scenario));
    if (!counted && fault.repeat > 1 && fault.every.count() == 0)
      document.report_line(fault.line, fault.column,
                           "the iterations of a command trigger '" + fault.name +
                               "' only once; say how long after it the next time is, e.g. every: 2 s");
  }
  const YAML::Node faults = std::as_const(root)["faults"];
  for (const RankFault& fault : scenario.rank_faults) {
    if (counted && fault.at_iter && *fault.at_iter >= scenario.workload.iters)
      document.report(faults, too_late(fault.name, static_cast<uint64_t>(*fault.at_iter), scenario));
    check_engine_of(document, faults, fault, scenario.workload.engine);
  }
}

}  // namespace

void check_whole(Document& document, const YAML::Node& root, const Scenario& scenario) {
  check_shape(document, root, scenario);
  check_reduction(document, root, scenario);
  check_pairs_and_repeats(document, root, scenario);
  check_fault_board(document, root, scenario);
  check_faults(document, root, scenario);
  check_overlaps(document, scenario);
  for (const Expectation& expectation : scenario.expectations)
    check_expectation(document, scenario, expectation);
  check_own_plugins(document, root, scenario);
  check_other_sides(document, root, scenario);
  if (scenario.workload.engine == Engine::kNccl) check_nccl(document, root, scenario);
  if (scenario.workload.engine == Engine::kExec) check_exec(document, root, scenario);
}

}  // namespace r2bench
