// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/sim_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "faultinject/plan/units.h"
#include "harness/cli/commands.h"
#include "harness/cli/list_option.h"
#include "harness/cli/subcommands.h"

namespace r2bench {
namespace {

/// `text` through one of units.h; a number without a unit where that is none is the user's mistake.
template <typename Parse>
auto quantity(const char* option, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const faultinject::UnitError& error) {
    throw UsageError(std::string(option) + " " + text + ": " + error.what());
  }
}

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

CLI::Option* JobOptions::add_to(CLI::App& command, const std::string& group) {
  CLI::Option* given =
      add_lists(command, "--capacities", capacities,
                "Capacity of each node relative to a healthy one, such as 1,1,0.5,1",
                [](const std::string& entry) { return number_of(entry) ? "" : "is no number"; })
          ->type_name("FLOAT")
          ->group(group);
  command.add_option("--bytes", bytes, "Data of each node (default: 1 GiB)")->group(group);
  command.add_option("--rate", rate, "Rate of a healthy node in each direction (default: 400 Gbit/s)")
      ->group(group);
  command
      .add_option("--latency", latency,
                  "Latency of a message: the time between the sending of its last byte and the start of the "
                  "operation that waits for it (default: 5 us)")
      ->group(group);
  command
      .add_option("--reduction-rate", reduction,
                  "Rate at which a node adds, such as '25 GB/s' (default: 0, no limit)")
      ->group(group);
  command
      .add_option("--segments", segments,
                  "K: the largest number of segments into which the data is cut (default: 64)")
      ->check(CLI::Range(1, 65536))
      ->group(group);
  return given;
}

r2ccl::collective::Job JobOptions::job() const {
  std::vector<double> of_nodes;
  for (const std::string& capacity : capacities) of_nodes.push_back(number_of(capacity).value());
  return job(std::move(of_nodes));
}

r2ccl::collective::Job JobOptions::job(std::vector<double> of_nodes) const {
  r2ccl::collective::Job job;
  job.capacities = std::move(of_nodes);
  job.bytes = quantity("--bytes", bytes, faultinject::parse_bytes);
  const uint64_t bits = quantity("--rate", rate, faultinject::parse_rate);
  if (bits == 0) throw UsageError("--rate: a simulated port needs one");
  job.bytes_per_second = static_cast<double>(bits) / 8;
  job.latency_s =
      std::chrono::duration<double>(quantity("--latency", latency, faultinject::parse_duration)).count();
  if (reduction != "0") {
    job.reduce_bytes_per_second =
        static_cast<double>(quantity("--reduction-rate", reduction, faultinject::parse_rate)) / 8;
  }
  job.most_segments = segments;
  if (job.bytes == 0) throw UsageError("--bytes: must be more than 0");
  if (job.capacities.size() < 2 || job.capacities.size() > 1024)
    throw UsageError("--capacities: " + std::to_string(job.capacities.size()) +
                     " given, one for each node; give 2 to 1024");
  for (const double capacity : job.capacities) {
    if (!(capacity > 0 && capacity <= 1e6))
      throw UsageError(
          "--capacities: each must be above 0 and at most 1000000; leave out nodes that carry no traffic");
  }
  return job;
}

void SimOptions::add_to(CLI::App& app) {
  command = add_tool(app, "sim");
  command->add_option("operation", operation, "The collective operation: allreduce")
      ->required()
      ->check(CLI::IsMember({"allreduce"}));
  CLI::Option* given = job.add_to(*command, "Options");
  command->add_option("--nodes", nodes, "Number of nodes, all healthy except those of --degraded")
      ->check(CLI::Range(2, 1024))
      ->excludes(given);
  add_lists(*command, "--degraded", degraded,
            "NODE:X: this node has lost the fraction X of its capacity; may be repeated")
      ->excludes(given);
  command
      ->add_option(
          "--sharing", sharing,
          "How concurrent parts of an algorithm share ports: maxmin (by weighted max-min) or exclusive "
          "(each has a fixed share) (default: maxmin)")
      ->check(CLI::IsMember({"maxmin", "exclusive"}));
  command->add_flag("--only-chosen", only_chosen, "Simulate only the planner's choice");
  command->add_flag("--json", json, "Print JSON");
  command->footer("Example: r2bench sim allreduce --nodes 16 --degraded 0:0.5 --bytes 1GiB");
}

SimArguments SimOptions::finished() const {
  SimArguments arguments;
  if (job.capacities.empty() && nodes == 0) throw UsageError("sim needs --nodes or --capacities");
  if (nodes == 0 && !degraded.empty()) throw UsageError("--degraded needs --nodes");
  std::vector<double> of_nodes(nodes, 1);
  for (const std::string& text : degraded) {
    const size_t colon = text.find(':');
    uint32_t node = nodes;
    const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), node);
    const auto lost = number_of(colon == std::string::npos ? "" : text.substr(colon + 1));
    if (colon == std::string::npos || error != std::errc() || end != text.data() + colon || node >= nodes ||
        !lost || !(*lost >= 0 && *lost < 1))
      throw UsageError("--degraded " + text + ": write NODE:X with a node below " + std::to_string(nodes) +
                       " and the lost part X, 0 to below 1");
    of_nodes[node] = 1 - *lost;
  }
  arguments.job = job.capacities.empty() ? job.job(std::move(of_nodes)) : job.job();
  arguments.options.sharing = sharing == "exclusive" ? Sharing::kExclusive : Sharing::kMaxMin;
  arguments.options.only_chosen = only_chosen;
  arguments.json = json;
  return arguments;
}

void PlanOptions::add_to(CLI::App& explain, const std::string& group) {
  capacities = job.add_to(explain, group);
  explain
      .add_option("--algorithm", algorithm, "The schedule to print or write (default: the planner's choice)")
      ->check(CLI::IsMember(
          {"ring", "unequal_ring", "double_tree", "r2ccl_allreduce", "four_stage", "mix", "direct"}))
      ->needs(capacities)
      ->group(group);
  explain.add_option("--print", print, "Print the operations of this rank ('all': of all ranks)")
      ->needs(capacities)
      ->group(group);
  explain.add_option("--xml", xml, "Write the schedule as MSCCL-style XML to this file")
      ->needs(capacities)
      ->group(group);
  explain.add_option("--chakra", chakra, "Write Chakra traces to files PREFIX.RANK.et")
      ->needs(capacities)
      ->group(group);
}

PlanArguments PlanOptions::finished() const {
  PlanArguments arguments{job.job(), algorithm, xml, chakra, {}};
  const auto ranks = uint32_t(arguments.job.capacities.size());
  if (print == "all") {
    arguments.print.resize(ranks);
    std::iota(arguments.print.begin(), arguments.print.end(), 0u);
  } else if (!print.empty()) {
    uint32_t rank = 0;
    const auto [end, error] = std::from_chars(print.data(), print.data() + print.size(), rank);
    if (error != std::errc() || end != print.data() + print.size() || rank >= ranks)
      throw UsageError("--print " + print + ": write a rank below " + std::to_string(ranks) + ", or 'all'");
    arguments.print = {rank};
  }
  return arguments;
}

}  // namespace r2bench
