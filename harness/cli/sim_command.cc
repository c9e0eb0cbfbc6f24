// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/sim_command.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/cli/commands.h"
#include "harness/cli/nic_plan.h"
#include "harness/cli/resources.h"
#include "r2ccl/collective/export.h"

namespace r2bench {

namespace collective = r2ccl::collective;

namespace {

std::string header(const collective::Job& job, uint32_t pieces = 1) {
  return "AllReduce of " + faultinject::format_bytes(pieces * job.bytes) +
         (pieces > 1 ? " in " + std::to_string(pieces) + " pieces" : "") + " on " +
         std::to_string(job.capacities.size()) + " nodes of " +
         faultinject::format_rate(static_cast<uint64_t>(job.bytes_per_second * 8)) + ", latency " +
         short_number(job.latency_s * 1e6) + " us";
}

void row(const Console& console, const std::vector<std::string>& cells) {
  static constexpr size_t kColumns[] = {18, 4, 12, 12, 10, 10, 10};
  std::string line = "  ";
  for (size_t i = 0; i + 1 < cells.size(); ++i)
    line += i == 0 ? left(cells[i], kColumns[0]) : right(cells[i], kColumns[i]);
  line += "  " + cells.back();
  console.out << line << "\n";
}

/// Why the table has a direct that may be faster than the planner's choice, or has none.
void print_note_on_direct(const collective::Job& job, bool eligible, const Console& console) {
  const std::string most = std::to_string(collective::kMostDirectNodes),
                    least = std::to_string(collective::kLeastDirectChunk >> 10);
  if (job.capacities.size() > collective::kMostDirectNodes)
    console.out << "  There is no direct among more than " << most << " nodes.\n";
  else if (!eligible)
    console.out << "  The planner does not take direct while no node is degraded, or for chunks below "
                << least << " KiB.\n";
}

std::string ratio(double value) { return fixed(value, 3); }

void print_sentences(const Console& console, const std::string& text) {
  if (!text.empty()) console.out << "  " << wrap(text, console.columns - 2, 2) << "\n\n";
}

nlohmann::ordered_json to_json(const ComparedAlgorithm& algorithm) {
  return {{"name", algorithm.name},
          {"segments", algorithm.segments},
          {"eligible", algorithm.eligible},
          {"formula_s", algorithm.formula_s},
          {"simulated_s", algorithm.simulated_s},  // null: not simulated
          {"transfers", algorithm.transfers},
          {"memory_bytes", algorithm.memory_bytes},
          {"cpu_s", algorithm.cpu_s}};
}

void print_json(const AllReduceComparison& compared, const Console& console) {
  nlohmann::ordered_json json;
  json["evidence"] = "simulated";
  json["bound_s"] = compared.bound_s;
  json["fault_free_ring_s"] = compared.fault_free_ring_s;
  json["chosen"] = compared.chosen;
  json["why"] = compared.why;
  json["algorithms"] = nlohmann::ordered_json::array();
  for (const ComparedAlgorithm& algorithm : compared.algorithms)
    json["algorithms"].push_back(to_json(algorithm));
  if (compared.by_capacities) json["by_capacities"] = to_json(*compared.by_capacities);
  console.out << json.dump(2) << "\n";
}

}  // namespace

int sim_command(const SimArguments& arguments, const Console& console) {
  const auto result = compare_allreduce(arguments.job, arguments.options);
  if (!result) throw std::runtime_error(result.error().message);  // the options are checked: our own mistake
  const AllReduceComparison& compared = result.value();
  if (arguments.json) {
    print_json(compared, console);
    return 0;
  }
  console.out << header(arguments.job, arguments.options.pieces) << " (simulated)\n\n";
  row(console, {"algorithm", "K", "formula", "simulated", "/ bound", "/ T0", "formula is"});
  row(console, {"lower bound", "", milliseconds(compared.bound_s * 1e3), "", "1.000",
                ratio(compared.bound_s / compared.fault_free_ring_s), "max(max 1/c, 2(p-1)/sum c)"});
  const auto print = [&](const ComparedAlgorithm& algorithm, const std::string& name) {
    const double seconds = algorithm.simulated_s;
    const bool known = std::isfinite(seconds);
    row(console, {name, std::to_string(algorithm.segments),
                  std::isfinite(algorithm.formula_s) ? milliseconds(algorithm.formula_s * 1e3) : "–",
                  known ? milliseconds(seconds * 1e3) : "–", known ? ratio(seconds / compared.bound_s) : "–",
                  known ? ratio(seconds / compared.fault_free_ring_s) : "–", algorithm.formula});
  };
  for (const ComparedAlgorithm& algorithm : compared.algorithms) print(algorithm, algorithm.name);
  if (compared.by_capacities) print(*compared.by_capacities, compared.by_capacities->name + " *");
  const bool all =
      std::all_of(compared.algorithms.begin(), compared.algorithms.end(), [](const auto& algorithm) {
        return algorithm.eligible || algorithm.name != name(collective::Algorithm::kDirect);
      });
  print_note_on_direct(arguments.job, all, console);
  if (compared.by_capacities)
    console.out << "  * What the planner would take by capacities alone, on the same NICs.\n";
  const auto not_simulated = [](const ComparedAlgorithm& of) { return std::isinf(of.simulated_s); };
  if (std::any_of(compared.algorithms.begin(), compared.algorithms.end(), not_simulated) ||
      (compared.by_capacities && not_simulated(*compared.by_capacities)))
    console.out << "  –: two nodes without a common rail exchange data; the path that Balance finds is not "
                   "simulated.\n";
  console.out << "\n";
  print_sentences(console, nics_in_words(arguments.job, compared.nics_counted));
  console.out << "  "
              << wrap("The planner takes " + compared.chosen + ". " + compared.why, console.columns - 2, 2)
              << "\n"
              << "  T0: the ring if every node were as the best one, "
              << milliseconds(compared.fault_free_ring_s * 1e3) << ".\n";
  return 0;
}

int explain_plan_command(const PlanArguments& arguments, const Console& console) {
  const auto planned = collective::plan(arguments.job);
  if (!planned) throw UsageError(planned.error().message);
  const collective::Plan& plan = planned.value();
  const collective::Candidate* const wanted = candidate_of(plan, arguments.algorithm);
  if (!wanted && !arguments.algorithm.empty())
    throw UsageError("--algorithm " + arguments.algorithm + ": there is none among " +
                     std::to_string(arguments.job.capacities.size()) + " nodes, only among up to " +
                     std::to_string(collective::kMostDirectNodes));
  const collective::Candidate& taken = wanted ? *wanted : plan.choice();
  const bool counted = plan.choice().rails > 0;
  console.out << header(arguments.job) << "\n\n";
  print_sentences(console,
                  "The planner takes " + std::string(name(plan.choice().algorithm)) + ". " + plan.why);
  print_sentences(console, nics_in_words(arguments.job, counted));
  if (const auto other = other_plan_by_capacities(arguments.job, plan); other && counted)
    print_sentences(console, by_capacities_in_words(arguments.job, *other));
  const auto line = [&](std::vector<std::string> cells, const std::string& nic, const std::string& last) {
    if (counted) cells.push_back(nic);
    cells.push_back(last);
    row(console, cells);
  };
  line({"algorithm", "K", "predicted", "port", "steps", "fill"}, "NIC", "formula");
  for (const collective::Candidate& candidate : plan.candidates) {
    const bool has_way = candidate.has_common_rails();
    const auto time = [&](double seconds) { return has_way ? milliseconds(seconds * 1e3) : "–"; };
    line({name(candidate.algorithm), std::to_string(candidate.segments), time(candidate.seconds),
          time(std::max(candidate.transfer_s, candidate.reduction_s)), time(candidate.steps_s),
          time(candidate.fill_s)},
         has_way ? ratio(candidate.rails) : "–", candidate.formula);
  }
  console.out << "  predicted = max(port or additions, steps) + fill; lower bound "
              << milliseconds(plan.bound_s * 1e3) << "\n";
  if (counted)
    console.out << "  NIC: what the busiest NIC needs over what the busiest node's NICs need together; "
                   "included in port\n";
  if (std::any_of(plan.candidates.begin(), plan.candidates.end(),
                  [](const auto& of) { return !of.has_common_rails(); }))
    console.out << "  –: two nodes without a common rail exchange data\n";
  const collective::Candidate* const direct = candidate_of(plan, name(collective::Algorithm::kDirect));
  print_note_on_direct(arguments.job, direct && direct->eligible, console);
  console.out << "\n";
  if (!arguments.job.nics.empty()) print_sentences(console, mode3_in_words(arguments.job, arguments.margin));
  const collective::Schedule schedule = build(arguments.job, taken);
  console.out << to_text(schedule, arguments.print);
  if (!arguments.xml.empty()) write_file(arguments.xml, to_xml(schedule));
  for (uint32_t rank = 0; !arguments.chakra.empty() && rank < schedule.ranks; ++rank) {
    write_file(arguments.chakra + "." + std::to_string(rank) + ".et",
               to_chakra(schedule, rank, arguments.job.bytes));
  }
  return 0;
}

}  // namespace r2bench
